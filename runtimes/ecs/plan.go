package ecs

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"

	"github.com/converge-engine/converge/runtimes"
)

// Plan implements runtimes.Planner. It compares the task definition to register with the running one.
func (r *Runtime) Plan(ctx context.Context, in runtimes.Request) ([]runtimes.Change, error) {
	if err := ctx.Err(); err != nil || in.Payload == nil {
		return nil, err
	}
	a := &apply{Runtime: r, in: in}
	var err error
	if a.want, err = declare(in.Payload); err != nil {
		return nil, planError(in, err)
	}
	return a.plan(ctx)
}

func planError(in runtimes.Request, err error) error {
	return readingError("plan "+in.FullVersion+" in "+in.Owner.String(), err)
}

func (a *apply) plan(ctx context.Context) ([]runtimes.Change, error) {
	changes, err := a.planChanges(ctx)
	if err != nil {
		return nil, planError(a.in, err)
	}
	return changes, nil
}

func (a *apply) planChanges(ctx context.Context) (changes []runtimes.Change, err error) {
	if a.service, err = a.cluster.read(ctx, a.in.Owner, a.want.name(), time.Now().Add(-a.cluster.timing.maxAge)); err != nil {
		return nil, err
	}
	running := ""
	if a.service != nil {
		running = text(a.service.TaskDefinition)
	}
	revision, err := a.cluster.findRevision(ctx, a.in.Owner, a.want, running)
	if err != nil {
		return nil, err
	}
	if revision == nil {
		recognised, err := a.recognise(ctx, running)
		if err != nil {
			return nil, err
		}
		if recognised != nil {
			revision = &definition{arn: running}
		}
	}
	if revision == nil {
		change := runtimes.Change{Action: runtimes.ActionCreate, Type: "TaskDefinition", Name: a.want.family()}
		if change.Fields, err = a.definitionChanges(ctx, running); err != nil {
			return nil, err
		}
		changes = append(changes, change)
	}
	if change := a.serviceChange(revision); change != nil {
		changes = append(changes, *change)
	}
	return changes, nil
}

// definitionChanges are the differences of a new task definition from the running one.
func (a *apply) definitionChanges(ctx context.Context, running string) ([]runtimes.FieldChange, error) {
	if running == "" {
		return nil, nil
	}
	client, err := a.cluster.account.client(ctx)
	if err != nil {
		return nil, err
	}
	out, err := call(ctx, a.cluster, definitionReads, client.DescribeTaskDefinition, &ecs.DescribeTaskDefinitionInput{TaskDefinition: &running})
	if err != nil {
		return nil, err
	}
	live, _ := toDocument(reflect.ValueOf(*out.TaskDefinition)).(map[string]any)
	wanted := map[string]any{}
	for name, v := range a.want.definitionFields {
		if name != "tags" {
			wanted[name] = v
		}
	}
	return differences("", wanted, live), nil
}

// serviceChange is the change of the service; nil: none.
func (a *apply) serviceChange(revision *definition) *runtimes.Change {
	change := &runtimes.Change{Action: runtimes.ActionCreate, Type: "Service", Name: a.want.name()}
	if a.service == nil || text(a.service.Status) == statusDraining {
		return change
	}
	if err := a.checkWritable(); err != nil {
		change.Action, change.Message = runtimes.ActionRefuse, err.Error()
		return change
	}
	if revision == nil {
		revision = &definition{arn: a.want.family() + ":new"}
	}
	update, fields, err := a.changes(revision)
	if err != nil {
		change.Action, change.Message = runtimes.ActionRefuse, err.Error()
		return change
	}
	if update == nil {
		return nil
	}
	change.Action, change.Replaces = runtimes.ActionUpdate, replacedTasks(fields)
	live := serviceDocument(a.service)
	if slices.Contains(fields, fieldStrategy) {
		change.Message = replacesTasks
	}
	for _, name := range fields {
		if name == "taskDefinition" {
			change.Fields = append(change.Fields, runtimes.FieldChange{Path: name, Old: jsonText(short(text(a.service.TaskDefinition))), New: jsonText(short(revision.arn))})
			continue
		}
		change.Fields = append(change.Fields, differences(name, a.want.serviceFields[name], live[name])...)
	}
	return change
}
