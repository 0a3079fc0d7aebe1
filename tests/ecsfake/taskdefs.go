package ecsfake

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// family contains the revisions of one name. Numbers are never reused, even after all revisions were deleted (API
// DeleteTaskDefinitions).
type family struct {
	name      string
	last      int32
	revisions []*definition
}

// definition is one revision. Its view is replaced, never changed, so that readers may keep it.
type definition struct {
	view types.TaskDefinition
	tags []types.Tag
	// seen is nil for the time before a recent registration.
	seen lagged[*types.TaskDefinition]
}

func (d *definition) name() string { return fmt.Sprintf("%s:%d", text(d.view.Family), d.view.Revision) }

func (d *definition) arn() string { return text(d.view.TaskDefinitionArn) }

// registerTaskDefinition adds a revision, even if it equals the last one (API RegisterTaskDefinition: no client token).
func (s *Server) registerTaskDefinition(in *ecs.RegisterTaskDefinitionInput) (*ecs.RegisterTaskDefinitionOutput, error) {
	if err := checkDefinition(in); err != nil {
		return nil, err
	}
	f := s.families[*in.Family]
	if f == nil {
		f = &family{name: *in.Family}
		s.families[f.name] = f
	}
	f.last++
	d := &definition{tags: in.Tags, view: s.registered(in, f.last)}
	if s.levers.lag > 0 {
		d.seen.was(nil, s.clock.now.Add(s.levers.lag))
	}
	f.revisions = append(f.revisions, d)
	view := d.view
	return &ecs.RegisterTaskDefinitionOutput{TaskDefinition: &view, Tags: d.tags}, nil
}

// registered returns the form in which AWS stores a registration.
func (s *Server) registered(in *ecs.RegisterTaskDefinitionInput, revision int32) types.TaskDefinition {
	view := types.TaskDefinition{
		TaskDefinitionArn: aws.String(s.arn(fmt.Sprintf("task-definition/%s:%d", *in.Family, revision))),
		Family:            in.Family, Revision: revision, Status: types.TaskDefinitionStatusActive,
		RegisteredAt: moments(s.clock.now), RegisteredBy: aws.String("arn:aws:sts::" + s.options.Account + ":assumed-role/converge/session"),
		ContainerDefinitions: filled(in), Cpu: units(in.Cpu, "vcpu"), Memory: units(in.Memory, "gb"),
		EnableFaultInjection: in.EnableFaultInjection, EphemeralStorage: in.EphemeralStorage,
		ExecutionRoleArn: in.ExecutionRoleArn, TaskRoleArn: in.TaskRoleArn,
		IpcMode: in.IpcMode, PidMode: in.PidMode,
		NetworkMode: in.NetworkMode, PlacementConstraints: in.PlacementConstraints, ProxyConfiguration: in.ProxyConfiguration,
		RequiresCompatibilities: in.RequiresCompatibilities, RuntimePlatform: in.RuntimePlatform, Volumes: in.Volumes,
		Compatibilities: []types.Compatibility{types.CompatibilityEc2},
	}
	if checkFargate(in) == nil {
		view.Compatibilities = append(view.Compatibilities, types.CompatibilityFargate)
	}
	return view
}

// filled returns the containers with the defaults of AWS, a frequent cause of false drift. The defaults are those of API
// ContainerDefinition and PortMapping. It is not documented that the environment is returned in another order, but no order is
// promised, so it is returned sorted.
func filled(in *ecs.RegisterTaskDefinitionInput) []types.ContainerDefinition {
	containers := slices.Clone(in.ContainerDefinitions)
	for i := range containers {
		c := &containers[i]
		if c.Essential == nil {
			c.Essential = aws.Bool(true)
		}
		c.PortMappings = slices.Clone(c.PortMappings)
		for j := range c.PortMappings {
			p := &c.PortMappings[j]
			if p.Protocol == "" {
				p.Protocol = types.TransportProtocolTcp
			}
			if p.HostPort == nil && in.NetworkMode == types.NetworkModeAwsvpc {
				p.HostPort = p.ContainerPort
			}
		}
		c.PortMappings = orEmpty(c.PortMappings)
		c.MountPoints = orEmpty(c.MountPoints)
		c.VolumesFrom = orEmpty(c.VolumesFrom)
		c.SystemControls = orEmpty(c.SystemControls)
		c.Environment = orEmpty(slices.Clone(c.Environment))
		slices.SortFunc(c.Environment, func(a, b types.KeyValuePair) int { return cmp.Compare(text(a.Name), text(b.Name)) })
		c.HealthCheck = checked(c.HealthCheck)
	}
	return containers
}

