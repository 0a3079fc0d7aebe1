package ecs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// observation is one call of Observe.
type observation struct {
	*Runtime
	in                 runtimes.Request
	want               *declared
	service            *types.Service
	definitions        map[string]*definition // of the deployments, by ARN
	rolledBackRevision string                 // the revision that ECS rolled back
}

// Observe implements runtimes.Runtime from the shared readings of the cluster. A missing or INACTIVE service is an object without
// versions.
func (r *Runtime) Observe(ctx context.Context, in runtimes.Request) ([]entities.Object, error) {
	if err := ctx.Err(); err != nil || in.Payload == nil {
		return nil, err
	}
	action := "observe " + in.Owner.String()
	want, err := declare(in.Payload)
	if err != nil {
		return nil, readingError(action, err)
	}
	ob := &observation{Runtime: r, in: in, want: want, definitions: map[string]*definition{}}
	if ob.service, err = r.cluster.read(ctx, in.Owner, want.name(), time.Now().Add(-r.cluster.timing.maxAge)); err != nil {
		return nil, readingError(action, err)
	}
	if in.ReportOnly && ob.service != nil && valueOf(ob.service.Tags, TagOwner) == "" {
		return (&readOnly{r}).Observe(ctx, in)
	}
	object, err := ob.object(ctx)
	if err != nil {
		return nil, readingError(action, err)
	}
	if !ob.isOwned() {
		return []entities.Object{object}, nil
	}
	all, err := ob.formerServices(ctx)
	if err != nil {
		return nil, readingError(action, err)
	}
	if isStaged(ob.service) {
		if stage := stageObject(ob.service, ob.cluster.stageOf(ctx, ob.service)); stage != nil {
			all = append(all, *stage)
		}
	}
	return append([]entities.Object{object}, all...), nil
}

// isOwned reports whether the service exists and belongs to the instance.
func (ob *observation) isOwned() bool {
	return ob.service != nil && valueOf(ob.service.Tags, TagOwner) == ob.in.Owner.Key()
}

// object reports the service.
func (ob *observation) object(ctx context.Context) (entities.Object, error) {
	o := entities.Object{Name: ob.want.name(), Type: "Service", Status: entities.ObjectPending}
	if ob.service == nil {
		o.Message = fmt.Sprintf("the service does not exist on the cluster %s: it was not created yet, or was deleted", ob.cluster.name)
		return o, nil
	}
	if !ob.isOwned() {
		o.Message = "it exists, and belongs to " + ownerText(valueOf(ob.service.Tags, TagOwner))
		return o, nil
	}
	for _, arn := range definitionsOf(ob.service) {
		d, err := ob.cluster.describeRevision(ctx, arn)
		if err != nil {
			return o, err
		}
		ob.definitions[arn] = d
	}
	return o, ob.describe(ctx, &o)
}

// describe adds the versions and the health of the service. The definitions of its deployments are known.
func (ob *observation) describe(ctx context.Context, o *entities.Object) error {
	o.Versions, o.Links = ob.versions(), ob.links()
	o.Status, o.Message = ob.health()
	if err := ob.judge(ctx, o); err != nil {
		return err
	}
	o.Events = ob.events()
	if o.Status != entities.ObjectSucceeded {
		stopped := ob.cluster.stoppedTasks(ctx, ob.service, ob.rolledBackRevision)
		o.Events = append(o.Events, stopped...)
		if len(stopped) > 0 {
			o.Message = strings.TrimPrefix(strings.TrimSuffix(o.Message, ".")+"; "+stopped[0].Message, "; ")
		}
	}
	return nil
}

// versions are those of the deployments: the PRIMARY one, and the others as long as their tasks run.
func (ob *observation) versions() []entities.ObjectVersion {
	var all []entities.ObjectVersion
	for _, d := range primaryFirst(ob.service) {
		primary := text(d.Status) == "PRIMARY"
		v := entities.ObjectVersion{
			Version: ob.versionOf(text(d.TaskDefinition)), Active: primary || d.RunningCount+d.PendingCount > 0,
			Replicas: int(d.RunningCount + d.PendingCount), AvailableReplicas: int(d.RunningCount),
		}
		if primary {
			v.TargetReplicas = int(d.DesiredCount)
		}
		at := slices.IndexFunc(all, func(o entities.ObjectVersion) bool { return o.Version == v.Version })
		if at < 0 {
			all = append(all, v)
			continue
		}
		all[at].Active = all[at].Active || v.Active
		all[at].Replicas += v.Replicas
		all[at].AvailableReplicas += v.AvailableReplicas
	}
	return all
}

func primaryFirst(s *types.Service) []types.Deployment {
	all := slices.Clone(s.Deployments)
	slices.SortStableFunc(all, func(a, b types.Deployment) int {
		return strings.Compare(text(b.Status), text(a.Status)) // PRIMARY, then ACTIVE
	})
	return all
}

func primaryOf(s *types.Service) *types.Deployment {
	for i := range s.Deployments {
		if text(s.Deployments[i].Status) == "PRIMARY" {
			return &s.Deployments[i]
		}
	}
	return nil
}

// versionOf is the version of a revision: the observed version if the content is equal, otherwise the version for which it was
// registered. The version of another owner's revision is unknown.
func (ob *observation) versionOf(arn string) string {
	d := ob.definitions[arn]
	switch {
	case d == nil || d.owner != ob.in.Owner.Key():
		return ""
	case d.hash == ob.want.hash:
		return ob.in.FullVersion
	}
	return d.version
}

