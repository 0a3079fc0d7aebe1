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
	in             runtimes.Request
	want           *declared
	service        *types.Service // the current service; nil: it does not exist
	actions        []string
	formerServices []string // services of the instance with other names
}

// Apply implements runtimes.Runtime. It finds the task definition by its content, or registers it. It creates the service, or
// updates the fields that differ. ECS then does the rollout. If nothing differs, it writes nothing.
func (r *Runtime) Apply(ctx context.Context, in runtimes.Request) (runtimes.Output, error) {
	started := time.Now()
	a := &apply{Runtime: r, in: in}
	err := explain("", a.run(ctx))
	out := runtimes.Output{
		Command: fmt.Sprintf("ecs apply %s to %s of cluster %s", in.FullVersion, in.Service, r.cluster.name),
		Stdout:  strings.Join(append(a.actions, ""), "\n"), Started: started, Duration: time.Since(started),
	}
	if err != nil {
		out.ExitCode, out.Stderr = 1, err.Error()
	}
	return out, err
}

func (a *apply) logf(format string, args ...any) {
	a.actions = append(a.actions, fmt.Sprintf(format, args...))
}

func (a *apply) run(ctx context.Context) (err error) {
	if a.in.Payload == nil {
		return runtimes.Permanent(errors.New("the payload is missing"))
	}
	if a.want, err = declare(a.in.Payload); err != nil {
		return err
	}
	if err := a.readService(ctx); err != nil {
		return err
	}
	running := ""
	if a.service != nil {
		running = text(a.service.TaskDefinition)
	}
	revision, err := a.cluster.findRevision(ctx, a.in.Owner, a.want, running)
	if err != nil {
		return err
	}
	if revision == nil {
		if revision, err = a.adoptRevision(ctx, running); err != nil {
			return err
		}
	}
	if revision == nil {
		if revision, err = a.register(ctx); err != nil {
			return err
		}
	}
	if err := a.write(ctx, revision); err != nil {
		return err
	}
	if a.want.prune {
		a.prune(ctx, revision)
	}
	return nil
}

