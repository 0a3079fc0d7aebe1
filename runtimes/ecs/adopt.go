package ecs

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// The running revision of a service that is adopted, or that an earlier owner or another release of Converge registered, is recognised by its
// content: if it equals the declaration, it gets our tags instead of a new registration, so no rollout happens. A revision of another owner
// stays the property of the one who registered it: it is never deregistered.

// recognise returns the running revision if it equals the declaration and may be ours; otherwise nil.
func (a *apply) recognise(ctx context.Context, running string) (*types.TaskDefinition, error) {
	if running == "" {
		return nil, nil
	}
	known, err := a.cluster.describeRevision(ctx, running)
	if err != nil || known.owner == "" && !a.want.adopt {
		return nil, err
	}
	client, err := a.cluster.account.client(ctx)
	if err != nil {
		return nil, err
	}
	out, err := call(ctx, a.cluster, definitionReads, client.DescribeTaskDefinition, &ecs.DescribeTaskDefinitionInput{TaskDefinition: &running})
	if err != nil || out.TaskDefinition.Status != types.TaskDefinitionStatusActive || !a.want.matches(out.TaskDefinition) {
		return nil, err
	}
	return out.TaskDefinition, nil
}

// adoptRevision tags the running revision for the owner if it is recognised; otherwise it returns nil.
func (a *apply) adoptRevision(ctx context.Context, running string) (*definition, error) {
	found, err := a.recognise(ctx, running)
	if err != nil || found == nil {
		return nil, err
	}
	known, err := a.cluster.describeRevision(ctx, running)
	if err != nil {
		return nil, err
	}
	client, err := a.cluster.account.client(ctx)
	if err != nil {
		return nil, err
	}
	tags := []types.Tag{tag(TagOwner, a.in.Owner.Key()), tag(TagDefinition, a.want.hash), tag(TagVersion, encodeVersion(a.in.FullVersion))}
	if known.adopted || known.owner != a.in.Owner.Key() {
		tags = append(tags, tag(TagAdopted, "true"))
	}
	if _, err := call(ctx, a.cluster, tagWrites, client.TagResource, &ecs.TagResourceInput{ResourceArn: &running, Tags: tags}); err != nil {
		return nil, err
	}
	a.logf("adopted the task definition %s unchanged", short(running))
	return a.cluster.account.store(found, tags, time.Time{}), nil
}

// matches reports whether a revision equals the declaration.
func (d *declared) matches(actual *types.TaskDefinition) bool {
	have, _ := dropDefaults(toDocument(reflect.ValueOf(*actual))).(map[string]any)
	want, _ := dropDefaults(d.definitionFields).(map[string]any)
	for _, name := range serverFields {
		delete(have, name)
	}
	delete(want, "tags")
	return hashOf(sortObjectLists(want).(map[string]any)) == hashOf(sortObjectLists(have).(map[string]any))
}

// sortObjectLists sorts lists of objects, whose order has no meaning. The order of lists of words stays, as in a command.
func sortObjectLists(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, one := range x {
			out[name] = sortObjectLists(one)
		}
		return out
	case []any:
		out := make([]any, len(x))
		allObjects := len(x) > 0
		for i, one := range x {
			out[i] = sortObjectLists(one)
			_, isObject := one.(map[string]any)
			allObjects = allObjects && isObject
		}
		if allObjects {
			slices.SortFunc(out, func(a, b any) int { return strings.Compare(hashOf(a.(map[string]any)), hashOf(b.(map[string]any))) })
		}
		return out
	}
	return v
}

// serverFields are the fields of a revision that ECS adds (API reference, TaskDefinition).
var serverFields = []string{"taskDefinitionArn", "revision", "status", "requiresAttributes", "compatibilities", "registeredAt", "registeredBy", "deregisteredAt", "deleteRequestedAt"}

// dropDefaults drops the values that equal their absence: empty ones, and the defaults of ECS.
func dropDefaults(v any) any {
	switch x := v.(type) {
	case map[string]any:
		return dropDefaultFields(x)
	case []any:
		var out []any
		for _, one := range x {
			if one = dropDefaults(one); one == nil {
				one = map[string]any{}
			}
			out = append(out, one)
		}
		if len(out) == 0 {
			return nil
		}
		return out
	}
	if v == nil || scalar(v) == "" {
		return nil
	}
	return v
}

func dropDefaultFields(fields map[string]any) any {
	out := map[string]any{}
	for name, one := range fields {
		switch kept := dropDefaults(one); {
		case kept != nil && !isDefault(name, kept, fields):
			out[name] = kept
		case kept == nil && one != nil && slices.Contains(significantWhenEmpty, name):
			out[name] = one
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// significantWhenEmpty are fields whose empty value differs from their absence.
var significantWhenEmpty = []string{"essential", "minimumHealthyPercent", "maxSwap", "swappiness", "softLimit", "hardLimit"}

// isDefault reports whether a value is a default of ECS (API reference, ContainerDefinition and PortMapping).
func isDefault(name string, v any, fields map[string]any) bool {
	switch name {
	case "essential":
		return v == true
	case "protocol":
		return v == "tcp"
	case "hostPort":
		return scalar(v) == scalar(fields["containerPort"])
	}
	return false
}

// DiscoveredService is a running service, as documents for a configuration.
type DiscoveredService struct {
	Name                string
	Definition, Service map[string]any
	Controller          types.DeploymentControllerType
	Owner               string // from our tags; empty: none
}

// Discover lists the running services of a cluster, by name, and changes nothing. It omits the defaults of AWS, and the current
// number of tasks.
func (r *Runtime) Discover(ctx context.Context) ([]DiscoveredService, error) {
	client, err := r.cluster.account.client(ctx)
	if err != nil {
		return nil, err
	}
	var all []DiscoveredService
	err = r.cluster.all(ctx, func(s *types.Service) error {
		found, err := r.describeService(ctx, client, s)
		if err == nil && text(s.Status) == "ACTIVE" {
			all = append(all, found)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b DiscoveredService) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func (r *Runtime) describeService(ctx context.Context, client *ecs.Client, s *types.Service) (DiscoveredService, error) {
	f := DiscoveredService{Name: text(s.ServiceName), Controller: controllerOf(s), Owner: valueOf(s.Tags, TagOwner)}
	f.Service = declarable(serviceDocument(s), reflect.TypeFor[ecs.CreateServiceInput](), "cluster", "taskDefinition", "clientToken", "tags", "desiredCount", "deploymentController", "role")
	if f.Service["schedulingStrategy"] == string(types.SchedulingStrategyReplica) {
		delete(f.Service, "schedulingStrategy")
	}
	if s.TaskDefinition == nil {
		return f, nil
	}
	out, err := call(ctx, r.cluster, definitionReads, client.DescribeTaskDefinition, &ecs.DescribeTaskDefinitionInput{TaskDefinition: s.TaskDefinition})
	if err != nil {
		return f, err
	}
	document, _ := toDocument(reflect.ValueOf(*out.TaskDefinition)).(map[string]any)
	f.Definition = declarable(document, reflect.TypeFor[ecs.RegisterTaskDefinitionInput](), "tags")
	return f, nil
}

// declarable is the part of a document that an input type has fields for, without some of them.
func declarable(document map[string]any, input reflect.Type, excluded ...string) map[string]any {
	kept, _ := dropDefaults(document).(map[string]any)
	for name := range kept {
		if _, ok := input.FieldByName(strings.ToUpper(name[:1]) + name[1:]); !ok || slices.Contains(excluded, name) {
			delete(kept, name)
		}
	}
	return kept
}
