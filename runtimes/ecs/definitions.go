package ecs

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/converge-engine/converge/runtimes"
)

// definition is the cached content of a revision of a task definition. The content never changes; its ACTIVE status does.
type definition struct {
	arn, owner, hash, version string
	logs                      []logs
	first                     string    // its first essential container
	adopted                   bool      // another owner registered it, and may use it elsewhere
	registered                time.Time // by this process; zero: by another one, or before its start
}

// logs is the destination of a container's output.
type logs struct{ container, group, region, prefix string }

// maxSearched limits the search for a revision with the same content to the newest revisions of a family. An older one is registered
// again.
const maxSearched = 50

// describeRevision describes a revision, once.
func (c *cluster) describeRevision(ctx context.Context, arn string) (*definition, error) {
	a := c.account
	a.mu.Lock()
	known := a.definitions[arn]
	a.mu.Unlock()
	if known != nil {
		return known, nil
	}
	client, err := a.client(ctx)
	if err != nil {
		return nil, err
	}
	out, err := call(ctx, c, definitionReads, client.DescribeTaskDefinition, &ecs.DescribeTaskDefinitionInput{
		TaskDefinition: &arn, Include: []types.TaskDefinitionField{types.TaskDefinitionFieldTags},
	})
	if err != nil {
		return nil, err
	}
	return a.store(out.TaskDefinition, out.Tags, time.Time{}), nil
}

// maxDefinitions limits the cache; when it is full, it is emptied.
const maxDefinitions = 20_000

func (a *account) store(d *types.TaskDefinition, tags []types.Tag, registered time.Time) *definition {
	revision := &definition{
		arn: text(d.TaskDefinitionArn), owner: valueOf(tags, TagOwner), hash: valueOf(tags, TagDefinition),
		version: decodeVersion(valueOf(tags, TagVersion)), logs: logsOf(d), first: firstOf(d), adopted: valueOf(tags, TagAdopted) != "", registered: registered,
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.definitions) >= maxDefinitions {
		clear(a.definitions)
	}
	a.definitions[revision.arn] = revision
	return revision
}

func (a *account) forget(arn string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.definitions, arn)
}

func logsOf(d *types.TaskDefinition) (all []logs) {
	for _, c := range d.ContainerDefinitions {
		if l := c.LogConfiguration; l != nil && l.LogDriver == types.LogDriverAwslogs && l.Options["awslogs-group"] != "" {
			all = append(all, logs{text(c.Name), l.Options["awslogs-group"], l.Options["awslogs-region"], l.Options["awslogs-stream-prefix"]})
		}
	}
	return all
}

// logsOf is the destination of a container's output; empty if it is unknown.
func (k *definition) logsOf(container string) logs {
	for _, l := range k.logs {
		if l.container == container {
			return l
		}
	}
	return logs{}
}

// firstOf is the first essential container. A container is essential by default.
func firstOf(d *types.TaskDefinition) string {
	for _, c := range d.ContainerDefinitions {
		if c.Essential == nil || *c.Essential {
			return text(c.Name)
		}
	}
	return ""
}

// findRevision returns the newest ACTIVE revision that was registered for the owner from the same document; nil if there is none. It checks
// the running revision first, since the task definition usually has not changed. A revision that this process registered a moment
// ago may not be listed yet.
func (c *cluster) findRevision(ctx context.Context, owner runtimes.Owner, d *declared, running string) (*definition, error) {
	if running != "" {
		if known, err := c.describeRevision(ctx, running); err != nil || known.matches(owner, d) {
			return known, err
		}
	}
	active, err := c.revisions(ctx, d.family())
	if err != nil {
		return nil, err
	}
	for _, arn := range active[:min(len(active), maxSearched)] {
		if known, err := c.describeRevision(ctx, arn); err != nil || known.matches(owner, d) {
			return known, err
		}
	}
	return c.account.recentlyRegistered(owner, d, time.Now().Add(-c.timing.readLag)), nil
}

// recentlyRegistered is a revision that this process registered since some time; nil if there is none.
func (a *account) recentlyRegistered(owner runtimes.Owner, d *declared, since time.Time) *definition {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, revision := range a.definitions {
		if revision.registered.After(since) && revision.matches(owner, d) {
			return revision
		}
	}
	return nil
}

