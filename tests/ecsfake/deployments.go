package ecsfake

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// record is a service deployment: the history of the change from one revision to another (guide service-deployment).
type record struct {
	view types.ServiceDeployment
	// primary is the deployment that the record describes.
	primary  *deployment
	service  *service
	failures int32
	tripped  bool
	alarms   []string
	shifting
	sources []*deployment
}

// newRecord begins a service deployment, and stops the one that it supersedes (the new status of that one is not documented).
func (s *Server) newRecord(v *service, p *deployment) *record {
	name := v.cluster.name() + "/" + v.name()
	if old := v.primary(); old != nil && old.inProgress() {
		old.record.end(s.clock.now, types.ServiceDeploymentStatusStopped, "Superseded by a new service deployment.")
		old.record.view.StoppedAt = moments(s.clock.now)
	}
	r := &record{primary: p, service: v, sources: slices.Clone(v.deployments)}
	r.view = types.ServiceDeployment{
		ServiceDeploymentArn: aws.String(s.arn("service-deployment/" + name + "/" + s.ids.word())),
		ServiceArn:           v.base.ServiceArn, ClusterArn: v.base.ClusterArn, Status: types.ServiceDeploymentStatusInProgress,
		CreatedAt: moments(s.clock.now), StartedAt: moments(s.clock.now), UpdatedAt: moments(s.clock.now),
		DeploymentConfiguration: v.base.DeploymentConfiguration,
	}
	if v.shifts() {
		r.view.LifecycleStage = stages()[0]
	}
	v.records = slices.Insert(v.records, 0, r)
	return r
}

// newRevision stores the configuration of a deployment (guide service-revision). A rollback returns to an existing revision.
func (s *Server) newRevision(v *service, from shape) *types.ServiceRevision {
	r := &types.ServiceRevision{
		ServiceRevisionArn: aws.String(s.arn("service-revision/" + v.cluster.name() + "/" + v.name() + "/" + s.ids.digits())),
		ServiceArn:         v.base.ServiceArn, ClusterArn: v.base.ClusterArn, CreatedAt: moments(s.clock.now),
		TaskDefinition: from.definition.view.TaskDefinitionArn, LaunchType: from.launchType, CapacityProviderStrategy: from.strategy,
		PlatformVersion: from.platform, NetworkConfiguration: from.network, LoadBalancers: from.balancers,
		ServiceRegistries: from.registries, ServiceConnectConfiguration: from.connect, VolumeConfigurations: from.volumes,
		VpcLatticeConfigurations: from.lattice,
	}
	for _, c := range from.definition.view.ContainerDefinitions {
		r.ContainerImages = append(r.ContainerImages, types.ContainerImage{ContainerName: c.Name, Image: c.Image})
	}
	v.revisions = append(v.revisions, r)
	return r
}

// end closes an open service deployment.
func (r *record) end(now time.Time, status types.ServiceDeploymentStatus, reason string) {
	if r.view.FinishedAt != nil {
		return
	}
	r.view.Status, r.view.FinishedAt, r.view.UpdatedAt = status, moments(now), moments(now)
	if reason != "" {
		r.view.StatusReason = aws.String(reason)
	}
}

func (r *record) arn() string { return text(r.view.ServiceDeploymentArn) }

// describe returns the current view of a service deployment.
func (r *record) describe() types.ServiceDeployment {
	view := r.view
	target := summary(r.primary)
	if view.TargetServiceRevision != nil {
		target.RequestedProductionTrafficWeight = view.TargetServiceRevision.RequestedProductionTrafficWeight
	}
	target.RequestedTaskCount = int32(r.service.wanted())
	view.TargetServiceRevision = &target
	for _, p := range r.sources {
		view.SourceServiceRevisions = append(view.SourceServiceRevisions, summary(p))
	}
	c := view.DeploymentConfiguration
	view.DeploymentCircuitBreaker = &types.ServiceDeploymentCircuitBreaker{
		FailureCount: r.failures, Threshold: r.service.threshold(),
		Status: r.monitors(c.DeploymentCircuitBreaker.Enable, r.tripped),
	}
	if c.Alarms != nil {
		view.Alarms = &types.ServiceDeploymentAlarms{
			AlarmNames: c.Alarms.AlarmNames, TriggeredAlarmNames: r.alarms,
			Status: r.monitors(c.Alarms.Enable, len(r.alarms) > 0),
		}
	}
	return view
}

