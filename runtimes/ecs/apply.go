package ecs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/converge-engine/converge/runtimes"
)

// apply is one Apply, or one removal.
type apply struct {
	*Runtime
	in      runtimes.Instance
	want    *declared
	service *types.Service // the current service; nil: it does not exist
	did     []string
	left    []string // services of the instance with other names
}

// Apply implements runtimes.Runtime. It finds the task definition by its content, or registers it. It creates the service, or
// updates the fields that differ. ECS then does the rollout. If nothing differs, it writes nothing.
func (r *Runtime) Apply(ctx context.Context, in runtimes.Instance) (runtimes.Output, error) {
	started := time.Now()
	a := &apply{Runtime: r, in: in}
	err := explain(fmt.Sprintf("apply %s to %s", in.FullVersion, in.Owner), a.run(ctx))
	out := runtimes.Output{
		Command: fmt.Sprintf("ecs apply %s to %s of cluster %s", in.FullVersion, in.Service, r.cluster.name),
		Stdout:  strings.Join(append(a.did, ""), "\n"), Started: started, Duration: time.Since(started),
	}
	if err != nil {
		out.ExitCode, out.Stderr = 1, err.Error()
	}
	return out, err
}

func (a *apply) say(format string, args ...any) { a.did = append(a.did, fmt.Sprintf(format, args...)) }

func (a *apply) run(ctx context.Context) (err error) {
	if a.in.Payload == nil {
		return runtimes.Permanent(errors.New("the payload is missing"))
	}
	if a.want, err = declare(a.in.Payload); err != nil {
		return err
	}
	if err := a.look(ctx); err != nil {
		return err
	}
	running := ""
	if a.service != nil {
		running = text(a.service.TaskDefinition)
	}
	made, err := a.cluster.find(ctx, a.in.Owner, a.want, running)
	if err != nil {
		return err
	}
	if made == nil && a.want.adopt && running != "" {
		if made, err = a.cluster.takeOver(ctx, a.in.Owner, a.in.FullVersion, a.want, running); err != nil {
			return err
		}
		if made != nil {
			a.say("adopted the task definition %s unchanged", short(running))
		}
	}
	if made == nil {
		if made, err = a.register(ctx); err != nil {
			return err
		}
	}
	if err := a.write(ctx, made); err != nil {
		return err
	}
	if a.want.prune {
		a.prune(ctx, made)
	}
	return nil
}

// look reads the current service, waits while it is being deleted, and refuses a service that may not be written.
func (a *apply) look(ctx context.Context) (err error) {
	why := ""
	for {
		a.service, err = a.cluster.read(ctx, a.in.Owner, a.want.name(), time.Now())
		if err == nil && (a.service == nil || text(a.service.Status) != statusDraining) {
			return a.admit()
		}
		if err == nil {
			why = fmt.Sprintf("the service %s is still DRAINING and cannot be created again yet: ", a.want.name())
			err = pause(ctx, a.cluster.timing.wait)
		}
		if err != nil {
			return fmt.Errorf("%s%w", why, err)
		}
	}
}

const statusDraining = "DRAINING"

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// admit refuses a service of another owner, one whose rollouts another controller does, and one with a later fence.
func (a *apply) admit() error {
	if a.service == nil {
		return nil
	}
	name := a.want.name()
	owner := valueOf(a.service.Tags, TagOwner)
	switch {
	case owner == a.in.Owner.Key():
	case a.want.adopt:
		a.say("adopted the service %s from %s", name, ownerShown(owner))
	default:
		return runtimes.Permanent(fmt.Errorf("the service %s already exists and belongs to %s (set adopt: true to take it over)", name, ownerShown(owner)))
	}
	if by := controllerOf(a.service); by != types.DeploymentControllerTypeEcs {
		return runtimes.Permanent(fmt.Errorf("the service %s uses the deployment controller %s; expected ECS. It cannot be changed: delete the service, or choose another name", name, by))
	}
	return a.fenced()
}

// fenced refuses a write if the service has a later fence.
func (a *apply) fenced() error {
	stands := fenceOf(a.service.Tags)
	if a.in.Fence == nil || stands == nil || !stands.Stops(*a.in.Fence) {
		return nil
	}
	return &runtimes.FencedError{By: *stands, Refused: *a.in.Fence}
}

func ownerShown(owner string) string {
	if owner == "" {
		return "an unknown owner"
	}
	return owner
}

func controllerOf(s *types.Service) types.DeploymentControllerType {
	if s.DeploymentController == nil || s.DeploymentController.Type == "" {
		return types.DeploymentControllerTypeEcs
	}
	return s.DeploymentController.Type
}

// register registers the task definition, and reads the service again, since the registration may take a while.
func (a *apply) register(ctx context.Context) (*definition, error) {
	made, err := a.cluster.register(ctx, a.in.Owner, a.in.FullVersion, a.want)
	if err != nil {
		return nil, err
	}
	a.say("registered the task definition %s", short(made.arn))
	return made, a.look(ctx)
}

// tags are the target tags of the service.
func (a *apply) tags() []types.Tag {
	tags := append(slices.Clone(a.want.service.Tags),
		tag(TagOwner, a.in.Owner.Key()), tag(TagVersion, encodeVersion(a.in.FullVersion)), tag(TagService, a.want.serviceHash))
	if a.in.Fence != nil {
		tags = append(tags, tag(TagFence, encodeFence(*a.in.Fence)))
	}
	if left := leftTag(a.left); left != "" {
		tags = append(tags, tag(TagLeft, left))
	}
	return tags
}