func (k *definition) matches(owner runtimes.Owner, d *declared) bool {
	return k.owner == owner.Key() && k.hash == d.hash
}

// revisions lists the ACTIVE revisions of a family, the newest first.
func (c *cluster) revisions(ctx context.Context, family string) ([]string, error) {
	client, err := c.account.client(ctx)
	if err != nil {
		return nil, err
	}
	in := &ecs.ListTaskDefinitionsInput{FamilyPrefix: &family, Status: types.TaskDefinitionStatusActive, Sort: types.SortOrderDesc}
	var all []string
	for {
		out, err := call(ctx, c, definitionReads, client.ListTaskDefinitions, in)
		if err != nil {
			return nil, err
		}
		for _, arn := range out.TaskDefinitionArns {
			if familyOf(arn) == family { // some servers treat the family as a prefix
				all = append(all, arn)
			}
		}
		if in.NextToken = out.NextToken; in.NextToken == nil {
			return all, nil
		}
	}
}

// familyOf is the family in arn:aws:ecs:eu-west-1:123456789012:task-definition/web:7.
func familyOf(arn string) string {
	name := arn[strings.LastIndex(arn, "/")+1:]
	family, _, _ := strings.Cut(name, ":")
	return family
}

// short is the short form of an ARN: web:7.
func short(arn string) string { return arn[strings.LastIndex(arn, "/")+1:] }

// register registers a revision, with tags for its content and owner. It is not idempotent, so there is no retry: after a lost
// answer the next apply finds the revision.
func (c *cluster) register(ctx context.Context, owner runtimes.Owner, version string, d *declared) (*definition, error) {
	client, err := c.account.client(ctx)
	if err != nil {
		return nil, err
	}
	in := *d.definition
	in.Tags = append(slices.Clone(in.Tags), tag(TagOwner, owner.Key()), tag(TagDefinition, d.hash), tag(TagVersion, encodeVersion(version)))
	out, err := call(ctx, c, definitionWrites, client.RegisterTaskDefinition, &in)
	if err != nil {
		return nil, err
	}
	return c.account.store(out.TaskDefinition, in.Tags, time.Now()), nil
}

const (
	keptRevisions = 10 // of an instance, besides those in use
	prunedAtOnce  = 5  // the limit for one apply: ECS allows one per second
)

// prune deregisters revisions of the instance that are neither in use nor among its newest. It keeps adopted revisions: other
// services may run them. UpdateService refuses a deregistered revision; a rollback to one registers it again.
func (c *cluster) prune(ctx context.Context, owner runtimes.Owner, family string, used []string, keep int) (deregistered []string, err error) {
	active, err := c.revisions(ctx, family)
	if err != nil {
		return nil, err
	}
	client, err := c.account.client(ctx)
	if err != nil {
		return nil, err
	}
	for _, arn := range active[:min(len(active), maxSearched)] {
		known, err := c.describeRevision(ctx, arn)
		if err != nil {
			return deregistered, err
		}
		if known.owner != owner.Key() || known.adopted || slices.Contains(used, arn) {
			continue
		}
		if keep > 0 {
			keep--
			continue
		}
		if len(deregistered) == prunedAtOnce {
			return deregistered, nil
		}
		if _, err := call(ctx, c, definitionWrites, client.DeregisterTaskDefinition, &ecs.DeregisterTaskDefinitionInput{TaskDefinition: &arn}); err != nil {
			return deregistered, err
		}
		c.account.forget(arn)
		deregistered = append(deregistered, short(arn))
	}
	return deregistered, nil
}

// definitionsOf are the revisions in a service's deployments, starting with its own.
func definitionsOf(s *types.Service) []string {
	if s == nil {
		return nil
	}
	all := map[string]bool{}
	first := text(s.TaskDefinition)
	for _, d := range s.Deployments {
		all[text(d.TaskDefinition)] = true
	}
	delete(all, first)
	delete(all, "")
	rest := slices.Sorted(maps.Keys(all))
	if first == "" {
		return rest
	}
	return append([]string{first}, rest...)
}
