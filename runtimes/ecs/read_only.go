package ecs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// readOnly is a cluster with access: read. Another tool deploys there, so nothing has our tags: a revision is recognised by its content.
type readOnly struct{ runtime *Runtime }

var (
	_ runtimes.Runtime = (*readOnly)(nil)
	_ runtimes.Watcher = (*readOnly)(nil)
	_ runtimes.Planner = (*readOnly)(nil)
)

// errReadOnly is a call that was not made.
var errReadOnly = errors.New("nothing is changed")

// Apply implements runtimes.Runtime: it is refused.
func (r *readOnly) Apply(context.Context, runtimes.Request) (runtimes.Output, error) {
	return runtimes.Output{ExitCode: 1}, runtimes.Permanent(fmt.Errorf("runtime %s has access: read: nothing is applied there", r.runtime.def.Name))
}

// Watch implements runtimes.Watcher.
func (r *readOnly) Watch(hint func(runtimes.Owner)) (stop func()) { return r.runtime.Watch(hint) }

// Observe implements runtimes.Runtime. A service whose task definition equals the declared one has the observed version, regardless of
// who registered it; the version of another one is unknown. Former services of the instance are not reported.
func (r *readOnly) Observe(ctx context.Context, in runtimes.Request) ([]entities.Object, error) {
	if err := ctx.Err(); err != nil || in.Payload == nil {
		return nil, err
	}
	object, err := r.observe(ctx, in)
	if err != nil {
		return nil, readingError("observe "+in.Owner.String(), err)
	}
	return []entities.Object{object}, nil
}

func (r *readOnly) observe(ctx context.Context, in runtimes.Request) (entities.Object, error) {
	want, err := declareForOthers(in.Payload)
	if err != nil {
		return entities.Object{}, err
	}
	cluster := r.runtime.cluster
	ob := &observation{Runtime: r.runtime, in: in, want: want, definitions: map[string]*definition{}}
	if ob.service, err = cluster.read(ctx, in.Owner, want.name(), time.Now().Add(-cluster.timing.maxAge)); err != nil {
		return entities.Object{}, err
	}
	if ob.service == nil {
		return ob.object(ctx)
	}
	for _, arn := range definitionsOf(ob.service) {
		if ob.definitions[arn], err = r.recognise(ctx, in, want, arn); err != nil {
			return entities.Object{}, err
		}
	}
	o := entities.Object{Name: want.name(), Type: "Service", Status: entities.ObjectPending}
	return o, ob.describe(ctx, &o)
}

// recognise describes a revision, as that of the observed version if it equals the declared one.
func (r *readOnly) recognise(ctx context.Context, in runtimes.Request, want *declared, arn string) (*definition, error) {
	known, err := r.runtime.cluster.describeRevision(ctx, arn)
	if err != nil {
		return nil, err
	}
	client, err := r.runtime.cluster.account.client(ctx)
	if err != nil {
		return nil, err
	}
	out, err := call(ctx, r.runtime.cluster, definitionReads, client.DescribeTaskDefinition, &ecs.DescribeTaskDefinitionInput{TaskDefinition: &arn})
	if err != nil {
		return nil, err
	}
	seen := *known
	seen.owner, seen.hash, seen.version = "", "", ""
	if want.matches(out.TaskDefinition) {
		seen.owner, seen.hash, seen.version = in.Owner.Key(), want.hash, in.FullVersion
	}
	return &seen, nil
}

// Plan implements runtimes.Planner: the changes of an adoption.
func (r *readOnly) Plan(ctx context.Context, in runtimes.Request) ([]runtimes.Change, error) {
	if err := ctx.Err(); err != nil || in.Payload == nil {
		return nil, err
	}
	want, err := declareForOthers(in.Payload)
	if err != nil {
		return nil, planError(in, err)
	}
	a := &apply{Runtime: r.runtime, in: in, want: want}
	return a.plan(ctx)
}

// declareForOthers reads a payload for the comparison with a service of another owner. Of that one, no tag shows whether the fields that
// DescribeServices does not return are as declared.
func declareForOthers(p *entities.Payload) (*declared, error) {
	want, err := declare(p)
	if err != nil {
		return nil, err
	}
	want.serviceFields, want.adopt = want.compared(), true
	return want, nil
}
