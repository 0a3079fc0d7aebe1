package ecsfake

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// The states of a service (API Service).
const (
	active   = "ACTIVE"
	draining = "DRAINING"
	inactive = "INACTIVE"
)

// service is one service, ACTIVE, DRAINING or INACTIVE.
type service struct {
	cluster *cluster
	status  string
	// base contains the fields that Describe shows and that start no deployment; shape is the configuration of a new deployment.
	base    types.Service
	shape   shape
	desired int32
	tags    []types.Tag
	events  []types.ServiceEvent
	// deployments begins with the PRIMARY one, followed by the ones that it replaces, newest first.
	deployments []*deployment
	// completed is the target of a rollback; nil if there is none.
	completed *deployment
	// records are the service deployments, newest first; revisions are in the order of their creation.
	records   []*record
	revisions []*types.ServiceRevision
	// request is the input of CreateService, for its idempotence.
	request ecs.CreateServiceInput

	seen      lagged[*types.Service]
	unsettled bool
}

// shape is the configuration of a deployment: any change of it starts a new one (API UpdateService, "triggers a new service
// deployment").
type shape struct {
	definition *definition
	launchType types.LaunchType
	strategy   []types.CapacityProviderStrategyItem
	platform   *string
	network    *types.NetworkConfiguration
	balancers  []types.LoadBalancer
	registries []types.ServiceRegistry
	connect    *types.ServiceConnectConfiguration
	volumes    []types.ServiceVolumeConfiguration
	lattice    []types.VpcLatticeConfiguration
}

func (v *service) name() string { return text(v.base.ServiceName) }

func (v *service) arn() string { return text(v.base.ServiceArn) }

func (v *service) controller() types.DeploymentControllerType {
	return v.base.DeploymentController.Type
}

func (v *service) daemon() bool { return v.base.SchedulingStrategy == types.SchedulingStrategyDaemon }

// service finds a service of a cluster by name or ARN, in any state.
func (s *Server) service(c *cluster, ref *string) (*service, error) {
	name, ok := s.resource("service", text(ref))
	if ok && strings.HasPrefix(text(ref), "arn:") {
		name, ok = strings.CutPrefix(name, c.name()+"/")
	}
	if v := c.services[name]; ok && v != nil {
		return v, nil
	}
	return nil, refuse("ServiceNotFoundException", "Service not found.")
}

// createService makes a service and starts its first deployment (API CreateService).
func (s *Server) createService(in *ecs.CreateServiceInput) (*ecs.CreateServiceOutput, error) {
	c, err := s.cluster(in.Cluster)
	if err != nil {
		return nil, err
	}
	if !nameForm.MatchString(text(in.ServiceName)) {
		return nil, invalid("Service name must contain between 1 and 255 letters, numbers, hyphens and underscores.")
	}
	if old := c.services[*in.ServiceName]; old != nil && old.status != inactive {
		return s.created(old, in)
	}
	v := s.newService(c, in)
	if v.shape.definition, err = s.defined(in.TaskDefinition, v.controller()); err != nil {
		return nil, err
	}
	if err := s.checkService(v, in); err != nil {
		return nil, err
	}
	if s.levers.lag > 0 {
		v.seen.was(nil, s.clock.now.Add(s.levers.lag))
	}
	c.services[v.name()] = v
	if v.controller() != types.DeploymentControllerTypeExternal {
		s.deploy(v)
	}
	return &ecs.CreateServiceOutput{Service: s.describe(v)}, nil
}

// created answers a request for an existing service. With the same client token and an equal request it returns the service (API
// CreateService, clientToken), otherwise an error that the request is not idempotent.
func (s *Server) created(v *service, in *ecs.CreateServiceInput) (*ecs.CreateServiceOutput, error) {
	if v.status == draining {
		return nil, invalid("Unable to Start a service that is still Draining.")
	}
	if in.ClientToken == nil || !same(*in, v.request) {
		return nil, invalid("Creation of service was not idempotent.")
	}
	return &ecs.CreateServiceOutput{Service: s.describe(v)}, nil
}