// runsTarget reports whether a deployment runs the observed version.
func (ob *observation) runsTarget(d *types.Deployment) bool {
	known := ob.definitions[text(d.TaskDefinition)]
	return known != nil && known.matches(ob.in.Owner, ob.want)
}

// health is the state of the service's PRIMARY deployment, without regard to the declaration. A missing rollout state is neutral.
func (ob *observation) health() (entities.ObjectStatus, string) {
	s, p := ob.service, primaryOf(ob.service)
	switch {
	case text(s.Status) == statusDraining:
		return entities.ObjectPending, "it is being deleted (DRAINING); it can be created again after its tasks end"
	case controllerOf(s) != types.DeploymentControllerTypeEcs:
		return entities.ObjectFailed, fmt.Sprintf("it uses the deployment controller %s; expected ECS", controllerOf(s))
	case p == nil:
		return entities.ObjectPending, "it has no PRIMARY deployment"
	case p.RolloutState == types.DeploymentRolloutStateFailed:
		return entities.ObjectFailed, text(p.RolloutStateReason)
	case p.RolloutState == types.DeploymentRolloutStateInProgress:
		return entities.ObjectPending, rolloutMessage(p)
	case p.RunningCount != p.DesiredCount || p.PendingCount > 0:
		return entities.ObjectPending, fmt.Sprintf("%d of %d tasks run", p.RunningCount, p.DesiredCount)
	}
	for _, d := range s.Deployments {
		if text(d.Id) != text(p.Id) && d.RunningCount+d.PendingCount > 0 {
			return entities.ObjectPending, fmt.Sprintf("%d tasks of %s still run", d.RunningCount+d.PendingCount, short(text(d.TaskDefinition)))
		}
	}
	return entities.ObjectSucceeded, ""
}

func rolloutMessage(p *types.Deployment) string {
	line := fmt.Sprintf("%s is being deployed: %d of %d tasks run", short(text(p.TaskDefinition)), p.RunningCount, p.DesiredCount)
	if p.FailedTasks > 0 {
		line += fmt.Sprintf(", %d failed to start", p.FailedTasks)
	}
	return line
}

// judge marks the observed version as failed if ECS rolled it back, and as drifted if the service is not as declared.
func (ob *observation) judge(ctx context.Context, o *entities.Object) error {
	p := primaryOf(ob.service)
	if p == nil || ob.in.FullVersion == "" || text(ob.service.Status) == statusDraining {
		return nil
	}
	drift := ob.drift()
	if ob.runsTarget(p) && drift == "" {
		return nil
	}
	reason, err := ob.findRollback(ctx)
	if err != nil {
		return err
	}
	switch {
	case reason != "":
		o.Status, o.Message = entities.ObjectFailed, reason
		if !ob.runsTarget(p) && !slices.ContainsFunc(o.Versions, func(v entities.ObjectVersion) bool { return v.Version == ob.in.FullVersion }) {
			o.Versions = append(o.Versions, entities.ObjectVersion{Version: ob.in.FullVersion})
		}
	case ob.runsTarget(p):
		o.Versions[0].Drifted = true
		o.Message = strings.TrimPrefix(o.Message+"; not as declared: "+drift, "; ")
	}
	if !ob.runsTarget(p) && o.Message == "" {
		o.Message = ob.runningMessage(p)
	}
	return nil
}

// findRollback is why ECS rolled back the observed version; empty: it did not. While its tasks exist, its deployment has the reason;
// later only the service deployment has it.
func (ob *observation) findRollback(ctx context.Context) (string, error) {
	for i := range ob.service.Deployments {
		if d := &ob.service.Deployments[i]; ob.runsTarget(d) && d.RolloutState == types.DeploymentRolloutStateFailed {
			ob.rolledBackRevision = text(d.TaskDefinition)
			return "rolled back by ECS: " + text(d.RolloutStateReason), nil
		}
	}
	found, err := ob.cluster.rolledBack(ctx, ob.service, ob.in.Owner, ob.want)
	if found.reason != "" {
		ob.rolledBackRevision = found.definition
	}
	return found.reason, err
}

// runningMessage names the running revision if it is not the observed one.
func (ob *observation) runningMessage(p *types.Deployment) string {
	line := "it runs " + short(text(p.TaskDefinition))
	if d := ob.definitions[text(p.TaskDefinition)]; d == nil || d.owner != ob.in.Owner.Key() {
		line += ", which another owner registered"
		if p.CreatedAt != nil {
			line += " and deployed at " + p.CreatedAt.UTC().Format(timeFormat)
		}
	}
	return line
}

// timeFormat is the format of times in messages.
const timeFormat = "15:04 UTC"

// drift names the declared fields that differ.
func (ob *observation) drift() string {
	var all []string
	live := serviceDocument(ob.service)
	for _, name := range ob.want.differingFields(ob.service) {
		for _, d := range differences(name, ob.want.serviceFields[name], live[name]) {
			all = append(all, fmt.Sprintf("%s is %s, declared %s", d.Path, orNotSet(d.Old), d.New))
		}
	}
	const shownFields = 3
	if more := len(all) - shownFields; more > 0 {
		all = append(all[:shownFields], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, ", ")
}

func orNotSet(s string) string {
	if s == "" {
		return "not set"
	}
	return s
}

// events are the newest events of the service.
func (ob *observation) events() (all []entities.Event) {
	for _, e := range ob.service.Events[:min(len(ob.service.Events), runtimes.MaxEvents)] {
		if e.CreatedAt != nil {
			all = append(all, entities.Event{Timestamp: e.CreatedAt.UTC(), Message: text(e.Message)})
		}
	}
	return all
}