func (a *apply) write(ctx context.Context, made *definition) error {
	client, err := a.cluster.account.client(ctx)
	if err != nil {
		return err
	}
	if a.service == nil || len(lacking(a.tags(), a.service.Tags)) > 0 {
		a.lookForOthers(ctx)
	}
	if a.service == nil {
		return a.create(ctx, client, made)
	}
	change, fields, err := a.changes(made)
	if err != nil {
		return err
	}
	if err := a.label(ctx, client); err != nil {
		return err
	}
	if change == nil {
		return nil
	}
	out, err := call(ctx, a.cluster, serviceWrites, client.UpdateService, change)
	if err != nil {
		return err
	}
	out.Service.Tags = a.service.Tags // the answer does not contain them
	a.cluster.wrote(a.want.name(), a.service, out.Service)
	a.say("updated the service %s: %s", a.want.name(), strings.Join(fields, ", "))
	return nil
}

// create creates the service. The token makes a retry after a lost answer safe.
func (a *apply) create(ctx context.Context, client *ecs.Client, made *definition) error {
	in := *a.want.service
	token := a.token(made)
	in.Cluster, in.TaskDefinition, in.ClientToken, in.Tags = &a.cluster.name, &made.arn, &token, a.tags()
	if in.DesiredCount == nil && in.SchedulingStrategy != types.SchedulingStrategyDaemon {
		one := int32(1) // ECS requires a number; the scaler of the service may change it
		in.DesiredCount = &one
	}
	out, err := call(ctx, a.cluster, serviceWrites, client.CreateService, &in)
	if err != nil {
		return err
	}
	out.Service.Tags = in.Tags
	a.cluster.wrote(a.want.name(), nil, out.Service)
	a.say("created the service %s with %s", a.want.name(), short(made.arn))
	return nil
}

func (a *apply) token(made *definition) string {
	fence := ""
	if a.in.Fence != nil {
		fence = encodeFence(*a.in.Fence)
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{a.in.Owner.Key(), a.in.FullVersion, made.arn, a.want.serviceHash, fence}, "\n")))
	const length = 32 // the limit of ECS
	return hex.EncodeToString(sum[:])[:length]
}

// label writes the tags that differ: the fence comes before the service itself.
func (a *apply) label(ctx context.Context, client *ecs.Client) error {
	missing := lacking(a.tags(), a.service.Tags)
	if len(missing) == 0 {
		return nil
	}
	if _, err := call(ctx, a.cluster, tagWrites, client.TagResource, &ecs.TagResourceInput{ResourceArn: a.service.ServiceArn, Tags: missing}); err != nil {
		return err
	}
	labelled := *a.service
	labelled.Tags = slices.DeleteFunc(slices.Clone(a.service.Tags), func(t types.Tag) bool { return valueOf(missing, text(t.Key)) != "" })
	labelled.Tags = append(labelled.Tags, missing...)
	a.cluster.wrote(a.want.name(), a.service, &labelled)
	a.service = &labelled
	return nil
}

// changes is the update that makes the service equal to the declaration, and the fields in it; nil: the service is already equal.
func (a *apply) changes(made *definition) (*ecs.UpdateServiceInput, []string, error) {
	document := map[string]any{}
	for _, name := range a.want.unlike(a.service) {
		if _, ok := reflect.TypeFor[ecs.UpdateServiceInput]().FieldByName(strings.ToUpper(name[:1]) + name[1:]); !ok {
			return nil, nil, runtimes.Permanent(fmt.Errorf("%s of the service %s cannot be changed (there it is %s): delete the service, or name another",
				name, a.want.name(), shown(there(a.service)[name])))
		}
		document[name] = a.want.serviceFields[name]
	}
	if text(a.service.TaskDefinition) != made.arn {
		document["taskDefinition"] = made.arn
	}
	if a.in.Restart {
		document["forceNewDeployment"] = true
	}
	if len(document) == 0 {
		return nil, nil, nil
	}
	fields := slices.Sorted(maps.Keys(document))
	change := &ecs.UpdateServiceInput{}
	if _, err := decode([]byte(shown(document)), change); err != nil {
		return nil, nil, runtimes.Permanent(err)
	}
	change.Cluster, change.Service = &a.cluster.name, a.want.service.ServiceName
	return change, fields, nil
}

// unlike lists the declared fields of a service that differ.
func (d *declared) unlike(s *types.Service) []string {
	var names []string
	live := there(s)
	for name, wanted := range d.compared() {
		if !same(wanted, live[name]) {
			names = append(names, name)
		}
	}
	if d.hidden() && valueOf(s.Tags, TagService) != d.serviceHash {
		for _, name := range unseen {
			if d.serviceFields[name] != nil {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// there is a service as a document. Some of its fields are those of its PRIMARY deployment.
func there(s *types.Service) map[string]any {
	document, _ := plain(reflect.ValueOf(*s)).(map[string]any)
	if d := primaryOf(s); d != nil {
		of, _ := plain(reflect.ValueOf(*d)).(map[string]any)
		for _, name := range []string{"serviceConnectConfiguration", "volumeConfigurations", "vpcLatticeConfigurations"} {
			document[name] = of[name]
		}
	}
	return document
}

// prune deregisters unused revisions. Its errors affect nothing else: the next apply tries again.
func (a *apply) prune(ctx context.Context, made *definition) {
	gone, err := a.cluster.prune(ctx, a.in.Owner, a.want.family(), append(definitionsOf(a.service), made.arn), keptRevisions)
	if len(gone) > 0 {
		a.say("deregistered %s", strings.Join(gone, ", "))
	}
	if err != nil {
		a.say("older task definitions were not deregistered: %s", plainly(err))
	}
}
