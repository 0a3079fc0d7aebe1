package ecs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// A service with a changed name in its declaration is another service for ECS. The instance's earlier service stays: the tag
// TagFormerServices of the new service names it, so that it is reported until it is deleted. Removing the instance removes both.

// serviceOwners are the services of a cluster by owner, from the last list.
type serviceOwners struct {
	listedAt time.Time
	names    map[string][]string // by the key of the owner
}

// servicesExcept are the services of an instance except the one with a name. The list of the cluster is shared by all callers, and
// refreshed from time to time.
func (c *cluster) servicesExcept(ctx context.Context, owner runtimes.Owner, name string) ([]string, error) {
	select {
	case c.listing <- struct{}{}:
		defer func() { <-c.listing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if time.Since(c.owners.listedAt) > c.timing.listMaxAge || c.owners.listedAt.IsZero() {
		listed, err := c.listOwners(ctx)
		if err != nil {
			return nil, err
		}
		c.owners = listed
	}
	key := owner.Key()
	if !slices.Contains(c.owners.names[key], name) { // it will be soon
		c.owners.names[key] = append(c.owners.names[key], name)
	}
	return slices.DeleteFunc(slices.Clone(c.owners.names[key]), func(other string) bool { return other == name }), nil
}

func (c *cluster) listOwners(ctx context.Context) (serviceOwners, error) {
	listed := serviceOwners{listedAt: time.Now(), names: map[string][]string{}}
	err := c.all(ctx, func(s *types.Service) error {
		if owner := valueOf(s.Tags, TagOwner); owner != "" {
			listed.names[owner] = append(listed.names[owner], text(s.ServiceName))
		}
		return nil
	})
	return listed, err
}

// all describes every service of the cluster.
func (c *cluster) all(ctx context.Context, each func(*types.Service) error) error {
	client, err := c.account.client(ctx)
	if err != nil {
		return err
	}
	most := int32(listPageSize)
	in := &ecs.ListServicesInput{Cluster: &c.name, MaxResults: &most}
	for {
		list, err := call(ctx, c, serviceReads, client.ListServices, in)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(list.ServiceArns, maxServicesPerCall) {
			out, err := call(ctx, c, serviceReads, client.DescribeServices, &ecs.DescribeServicesInput{
				Cluster: &c.name, Services: some, Include: []types.ServiceField{types.ServiceFieldTags},
			})
			if err != nil {
				return err
			}
			for i := range out.Services {
				if err := each(&out.Services[i]); err != nil {
					return err
				}
			}
		}
		if in.NextToken = list.NextToken; in.NextToken == nil {
			return nil
		}
	}
}

const listPageSize = 100 // the page size of ListServices

// findFormerServices records the other services of the instance. A failure of this list has no other effect.
func (a *apply) findFormerServices(ctx context.Context) {
	others, err := a.cluster.servicesExcept(ctx, a.in.Owner, a.want.name())
	if err != nil {
		a.logf("cannot list services with former names: %s", shortMessage(err))
		return
	}
	a.formerServices = others
	for _, name := range others {
		a.logf("left the service %s, whose name is no longer declared", name)
	}
}

// formerServicesTag names as many services as fit into a tag.
func formerServicesTag(names []string) string {
	const length = 256 // limit of a tag's value
	value := ""
	for _, name := range names {
		if len(value)+1+len(name) <= length {
			value = strings.TrimPrefix(value+" "+name, " ")
		}
	}
	return value
}

// formerServices reports the services that the instance has under other names, while they exist.
func (ob *observation) formerServices(ctx context.Context) (all []entities.Object, err error) {
	for _, name := range strings.Fields(valueOf(ob.service.Tags, TagFormerServices)) {
		s, err := ob.cluster.read(ctx, ob.in.Owner, name, time.Now().Add(-ob.cluster.timing.maxAge))
		if err != nil {
			return nil, err
		}
		if s == nil || name == ob.want.name() || valueOf(s.Tags, TagOwner) != ob.in.Owner.Key() {
			continue
		}
		all = append(all, entities.Object{
			Name: name, Type: "Service", Status: entities.ObjectSucceeded, Orphaned: true,
			Message: fmt.Sprintf("left over from before the service was renamed to %s, with %d tasks; to remove it: aws ecs delete-service --force --cluster %s --service %s",
				ob.want.name(), s.RunningCount, ob.cluster.name, name),
		})
	}
	return all, nil
}
