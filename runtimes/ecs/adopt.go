package ecs

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/converge-engine/converge/runtimes"
)

// A service that was created by hand is adopted without a change: if its task definition equals the declaration, that revision gets
// our tags instead of a new registration, so no rollout happens. The revision stays the property of the one who registered it: it is
// never deregistered.

// adoptRevision tags the running revision for the owner if it has no owner and equals the declaration; otherwise it returns nil.
func (c *cluster) adoptRevision(ctx context.Context, owner runtimes.Owner, version string, d *declared, running string) (*definition, error) {
	known, err := c.describeRevision(ctx, running)
	if err != nil || known.owner != "" {
		return nil, err
	}
	client, err := c.account.client(ctx)
	if err != nil {
		return nil, err
	}
	out, err := call(ctx, c, definitionReads, client.DescribeTaskDefinition, &ecs.DescribeTaskDefinitionInput{TaskDefinition: &running})
	if err != nil || out.TaskDefinition.Status != types.TaskDefinitionStatusActive || !d.matches(out.TaskDefinition) {
		return nil, err
	}
	tags := []types.Tag{tag(TagOwner, owner.Key()), tag(TagDefinition, d.hash), tag(TagVersion, encodeVersion(version)), tag(TagAdopted, "true")}
	if _, err := call(ctx, c, tagWrites, client.TagResource, &ecs.TagResourceInput{ResourceArn: &running, Tags: tags}); err != nil {
		return nil, err
	}
	return c.account.store(out.TaskDefinition, tags, time.Time{}), nil
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