// monitors returns the state of a breaker or of alarms (API ServiceDeploymentCircuitBreaker).
func (r *record) monitors(enabled, triggered bool) types.ServiceDeploymentRollbackMonitorsStatus {
	switch {
	case !enabled:
		return types.ServiceDeploymentRollbackMonitorsStatusDisabled
	case triggered:
		return types.ServiceDeploymentRollbackMonitorsStatusTriggered
	case r.view.FinishedAt != nil:
		return types.ServiceDeploymentRollbackMonitorsStatusMonitoringComplete
	}
	return types.ServiceDeploymentRollbackMonitorsStatusMonitoring
}

func summary(p *deployment) types.ServiceRevisionSummary {
	running, pending := counts(p.tasks)
	return types.ServiceRevisionSummary{
		Arn: p.revision.ServiceRevisionArn, RunningTaskCount: running, PendingTaskCount: pending, RequestedTaskCount: running + pending,
	}
}

// record finds a service deployment by its ARN.
func (s *Server) record(arn string) *record {
	path, ok := strings.CutPrefix(arn, s.arn("service-deployment/"))
	parts := strings.Split(path, "/")
	if !ok || len(parts) != 3 || s.clusters[parts[0]] == nil {
		return nil
	}
	v := s.clusters[parts[0]].services[parts[1]]
	if v == nil {
		return nil
	}
	if i := slices.IndexFunc(v.records, func(r *record) bool { return r.arn() == arn }); i >= 0 {
		return v.records[i]
	}
	return nil
}

func (s *Server) describeServiceDeployments(in *ecs.DescribeServiceDeploymentsInput) (*ecs.DescribeServiceDeploymentsOutput, error) {
	if n := len(in.ServiceDeploymentArns); n == 0 || n > 20 {
		return nil, invalid("You may specify between 1 and 20 service deployment ARNs.")
	}
	out := &ecs.DescribeServiceDeploymentsOutput{ServiceDeployments: []types.ServiceDeployment{}, Failures: []types.Failure{}}
	for _, arn := range in.ServiceDeploymentArns {
		if r := s.record(arn); r != nil {
			out.ServiceDeployments = append(out.ServiceDeployments, r.describe())
		} else {
			out.Failures = append(out.Failures, missing(arn))
		}
	}
	return out, nil
}

// deploymentsListed is ecs.ListServiceDeploymentsInput, whose times are encoded as seconds.
type deploymentsListed struct {
	Service, Cluster, NextToken *string
	MaxResults                  *int32
	Status                      []types.ServiceDeploymentStatus
	CreatedAt                   *struct{ After, Before *float64 }
}

// wants reports whether a service deployment matches the request.
func (in *deploymentsListed) wants(r *record) bool {
	if len(in.Status) > 0 && !slices.Contains(in.Status, r.view.Status) {
		return false
	}
	if in.CreatedAt == nil {
		return true
	}
	at := float64(r.view.CreatedAt.UnixMilli()) / 1000
	return (in.CreatedAt.After == nil || at >= *in.CreatedAt.After) && (in.CreatedAt.Before == nil || at <= *in.CreatedAt.Before)
}