// same compares the content of two requests.
func same(a, b any) bool {
	left, _ := json.Marshal(a)
	right, _ := json.Marshal(b)
	return string(left) == string(right)
}

func (s *Server) defined(ref *string, controller types.DeploymentControllerType) (*definition, error) {
	if controller == types.DeploymentControllerTypeExternal {
		if ref != nil {
			return nil, invalid("TaskDefinition cannot be specified for a service with an EXTERNAL deployment controller.")
		}
		return nil, nil
	}
	if ref == nil {
		return nil, invalid("TaskDefinition can not be blank.")
	}
	return s.usable(ref)
}

// newService returns a service from the input of CreateService, with AWS's defaults.
func (s *Server) newService(c *cluster, in *ecs.CreateServiceInput) *service {
	v := &service{cluster: c, status: active, desired: aws.ToInt32(in.DesiredCount), tags: in.Tags, request: *in}
	v.base = types.Service{
		ServiceName: in.ServiceName, ServiceArn: aws.String(s.arn("service/" + c.name() + "/" + *in.ServiceName)),
		ClusterArn: c.view.ClusterArn, CreatedAt: moments(s.clock.now),
		CreatedBy:                   aws.String("arn:aws:iam::" + s.options.Account + ":role/converge"),
		AvailabilityZoneRebalancing: in.AvailabilityZoneRebalancing, EnableECSManagedTags: in.EnableECSManagedTags,
		EnableExecuteCommand: in.EnableExecuteCommand, HealthCheckGracePeriodSeconds: in.HealthCheckGracePeriodSeconds,
		PlacementConstraints: orEmpty(in.PlacementConstraints), PlacementStrategy: orEmpty(in.PlacementStrategy),
		PropagateTags: in.PropagateTags, SchedulingStrategy: in.SchedulingStrategy,
		DeploymentController: in.DeploymentController, RoleArn: in.Role,
	}
	if v.base.SchedulingStrategy == "" {
		v.base.SchedulingStrategy = types.SchedulingStrategyReplica
	}
	if v.base.DeploymentController == nil {
		v.base.DeploymentController = &types.DeploymentController{Type: types.DeploymentControllerTypeEcs}
	}
	if v.base.PropagateTags == "" {
		v.base.PropagateTags = types.PropagateTagsNone
	}
	v.base.DeploymentConfiguration = v.configured(in.DeploymentConfiguration)
	v.shape = shape{
		launchType: in.LaunchType, strategy: in.CapacityProviderStrategy, platform: in.PlatformVersion,
		network: in.NetworkConfiguration, balancers: orEmpty(in.LoadBalancers), registries: orEmpty(in.ServiceRegistries),
		connect: in.ServiceConnectConfiguration, volumes: in.VolumeConfigurations, lattice: in.VpcLatticeConfigurations,
	}
	// Without either, the cluster's default strategy, else EC2 (API CreateService, launchType and
	// capacityProviderStrategy).
	if v.shape.launchType == "" && len(v.shape.strategy) == 0 {
		if v.shape.strategy = c.view.DefaultCapacityProviderStrategy; len(v.shape.strategy) == 0 {
			v.shape.launchType = types.LaunchTypeEc2
		}
	}
	return v
}

