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

// A service that somebody made by hand is taken over as it is: where its task definition says what is declared, that revision is
// given our tags instead of being registered once more, so that nothing is rolled. It stays theirs who registered it: it is never
// deregistered.

// takeOver makes the revision that runs the owner's, where it belongs to nobody and says what is declared; nil: it does not.
func (c *cluster) takeOver(ctx context.Context, owner runtimes.Owner, version string, d *declared, running string) (*definition, error) {
	known, err := c.defined(ctx, running)
	if err != nil || known.owner != "" {
		return nil, err
	}
	client, err := c.account.client(ctx)
	if err != nil {
		return nil, err
	}
	out, err := call(ctx, c, definitionReads, client.DescribeTaskDefinition, &ecs.DescribeTaskDefinitionInput{TaskDefinition: &running})
	if err != nil || out.TaskDefinition.Status != types.TaskDefinitionStatusActive || !d.says(out.TaskDefinition) {
		return nil, err
	}
	tags := []types.Tag{tag(TagOwner, owner.Key()), tag(TagDefinition, d.hash), tag(TagVersion, encodeVersion(version)), tag(TagAdopted, "true")}
	if _, err := call(ctx, c, tagWrites, client.TagResource, &ecs.TagResourceInput{ResourceArn: &running, Tags: tags}); err != nil {
		return nil, err
	}
	return c.account.keep(out.TaskDefinition, tags, time.Time{}), nil
}

// says tells whether a revision is what is declared, and nothing more.
func (d *declared) says(there *types.TaskDefinition) bool {
	have, _ := trimmed(plain(reflect.ValueOf(*there))).(map[string]any)
	want, _ := trimmed(d.definitionFields).(map[string]any)
	for _, name := range answered {
		delete(have, name)
	}
	delete(want, "tags")
	return hashOf(unordered(want).(map[string]any)) == hashOf(unordered(have).(map[string]any))
}

// unordered puts lists of things into one order, which means nothing; that of words, as in a command, stays.
func unordered(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, one := range x {
			out[name] = unordered(one)
		}
		return out
	case []any:
		out := make([]any, len(x))
		things := len(x) > 0
		for i, one := range x {
			out[i] = unordered(one)
			_, thing := one.(map[string]any)
			things = things && thing
		}
		if things {
			slices.SortFunc(out, func(a, b any) int { return strings.Compare(hashOf(a.(map[string]any)), hashOf(b.(map[string]any))) })
		}
		return out
	}
	return v
}

// answered are the fields of a revision that ECS adds (API reference, TaskDefinition).
var answered = []string{"taskDefinitionArn", "revision", "status", "requiresAttributes", "compatibilities", "registeredAt", "registeredBy", "deregisteredAt", "deleteRequestedAt"}

// trimmed leaves out what means the same when it is not said: what is empty, and what ECS fills in.
func trimmed(v any) any {
	switch x := v.(type) {
	case map[string]any:
		return trimmedFields(x)
	case []any:
		var out []any
		for _, one := range x {
			if one = trimmed(one); one == nil {
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

func trimmedFields(fields map[string]any) any {
	out := map[string]any{}
	for name, one := range fields {
		switch kept := trimmed(one); {
		case kept != nil && !filledIn(name, kept, fields):
			out[name] = kept
		case kept == nil && one != nil && slices.Contains(meant, name):
			out[name] = one
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// meant are fields in which nothing is not the same as nothing said.
var meant = []string{"essential", "minimumHealthyPercent", "maxSwap", "swappiness", "softLimit", "hardLimit"}

// filledIn tells whether ECS would have put that there (API reference, ContainerDefinition and PortMapping).
func filledIn(name string, v any, of map[string]any) bool {
	switch name {
	case "essential":
		return v == true
	case "protocol":
		return v == "tcp"
	case "hostPort":
		return scalar(v) == scalar(of["containerPort"])
	}
	return false
}

// Found is a service that runs, as documents that a configuration may have.
type Found struct {
	Name                string
	Definition, Service map[string]any
	Controller          types.DeploymentControllerType
	Owner               string // that our tags name; empty: none
}

// Discover lists the services of a cluster as they run, by name, and changes nothing. What AWS filled in, and how many tasks run
// at the moment, is left out.
func (r *Runtime) Discover(ctx context.Context) ([]Found, error) {
	client, err := r.cluster.account.client(ctx)
	if err != nil {
		return nil, err
	}
	var all []Found
	err = r.cluster.all(ctx, func(s *types.Service) error {
		found, err := r.found(ctx, client, s)
		if err == nil && text(s.Status) == "ACTIVE" {
			all = append(all, found)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Found) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func (r *Runtime) found(ctx context.Context, client *ecs.Client, s *types.Service) (Found, error) {
	f := Found{Name: text(s.ServiceName), Controller: controllerOf(s), Owner: valueOf(s.Tags, TagOwner)}
	f.Service = declarable(there(s), reflect.TypeFor[ecs.CreateServiceInput](), "cluster", "taskDefinition", "clientToken", "tags", "desiredCount", "deploymentController", "role")
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
	document, _ := plain(reflect.ValueOf(*out.TaskDefinition)).(map[string]any)
	f.Definition = declarable(document, reflect.TypeFor[ecs.RegisterTaskDefinitionInput](), "tags")
	return f, nil
}

// declarable is what of a document an input has a field for, but for some.
func declarable(document map[string]any, input reflect.Type, but ...string) map[string]any {
	kept, _ := trimmed(document).(map[string]any)
	for name := range kept {
		if _, ok := input.FieldByName(strings.ToUpper(name[:1]) + name[1:]); !ok || slices.Contains(but, name) {
			delete(kept, name)
		}
	}
	return kept
}
