package ecsfake

import (
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// remember stores the view of a service before a write, for readers that lag.
func (s *Server) remember(v *service) {
	if s.levers.lag > 0 {
		v.seen.was(s.describe(v), s.clock.now.Add(s.levers.lag))
	}
}

// visible returns the service as readers see it now; nil if they do not see it.
func (s *Server) visible(v *service) *types.Service {
	if view, past := v.seen.seen(s.clock.now); past {
		return view
	}
	return s.describe(v)
}

// describeServices accepts ten names at a time; an unknown service is a failure in an answer with status 200 (API DescribeServices).
func (s *Server) describeServices(in *ecs.DescribeServicesInput) (*ecs.DescribeServicesOutput, error) {
	c, err := s.cluster(in.Cluster)
	if err != nil {
		return nil, err
	}
	if n := len(in.Services); n == 0 || n > 10 {
		return nil, invalid("You may specify between 1 and 10 services, not %d.", n)
	}
	out := &ecs.DescribeServicesOutput{Services: []types.Service{}, Failures: []types.Failure{}}
	for _, ref := range in.Services {
		var view *types.Service
		if v, err := s.service(c, &ref); err == nil {
			view = s.visible(v)
		}
		if view == nil {
			name, _ := s.resource("service", ref)
			if ref == name {
				name = c.name() + "/" + name
			}
			out.Failures = append(out.Failures, missing(s.arn("service/"+name)))
			continue
		}
		shown := *view
		if !slices.Contains(in.Include, types.ServiceFieldTags) {
			shown.Tags = nil
		}
		out.Services = append(out.Services, shown)
	}
	return out, nil
}

// listServices lists ACTIVE services: draining ones are not shown (API DeleteService). It returns 10 by default and 100 at most (API
// ListServices).
func (s *Server) listServices(in *ecs.ListServicesInput) (*ecs.ListServicesOutput, error) {
	c, err := s.cluster(in.Cluster)
	if err != nil {
		return nil, err
	}
	arns := []string{}
	for _, name := range slices.Sorted(maps.Keys(c.services)) {
		v := s.listed(c.services[name])
		if v == nil || in.LaunchType != "" && v.launchType != in.LaunchType ||
			in.SchedulingStrategy != "" && v.strategy != in.SchedulingStrategy {
			continue
		}
		arns = append(arns, v.arn)
	}
	arns, next, err := page(arns, 10, in.MaxResults, in.NextToken)
	if err != nil {
		return nil, err
	}
	return &ecs.ListServicesOutput{ServiceArns: arns, NextToken: next}, nil
}

// listing contains the fields of a service that a list needs.
type listing struct {
	arn        string
	launchType types.LaunchType
	strategy   types.SchedulingStrategy
}

// listed returns the current list entry of a service; nil if it is not listed. It does not call describe, because there may be
// thousands of services.
func (s *Server) listed(v *service) *listing {
	status := v.status
	if view, past := v.seen.seen(s.clock.now); past {
		if view == nil {
			return nil
		}
		status = text(view.Status)
	}
	if status != active {
		return nil
	}
	return &listing{v.arn(), v.shape.launchType, v.base.SchedulingStrategy}
}

// describe returns the current view of a service.
func (s *Server) describe(v *service) *types.Service {
	view := v.base
	view.Status, view.DesiredCount = aws.String(v.status), int32(v.wanted())
	view.Events, view.Deployments = slices.Clone(v.events), []types.Deployment{}
	view.LaunchType, view.CapacityProviderStrategy = v.shape.launchType, v.shape.strategy
	view.PlatformVersion, view.NetworkConfiguration = v.shape.platform, v.shape.network
	view.LoadBalancers, view.ServiceRegistries = v.shape.balancers, v.shape.registries
	view.RunningCount, view.PendingCount = counts(v.tasks())
	if v.shape.definition != nil {
		view.TaskDefinition = v.shape.definition.view.TaskDefinitionArn
	}
	switch v.controller() {
	case types.DeploymentControllerTypeEcs:
		for i, p := range v.deployments {
			view.Deployments = append(view.Deployments, describeDeployment(v, p, i == 0))
			view.CurrentServiceRevisions = append(view.CurrentServiceRevisions, current(p))
		}
		if len(v.records) > 0 {
			view.CurrentServiceDeployment = v.records[0].view.ServiceDeploymentArn
		}
	default:
		// Task sets belong to another controller (API Service, taskSets). The calls that create EXTERNAL ones are not modelled.
		view.TaskSets = []types.TaskSet{}
		for _, p := range v.deployments {
			view.TaskSets = append(view.TaskSets, taskSet(v, p))
		}
	}
	view.Tags = slices.Clone(v.tags)
	return &view
}

func describeDeployment(v *service, p *deployment, primary bool) types.Deployment {
	view := types.Deployment{
		Id: aws.String(p.id), Status: aws.String("ACTIVE"), TaskDefinition: p.definition.view.TaskDefinitionArn,
		CreatedAt: moments(p.createdAt), UpdatedAt: moments(p.changed), FailedTasks: p.failed,
		RolloutState: p.state, RolloutStateReason: aws.String(p.reason),
		LaunchType: p.launchType, CapacityProviderStrategy: p.strategy, PlatformVersion: p.platform,
		NetworkConfiguration: p.network, ServiceConnectConfiguration: p.connect, VolumeConfigurations: p.volumes,
		VpcLatticeConfigurations: p.lattice,
	}
	view.RunningCount, view.PendingCount = counts(p.tasks)
	if primary {
		view.Status, view.DesiredCount = aws.String("PRIMARY"), int32(v.wanted())
	}
	return view
}

func current(p *deployment) types.ServiceCurrentRevisionSummary {
	s := summary(p)
	return types.ServiceCurrentRevisionSummary{
		Arn: s.Arn, PendingTaskCount: s.PendingTaskCount, RunningTaskCount: s.RunningTaskCount, RequestedTaskCount: s.RequestedTaskCount,
	}
}

func taskSet(v *service, p *deployment) types.TaskSet {
	running, pending := counts(p.tasks)
	state := types.StabilityStatusStabilizing
	if p.state == types.DeploymentRolloutStateCompleted {
		state = types.StabilityStatusSteadyState
	}
	return types.TaskSet{
		Id: aws.String(p.id), Status: aws.String("PRIMARY"), TaskDefinition: p.definition.view.TaskDefinitionArn,
		ServiceArn: v.base.ServiceArn, ClusterArn: v.base.ClusterArn, CreatedAt: moments(p.createdAt), UpdatedAt: moments(p.changed),
		ComputedDesiredCount: int32(v.wanted()), RunningCount: running, PendingCount: pending, StabilityStatus: state,
		LaunchType: p.launchType, NetworkConfiguration: p.network, LoadBalancers: p.balancers,
	}
}