// checked returns a health check with the defaults of API HealthCheck.
func checked(h *types.HealthCheck) *types.HealthCheck {
	if h == nil {
		return nil
	}
	with := *h
	for _, d := range []struct {
		field     **int32
		otherwise int32
	}{{&with.Interval, 30}, {&with.Timeout, 5}, {&with.Retries, 3}} {
		if *d.field == nil {
			*d.field = aws.Int32(d.otherwise)
		}
	}
	return &with
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// units reads "1 vCPU" and "2 GB" as 1024 and 2048 (API TaskDefinition, cpu and memory).
func units(value *string, unit string) *string {
	if value == nil {
		return nil
	}
	number, with := strings.CutSuffix(strings.ToLower(strings.TrimSpace(*value)), unit)
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !with || err != nil {
		return value
	}
	return aws.String(strconv.Itoa(int(n * 1024)))
}

// definition finds a revision by ARN, family:revision, or the newest active one by family (API DescribeTaskDefinition); nil if there is
// none.
func (s *Server) definition(ref string) *definition {
	name, ok := s.resource("task-definition", ref)
	if !ok {
		return nil
	}
	s.forget()
	name, number, exact := strings.Cut(name, ":")
	f := s.families[name]
	if f == nil {
		return nil
	}
	for _, d := range slices.Backward(f.revisions) {
		if exact && strconv.Itoa(int(d.view.Revision)) == number || !exact && d.view.Status == types.TaskDefinitionStatusActive {
			return d
		}
	}
	return nil
}

// usable returns a definition from which tasks may be started. It refuses INACTIVE and DELETE_IN_PROGRESS ones (API
// DeregisterTaskDefinition, DeleteTaskDefinitions).
func (s *Server) usable(ref *string) (*definition, error) {
	d := s.definition(text(ref))
	switch {
	case d == nil:
		return nil, client("Unable to find task definition: TaskDefinition not found.")
	case d.view.Status != types.TaskDefinitionStatusActive:
		return nil, client("TaskDefinition is inactive")
	}
	return d, nil
}

func (s *Server) describeTaskDefinition(in *ecs.DescribeTaskDefinitionInput) (*ecs.DescribeTaskDefinitionOutput, error) {
	if text(in.TaskDefinition) == "" {
		return nil, client("Task definition can not be blank.")
	}
	d := s.definition(*in.TaskDefinition)
	if d == nil {
		return nil, client("Unable to describe task definition.")
	}
	view := &d.view
	if past, ok := d.seen.seen(s.clock.now); ok {
		view = past
	}
	if view == nil {
		return nil, client("Unable to describe task definition.")
	}
	out := &ecs.DescribeTaskDefinitionOutput{TaskDefinition: view}
	if slices.Contains(in.Include, types.TaskDefinitionFieldTags) {
		out.Tags = orEmpty(d.tags)
	}
	return out, nil
}

// deregisterTaskDefinition makes a revision INACTIVE: it can still be described, and its tasks continue to run (API
// DeregisterTaskDefinition).
func (s *Server) deregisterTaskDefinition(in *ecs.DeregisterTaskDefinitionInput) (*ecs.DeregisterTaskDefinitionOutput, error) {
	name, _ := s.resource("task-definition", text(in.TaskDefinition))
	if !strings.Contains(name, ":") {
		return nil, client("Revision is missing.")
	}
	d := s.definition(name)
	if d == nil {
		return nil, client("Unable to describe task definition.")
	}
	if d.view.Status == types.TaskDefinitionStatusActive {
		s.rewrite(d, types.TaskDefinitionStatusInactive)
		d.view.DeregisteredAt = moments(s.clock.now)
	}
	view := d.view
	return &ecs.DeregisterTaskDefinitionOutput{TaskDefinition: &view}, nil
}

// rewrite changes the status of a revision; readers may see the old one for a while.
func (s *Server) rewrite(d *definition, status types.TaskDefinitionStatus) {
	if s.levers.lag > 0 {
		before := d.view
		d.seen.was(&before, s.clock.now.Add(s.levers.lag))
	}
	d.view.Status = status
}

// deleteTaskDefinitions deletes INACTIVE revisions; used ones stay DELETE_IN_PROGRESS (API DeleteTaskDefinitions).
func (s *Server) deleteTaskDefinitions(in *ecs.DeleteTaskDefinitionsInput) (*ecs.DeleteTaskDefinitionsOutput, error) {
	if n := len(in.TaskDefinitions); n == 0 || n > 10 {
		return nil, invalid("You may specify between 1 and 10 task definitions.")
	}
	out := &ecs.DeleteTaskDefinitionsOutput{TaskDefinitions: []types.TaskDefinition{}, Failures: []types.Failure{}}
	for _, ref := range in.TaskDefinitions {
		name, _ := s.resource("task-definition", ref)
		if !strings.Contains(name, ":") {
			return nil, client("Revision is missing.")
		}
		d := s.definition(ref)
		switch {
		case d == nil:
			out.Failures = append(out.Failures, types.Failure{
				Arn: aws.String(s.arn("task-definition/" + name)), Reason: aws.String("TASK_DEFINITION_NOT_FOUND"),
				Detail: aws.String("The specified task definition does not exist. Specify a valid account, family, revision and try again."),
			})
		case d.view.Status == types.TaskDefinitionStatusActive:
			out.Failures = append(out.Failures, types.Failure{
				Arn: d.view.TaskDefinitionArn, Reason: aws.String("TASK_DEFINITION_IN_USE"),
				Detail: aws.String("The specified task definition is still in ACTIVE status. Please deregister the target and try again."),
			})
		default:
			s.rewrite(d, types.TaskDefinitionStatusDeleteInProgress)
			d.view.DeleteRequestedAt = moments(s.clock.now)
			out.TaskDefinitions = append(out.TaskDefinitions, d.view)
		}
	}
	return out, nil
}

// forget removes the revisions in deletion that no service or task references any more.
func (s *Server) forget() {
	for _, f := range s.families {
		f.revisions = slices.DeleteFunc(f.revisions, func(d *definition) bool {
			return d.view.Status == types.TaskDefinitionStatusDeleteInProgress &&
				d.view.DeleteRequestedAt.Before(s.clock.now) && !s.used(d)
		})
	}
}

func (s *Server) used(d *definition) bool {
	for _, c := range s.clusters {
		for _, v := range c.services {
			if v.status != inactive && slices.ContainsFunc(v.deployments, func(p *deployment) bool { return p.definition == d }) {
				return true
			}
		}
		for _, t := range c.tasks {
			if t.definition == d && t.status() != "STOPPED" {
				return true
			}
		}
	}
	return false
}

// listTaskDefinitions lists ARNs by family and revision; familyPrefix is a whole family name (API ListTaskDefinitions).
func (s *Server) listTaskDefinitions(in *ecs.ListTaskDefinitionsInput) (*ecs.ListTaskDefinitionsOutput, error) {
	status := cmp.Or(in.Status, types.TaskDefinitionStatusActive)
	s.forget()
	arns := []string{}
	for _, name := range slices.Sorted(maps.Keys(s.families)) {
		if in.FamilyPrefix != nil && name != *in.FamilyPrefix {
			continue
		}
		for _, d := range s.families[name].revisions {
			view := &d.view
			if past, ok := d.seen.seen(s.clock.now); ok {
				view = past
			}
			if view != nil && view.Status == status {
				arns = append(arns, d.arn())
			}
		}
	}
	if in.Sort == types.SortOrderDesc {
		slices.Reverse(arns)
	}
	arns, next, err := page(arns, 100, in.MaxResults, in.NextToken)
	if err != nil {
		return nil, err
	}
	return &ecs.ListTaskDefinitionsOutput{TaskDefinitionArns: arns, NextToken: next}, nil
}

// listTaskDefinitionFamilies lists names by prefix; a family is ACTIVE while one of its revisions is (API
// ListTaskDefinitionFamilies).
func (s *Server) listTaskDefinitionFamilies(in *ecs.ListTaskDefinitionFamiliesInput) (*ecs.ListTaskDefinitionFamiliesOutput, error) {
	s.forget()
	names := []string{}
	for _, name := range slices.Sorted(maps.Keys(s.families)) {
		f := s.families[name]
		if len(f.revisions) == 0 || !strings.HasPrefix(name, text(in.FamilyPrefix)) {
			continue
		}
		alive := slices.ContainsFunc(f.revisions, func(d *definition) bool { return d.view.Status == types.TaskDefinitionStatusActive })
		if in.Status == types.TaskDefinitionFamilyStatusActive && !alive || in.Status == types.TaskDefinitionFamilyStatusInactive && alive {
			continue
		}
		names = append(names, name)
	}
	names, next, err := page(names, 100, in.MaxResults, in.NextToken)
	if err != nil {
		return nil, err
	}
	return &ecs.ListTaskDefinitionFamiliesOutput{Families: names, NextToken: next}, nil
}