// configured returns a deployment configuration with the defaults of API DeploymentConfiguration. A missing field keeps its current
// value, at first AWS's default.
func (v *service) configured(in *types.DeploymentConfiguration) *types.DeploymentConfiguration {
	out := types.DeploymentConfiguration{
		MaximumPercent: aws.Int32(200), MinimumHealthyPercent: aws.Int32(100),
		Strategy:                 types.DeploymentStrategyRolling,
		DeploymentCircuitBreaker: &types.DeploymentCircuitBreaker{},
	}
	if v.daemon() {
		out.MaximumPercent, out.MinimumHealthyPercent = aws.Int32(100), aws.Int32(0)
	}
	if v.base.DeploymentConfiguration != nil {
		out = *v.base.DeploymentConfiguration
	}
	if in == nil {
		return &out
	}
	set(&out.MaximumPercent, in.MaximumPercent)
	set(&out.MinimumHealthyPercent, in.MinimumHealthyPercent)
	set(&out.DeploymentCircuitBreaker, in.DeploymentCircuitBreaker)
	set(&out.Alarms, in.Alarms)
	set(&out.BakeTimeInMinutes, in.BakeTimeInMinutes)
	set(&out.CanaryConfiguration, in.CanaryConfiguration)
	set(&out.LinearConfiguration, in.LinearConfiguration)
	if in.LifecycleHooks != nil {
		out.LifecycleHooks = in.LifecycleHooks
	}
	if in.Strategy != "" {
		out.Strategy = in.Strategy
	}
	return &out
}

func set[T any](field **T, value *T) {
	if value != nil {
		*field = value
	}
}

// updateService changes a service (API UpdateService; guide update-service-parameters says what starts a deployment).
func (s *Server) updateService(in *ecs.UpdateServiceInput) (*ecs.UpdateServiceOutput, error) {
	c, err := s.cluster(in.Cluster)
	if err != nil {
		return nil, err
	}
	v, err := s.service(c, in.Service)
	if err != nil {
		return nil, err
	}
	if v.status != active {
		return nil, refuse("ServiceNotActiveException", "Service was not ACTIVE.")
	}
	next := *v
	if err := s.change(v, &next, in); err != nil {
		return nil, err
	}
	s.remember(v)
	rolls := in.ForceNewDeployment || !v.shape.equal(next.shape)
	v.base, v.shape, v.desired = next.base, next.shape, next.desired
	if rolls && v.controller() == types.DeploymentControllerTypeEcs {
		s.deploy(v)
	}
	s.touch(v)
	return &ecs.UpdateServiceOutput{Service: s.describe(v)}, nil
}

// change applies an update to a copy of a service, and refuses forbidden changes.
func (s *Server) change(before, v *service, in *ecs.UpdateServiceInput) error {
	if err := v.modelled(in); err != nil {
		return err
	}
	if err := foreign(v.controller(), in); err != nil {
		return err
	}
	if in.TaskDefinition != nil {
		d, err := s.usable(in.TaskDefinition)
		if err != nil {
			return err
		}
		v.shape.definition = d
	}
	if in.DesiredCount != nil {
		v.desired = *in.DesiredCount
	}
	v.reshape(in)
	v.rebase(in)
	return change{service: v, before: before, update: in}.refused()
}

// modelled refuses fields that the fake would otherwise drop silently.
func (v *service) modelled(in *ecs.UpdateServiceInput) error {
	if c := in.DeploymentController; c != nil && c.Type != v.controller() || in.GatewayConnectors != nil {
		return refuse("UnsupportedFeatureException", "changes of the deployment controller and gateways are not modelled by this fake")
	}
	return modelledConfiguration(in.DeploymentConfiguration)
}

// rebase applies the fields of an update that need no deployment.
func (v *service) rebase(in *ecs.UpdateServiceInput) {
	b := &v.base
	b.DeploymentConfiguration = v.configured(in.DeploymentConfiguration)
	set(&b.HealthCheckGracePeriodSeconds, in.HealthCheckGracePeriodSeconds)
	if in.EnableECSManagedTags != nil {
		b.EnableECSManagedTags = *in.EnableECSManagedTags
	}
	if in.EnableExecuteCommand != nil {
		b.EnableExecuteCommand = *in.EnableExecuteCommand
	}
	if in.PropagateTags != "" {
		b.PropagateTags = in.PropagateTags
	}
	if in.AvailabilityZoneRebalancing != "" {
		b.AvailabilityZoneRebalancing = in.AvailabilityZoneRebalancing
	}
	if in.PlacementConstraints != nil {
		b.PlacementConstraints = in.PlacementConstraints
	}
	if in.PlacementStrategy != nil {
		b.PlacementStrategy = in.PlacementStrategy
	}
}