// listServiceDeployments lists newest first, 20 by default (API ListServiceDeployments).
func (s *Server) listServiceDeployments(in *deploymentsListed) (*ecs.ListServiceDeploymentsOutput, error) {
	c, err := s.cluster(in.Cluster)
	if err != nil {
		return nil, err
	}
	v, err := s.service(c, in.Service)
	if err != nil {
		return nil, err
	}
	byARN, arns := map[string]*record{}, []string{}
	for _, r := range v.records {
		if in.wants(r) {
			byARN[r.arn()] = r
			arns = append(arns, r.arn())
		}
	}
	arns, next, err := page(arns, 20, in.MaxResults, in.NextToken)
	if err != nil {
		return nil, err
	}
	out := &ecs.ListServiceDeploymentsOutput{ServiceDeployments: []types.ServiceDeploymentBrief{}, NextToken: next}
	for _, arn := range arns {
		r := byARN[arn]
		out.ServiceDeployments = append(out.ServiceDeployments, types.ServiceDeploymentBrief{
			ServiceDeploymentArn: r.view.ServiceDeploymentArn, ServiceArn: r.view.ServiceArn, ClusterArn: r.view.ClusterArn,
			Status: r.view.Status, StatusReason: r.view.StatusReason, TargetServiceRevisionArn: r.primary.revision.ServiceRevisionArn,
			CreatedAt: r.view.CreatedAt, StartedAt: r.view.StartedAt, FinishedAt: r.view.FinishedAt,
		})
	}
	return out, nil
}

func (s *Server) describeServiceRevisions(in *ecs.DescribeServiceRevisionsInput) (*ecs.DescribeServiceRevisionsOutput, error) {
	if n := len(in.ServiceRevisionArns); n == 0 || n > 20 {
		return nil, invalid("You may specify between 1 and 20 service revision ARNs.")
	}
	out := &ecs.DescribeServiceRevisionsOutput{ServiceRevisions: []types.ServiceRevision{}, Failures: []types.Failure{}}
	for _, arn := range in.ServiceRevisionArns {
		if r := s.revision(arn); r != nil {
			out.ServiceRevisions = append(out.ServiceRevisions, *r)
		} else {
			out.Failures = append(out.Failures, missing(arn))
		}
	}
	return out, nil
}

func (s *Server) revision(arn string) *types.ServiceRevision {
	for _, name := range slices.Sorted(maps.Keys(s.clusters)) {
		for _, v := range s.clusters[name].services {
			for _, r := range v.revisions {
				if text(r.ServiceRevisionArn) == arn {
					return r
				}
			}
		}
	}
	return nil
}

// stopServiceDeployment rolls back a service deployment in progress, even one without the rollback option (guide
// stop-service-deployment). ABORT is in the SDK but not among the documented values.
func (s *Server) stopServiceDeployment(in *ecs.StopServiceDeploymentInput) (*ecs.StopServiceDeploymentOutput, error) {
	if in.StopType != "" && in.StopType != types.StopServiceDeploymentStopTypeRollback {
		return nil, invalid("The valid values of stopType are ROLLBACK.")
	}
	r := s.record(text(in.ServiceDeploymentArn))
	if r == nil {
		return nil, refuse("ServiceDeploymentNotFoundException", "The service deploy ARN that you specified in the StopServiceDeployment doesn't exist.")
	}
	out := &ecs.StopServiceDeploymentOutput{ServiceDeploymentArn: in.ServiceDeploymentArn}
	switch r.view.Status {
	case types.ServiceDeploymentStatusRollbackRequested, types.ServiceDeploymentStatusRollbackInProgress:
		return out, nil
	case types.ServiceDeploymentStatusInProgress:
	default:
		return nil, refuse("ConflictException", "The service deployment is not in progress: %s.", r.view.Status)
	}
	v := r.service
	if v.completed == nil || v.completed == r.primary {
		return nil, refuse("ConflictException", "There is no completed deployment to roll back to.")
	}
	s.remember(v)
	reason := "Service deployment stopped by a user."
	r.view.Status, r.view.StatusReason, r.view.UpdatedAt = types.ServiceDeploymentStatusRollbackRequested, &reason, moments(s.clock.now)
	s.after(time.Second, func() {
		if v.primary() == r.primary && r.view.Status == types.ServiceDeploymentStatusRollbackRequested {
			r.primary.tell(s.clock.now, types.DeploymentRolloutStateFailed, "%s", reason)
			s.rollBack(v, reason)
		}
	})
	return out, nil
}
