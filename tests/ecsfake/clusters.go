package ecsfake

import (
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

type cluster struct {
	view      types.Cluster
	tags      []types.Tag
	instances int
	services  map[string]*service
	tasks     map[string]*task
	// tokens stores the answers to client tokens of RunTask.
	tokens map[string]*ranTasks
}

// cluster finds an active cluster by name or ARN; without either it is the one with the name default (API DescribeServices).
func (s *Server) cluster(ref *string) (*cluster, error) {
	name, ok := s.resource("cluster", text(ref))
	if name == "" {
		name = "default"
	}
	if c := s.clusters[name]; ok && c != nil && text(c.view.Status) == "ACTIVE" {
		return c, nil
	}
	return nil, refuse("ClusterNotFoundException", "Cluster not found.")
}

// createCluster is idempotent by name (not documented; the SDK's waiters and Terraform rely on it).
func (s *Server) createCluster(in *ecs.CreateClusterInput) (*ecs.CreateClusterOutput, error) {
	name := text(in.ClusterName)
	if name == "" {
		name = "default"
	}
	if !nameForm.MatchString(name) {
		return nil, invalid("Invalid cluster name")
	}
	if err := checkTags(nil, in.Tags); err != nil {
		return nil, err
	}
	c := s.clusters[name]
	if c == nil || text(c.view.Status) != "ACTIVE" {
		c = &cluster{
			view: types.Cluster{
				ClusterName: &name, ClusterArn: aws.String(s.arn("cluster/" + name)), Status: aws.String("ACTIVE"),
				CapacityProviders: in.CapacityProviders, DefaultCapacityProviderStrategy: in.DefaultCapacityProviderStrategy,
				Settings: in.Settings, ServiceConnectDefaults: nil,
			},
			tags: in.Tags, instances: s.options.Instances,
			services: map[string]*service{}, tasks: map[string]*task{}, tokens: map[string]*ranTasks{},
		}
		s.clusters[name] = c
	}
	return &ecs.CreateClusterOutput{Cluster: c.describe(true)}, nil
}

// deleteCluster refuses while services or tasks exist (API DeleteCluster).
func (s *Server) deleteCluster(in *ecs.DeleteClusterInput) (*ecs.DeleteClusterOutput, error) {
	c, err := s.cluster(in.Cluster)
	if err != nil {
		return nil, err
	}
	for _, v := range c.services {
		if v.status != inactive {
			return nil, refuse("ClusterContainsServicesException", "The Cluster cannot be deleted while Services are active.")
		}
	}
	for _, t := range c.tasks {
		if t.status() != "STOPPED" {
			return nil, refuse("ClusterContainsTasksException", "The Cluster cannot be deleted while Tasks are active.")
		}
	}
	c.view.Status = aws.String("INACTIVE")
	return &ecs.DeleteClusterOutput{Cluster: c.describe(false)}, nil
}

func (s *Server) describeClusters(in *ecs.DescribeClustersInput) (*ecs.DescribeClustersOutput, error) {
	refs := in.Clusters
	if len(refs) == 0 {
		refs = []string{"default"}
	}
	if len(refs) > 100 {
		return nil, invalid("You may specify up to 100 clusters.")
	}
	out := &ecs.DescribeClustersOutput{Clusters: []types.Cluster{}, Failures: []types.Failure{}}
	for _, ref := range refs {
		name, ok := s.resource("cluster", ref)
		c := s.clusters[name]
		if !ok || c == nil {
			out.Failures = append(out.Failures, missing(s.arn("cluster/"+name)))
			continue
		}
		out.Clusters = append(out.Clusters, *c.describe(slices.Contains(in.Include, types.ClusterFieldTags)))
	}
	return out, nil
}

func (s *Server) listClusters(in *ecs.ListClustersInput) (*ecs.ListClustersOutput, error) {
	arns := []string{}
	for _, name := range slices.Sorted(maps.Keys(s.clusters)) {
		if c := s.clusters[name]; text(c.view.Status) == "ACTIVE" {
			arns = append(arns, text(c.view.ClusterArn))
		}
	}
	arns, next, err := page(arns, 100, in.MaxResults, in.NextToken)
	if err != nil {
		return nil, err
	}
	return &ecs.ListClustersOutput{ClusterArns: arns, NextToken: next}, nil
}

func (c *cluster) name() string { return text(c.view.ClusterName) }

func (c *cluster) describe(tags bool) *types.Cluster {
	view := c.view
	view.RegisteredContainerInstancesCount = int32(c.instances)
	for _, v := range c.services {
		if v.status == active {
			view.ActiveServicesCount++
		}
	}
	for _, t := range c.tasks {
		running, pending := t.counts()
		view.RunningTasksCount += running
		view.PendingTasksCount += pending
	}
	if tags {
		view.Tags = c.tags
	}
	return &view
}

// missing returns the failure for an unknown object in an answer with status 200 (guide api_failures_messages).
func missing(arn string) types.Failure {
	return types.Failure{Arn: &arn, Reason: aws.String("MISSING")}
}