// reshape applies the fields of an update that belong to the shape; empty lists remove (API UpdateService).
func (v *service) reshape(in *ecs.UpdateServiceInput) {
	next := &v.shape
	set(&next.platform, in.PlatformVersion)
	set(&next.network, in.NetworkConfiguration)
	set(&next.connect, in.ServiceConnectConfiguration)
	if in.CapacityProviderStrategy != nil {
		next.strategy = in.CapacityProviderStrategy
		// "Back to the launch type": that of CreateService. Not documented for a service that was created without one: EC2.
		if next.launchType = ""; len(next.strategy) == 0 {
			next.launchType = cmp.Or(v.request.LaunchType, types.LaunchTypeEc2)
		}
	}
	if in.LoadBalancers != nil {
		next.balancers = in.LoadBalancers
	}
	if in.ServiceRegistries != nil {
		next.registries = in.ServiceRegistries
	}
	if in.VolumeConfigurations != nil {
		next.volumes = in.VolumeConfigurations
	}
	if in.VpcLatticeConfigurations != nil {
		next.lattice = in.VpcLatticeConfigurations
	}
}

// equal reports whether no deployment is needed. Capacity providers do not count (API UpdateService: "doesn't trigger").
func (a shape) equal(b shape) bool {
	a.strategy, a.launchType = b.strategy, b.launchType
	return reflect.DeepEqual(a, b)
}

// foreign refuses changes that belong to another deployment controller (API UpdateService).
func foreign(controller types.DeploymentControllerType, in *ecs.UpdateServiceInput) error {
	if controller == types.DeploymentControllerTypeEcs {
		return nil
	}
	use := "Use AWS CodeDeploy to trigger a new deployment."
	if controller == types.DeploymentControllerTypeExternal {
		use = "Create a new task set instead."
	}
	for _, given := range []struct {
		is   bool
		what string
	}{
		{in.TaskDefinition != nil, "task definition"},
		{in.ForceNewDeployment, "force new deployment"},
		{in.NetworkConfiguration != nil, "network configuration"},
		{in.PlatformVersion != nil, "platform version"},
		{in.LoadBalancers != nil, "load balancers"},
	} {
		if given.is {
			return invalid("Unable to update %s on services with a %s deployment controller. %s", given.what, controller, use)
		}
	}
	return nil
}

// deleteService drains a service (API DeleteService).
func (s *Server) deleteService(in *ecs.DeleteServiceInput) (*ecs.DeleteServiceOutput, error) {
	c, err := s.cluster(in.Cluster)
	if err != nil {
		return nil, err
	}
	v, err := s.service(c, in.Service)
	if err != nil {
		return nil, err
	}
	if v.status == inactive {
		return nil, refuse("ServiceNotActiveException", "Service was not ACTIVE.")
	}
	if !aws.ToBool(in.Force) && !v.daemon() && v.status == active {
		if v.desired > 0 {
			return nil, invalid("The service cannot be stopped while it is scaled above 0.")
		}
		if len(v.live()) > 0 {
			return nil, invalid("The service cannot be stopped while it has running tasks.")
		}
	}
	if v.status == active {
		s.remember(v)
		v.status, v.desired = draining, 0
		s.after(time.Second, func() { s.touch(v) })
		s.stopAll(v)
	}
	return &ecs.DeleteServiceOutput{Service: s.describe(v)}, nil
}

// drained makes a service INACTIVE when all its tasks are STOPPING or STOPPED, and removes it later. It removes the service deployments
// at once (API DeleteService; guide service-deployment).
func (s *Server) drained(v *service) {
	if slices.ContainsFunc(v.tasks(), func(t *task) bool { return t.status() == "DEACTIVATING" }) {
		return
	}
	v.status, v.deployments, v.records, v.completed = inactive, nil, nil, nil
	s.after(s.options.Timing.Purge, func() {
		if v.cluster.services[v.name()] == v {
			delete(v.cluster.services, v.name())
		}
	})
}