// readService reads the current service, waits while it is being deleted, and refuses a service that may not be written.
func (a *apply) readService(ctx context.Context) (err error) {
	reason := ""
	for {
		a.service, err = a.cluster.read(ctx, a.in.Owner, a.want.name(), time.Now())
		if err == nil && (a.service == nil || text(a.service.Status) != statusDraining) {
			return a.checkWritable()
		}
		if err == nil {
			reason = fmt.Sprintf("the service %s is still DRAINING and cannot be created again yet: ", a.want.name())
			err = pause(ctx, a.cluster.timing.drainPollInterval)
		}
		if err != nil {
			return fmt.Errorf("%s%w", reason, err)
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

// checkWritable refuses a service of another owner, one whose rollouts another controller does, and one with a later fence.
func (a *apply) checkWritable() error {
	if a.service == nil {
		return nil
	}
	name := a.want.name()
	owner := valueOf(a.service.Tags, TagOwner)
	switch {
	case owner == a.in.Owner.Key():
	case a.want.adopt:
		a.logf("adopted the service %s from %s", name, ownerText(owner))
	default:
		return runtimes.Permanent(fmt.Errorf("the service %s already exists and belongs to %s (set adopt: true to take it over)", name, ownerText(owner)))
	}
	if by := controllerOf(a.service); by != types.DeploymentControllerTypeEcs {
		return runtimes.Permanent(fmt.Errorf("the service %s uses the deployment controller %s; expected ECS. It cannot be changed: delete the service, or choose another name", name, by))
	}
	return a.checkFence()
}

// checkFence refuses a write if the service has a later fence.
func (a *apply) checkFence() error {
	recorded := fenceOf(a.service.Tags)
	if a.in.Fence == nil || recorded == nil || !recorded.Rejects(*a.in.Fence) {
		return nil
	}
	return &runtimes.FencedError{By: *recorded, Refused: *a.in.Fence}
}

func ownerText(owner string) string {
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
	revision, err := a.cluster.register(ctx, a.in.Owner, a.in.FullVersion, a.want)
	if err != nil {
		return nil, err
	}
	a.logf("registered the task definition %s", short(revision.arn))
	return revision, a.readService(ctx)
}

// tags are the target tags of the service.
func (a *apply) tags() []types.Tag {
	tags := append(slices.Clone(a.want.service.Tags),
		tag(TagOwner, a.in.Owner.Key()), tag(TagVersion, encodeVersion(a.in.FullVersion)), tag(TagService, a.want.serviceHash))
	if a.in.Fence != nil {
		tags = append(tags, tag(TagFence, encodeFence(*a.in.Fence)))
	}
	if former := formerServicesTag(a.formerServices); former != "" {
		tags = append(tags, tag(TagFormerServices, former))
	}
	return tags
}

func (a *apply) write(ctx context.Context, revision *definition) error {
	client, err := a.cluster.account.client(ctx)
	if err != nil {
		return err
	}
	if a.service == nil || len(missingTags(a.tags(), a.service.Tags)) > 0 {
		a.findFormerServices(ctx)
	}
	if a.service == nil {
		return a.create(ctx, client, revision)
	}
	change, fields, err := a.changes(revision)
	if err != nil {
		return err
	}
	if err := a.writeTags(ctx, client); err != nil {
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
	a.cluster.recordWrite(a.want.name(), a.service, out.Service)
	a.logf("updated the service %s: %s", a.want.name(), strings.Join(fields, ", "))
	return nil
}

// create creates the service. The token makes a retry after a lost answer safe.
func (a *apply) create(ctx context.Context, client *ecs.Client, revision *definition) error {
	in := *a.want.service
	token := a.clientToken(revision)
	in.Cluster, in.TaskDefinition, in.ClientToken, in.Tags = &a.cluster.name, &revision.arn, &token, a.tags()
	if in.DesiredCount == nil && in.SchedulingStrategy != types.SchedulingStrategyDaemon {
		one := int32(1) // ECS requires a number; the scaler of the service may change it
		in.DesiredCount = &one
	}
	out, err := call(ctx, a.cluster, serviceWrites, client.CreateService, &in)
	if err != nil {
		return err
	}
	out.Service.Tags = in.Tags
	a.cluster.recordWrite(a.want.name(), nil, out.Service)
	a.logf("created the service %s with %s", a.want.name(), short(revision.arn))
	return nil
}

func (a *apply) clientToken(revision *definition) string {
	fence := ""
	if a.in.Fence != nil {
		fence = encodeFence(*a.in.Fence)
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{a.in.Owner.Key(), a.in.FullVersion, revision.arn, a.want.serviceHash, fence}, "\n")))
	const length = 32 // the limit of ECS
	return hex.EncodeToString(sum[:])[:length]
}

// writeTags writes the tags that differ: the fence comes before the service itself.
func (a *apply) writeTags(ctx context.Context, client *ecs.Client) error {
	missing := missingTags(a.tags(), a.service.Tags)
	if len(missing) == 0 {
		return nil
	}
	if _, err := call(ctx, a.cluster, tagWrites, client.TagResource, &ecs.TagResourceInput{ResourceArn: a.service.ServiceArn, Tags: missing}); err != nil {
		return err
	}
	labelled := *a.service
	labelled.Tags = slices.DeleteFunc(slices.Clone(a.service.Tags), func(t types.Tag) bool { return valueOf(missing, text(t.Key)) != "" })
	labelled.Tags = append(labelled.Tags, missing...)
	a.cluster.recordWrite(a.want.name(), a.service, &labelled)
	a.service = &labelled
	return nil
}

// changes is the update that makes the service equal to the declaration, and the fields in it; nil: the service is already equal.
func (a *apply) changes(revision *definition) (*ecs.UpdateServiceInput, []string, error) {
	document := map[string]any{}
	for _, name := range a.want.throughStrategy(a.want.differingFields(a.service), a.service) {
		if _, ok := reflect.TypeFor[ecs.UpdateServiceInput]().FieldByName(strings.ToUpper(name[:1]) + name[1:]); !ok {
			return nil, nil, runtimes.Permanent(fmt.Errorf("%s of the service %s cannot be changed (there it is %s): delete the service, or name another",
				name, a.want.name(), jsonText(serviceDocument(a.service)[name])))
		}
		document[name] = a.want.serviceFields[name]
	}
	if text(a.service.TaskDefinition) != revision.arn {
		document["taskDefinition"] = revision.arn
	}
	if a.in.Restart {
		document[fieldForce] = true
	}
	forceIfNeeded(document)
	if len(document) == 0 {
		return nil, nil, nil
	}
	fields := slices.Sorted(maps.Keys(document))
	change := &ecs.UpdateServiceInput{}
	if _, err := decode([]byte(jsonText(document)), change); err != nil {
		return nil, nil, runtimes.Permanent(err)
	}
	change.Cluster, change.Service = &a.cluster.name, a.want.service.ServiceName
	return change, fields, nil
}

// differingFields lists the declared fields of a service that differ.
func (d *declared) differingFields(s *types.Service) []string {
	var names []string
	live := serviceDocument(s)
	for name, wanted := range d.compared() {
		if !same(wanted, live[name]) {
			names = append(names, name)
		}
	}
	if d.hasUnreadableFields() && valueOf(s.Tags, TagService) != d.serviceHash {
		for _, name := range unreadableFields {
			if d.serviceFields[name] != nil {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// serviceDocument is a service as a document. Some of its fields are those of its PRIMARY deployment.
func serviceDocument(s *types.Service) map[string]any {
	document, _ := toDocument(reflect.ValueOf(*s)).(map[string]any)
	if d := primaryOf(s); d != nil {
		deployment, _ := toDocument(reflect.ValueOf(*d)).(map[string]any)
		for _, name := range []string{"serviceConnectConfiguration", "volumeConfigurations", "vpcLatticeConfigurations"} {
			document[name] = deployment[name]
		}
	}
	return document
}

// prune deregisters unused revisions. Its errors affect nothing else: the next apply tries again.
func (a *apply) prune(ctx context.Context, revision *definition) {
	deregistered, err := a.cluster.prune(ctx, a.in.Owner, a.want.family(), append(definitionsOf(a.service), revision.arn), keptRevisions)
	if len(deregistered) > 0 {
		a.logf("deregistered %s", strings.Join(deregistered, ", "))
	}
	if err != nil {
		a.logf("older task definitions were not deregistered: %s", shortMessage(err))
	}
}
