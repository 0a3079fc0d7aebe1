package ecsfake

import (
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// ranTasks is the result that belongs to a client token of RunTask.
type ranTasks struct {
	request ecs.RunTaskInput
	tasks   []*task
}

// runTask starts up to ten one-off tasks (API RunTask). A task that cannot be placed is a failure in an answer with status 200 (guide
// api_failures_messages).
func (s *Server) runTask(in *ecs.RunTaskInput) (*ecs.RunTaskOutput, error) {
	c, err := s.cluster(in.Cluster)
	if err != nil {
		return nil, err
	}
	if ran := c.tokens[text(in.ClientToken)]; in.ClientToken != nil && ran != nil {
		return ran.again(in)
	}
	d, err := s.usable(in.TaskDefinition)
	if err != nil {
		return nil, err
	}
	if err := checkRun(c, d, in); err != nil {
		return nil, err
	}
	out := &ecs.RunTaskOutput{Tasks: []types.Task{}, Failures: []types.Failure{}}
	var tasks []*task
	for range count(in) {
		if s.behaviour(d).Unplaceable || !wishes(in).fargate() && c.instances == 0 {
			out.Failures = append(out.Failures, types.Failure{Arn: c.view.ClusterArn, Reason: aws.String("RESOURCE:MEMORY")})
			continue
		}
		t := s.runOne(c, d, in)
		tasks = append(tasks, t)
		out.Tasks = append(out.Tasks, t.view)
	}
	if in.ClientToken != nil {
		c.tokens[*in.ClientToken] = &ranTasks{*in, tasks}
	}
	return out, nil
}

// again answers a repeated client token: an equal request gets the same tasks, a different one a conflict (API RunTask,
// ConflictException).
func (r *ranTasks) again(in *ecs.RunTaskInput) (*ecs.RunTaskOutput, error) {
	out := &ecs.RunTaskOutput{Tasks: []types.Task{}, Failures: []types.Failure{}}
	arns := []string{}
	for _, t := range r.tasks {
		out.Tasks = append(out.Tasks, t.view)
		arns = append(arns, text(t.view.TaskArn))
	}
	if !same(*in, r.request) {
		return nil, &apiError{
			code: "ConflictException", resources: arns,
			message: "The provided clientToken is already in use with a different RunTask request.",
		}
	}
	return out, nil
}

func count(in *ecs.RunTaskInput) int {
	if in.Count == nil {
		return 1
	}
	return int(*in.Count)
}

// wishes returns the requested placement of a task.
func wishes(in *ecs.RunTaskInput) shape {
	return shape{launchType: in.LaunchType, strategy: in.CapacityProviderStrategy, network: in.NetworkConfiguration}
}

func checkRun(c *cluster, d *definition, in *ecs.RunTaskInput) error {
	switch {
	case count(in) < 1 || count(in) > 10:
		return invalid("Count must be between 1 and 10.")
	case in.ClientToken != nil && len(*in.ClientToken) > 64:
		return invalid("The client token must be at most 64 characters.")
	case len(text(in.StartedBy)) > 128:
		return invalid("startedBy must be at most 128 characters.")
	}
	wanted := wishes(in)
	wanted.definition, wanted.platform = d, in.PlatformVersion
	if err := (change{service: &service{cluster: c, shape: wanted}}).refused(); err != nil {
		return err
	}
	if in.Overrides != nil {
		for _, o := range in.Overrides.ContainerOverrides {
			if !slices.ContainsFunc(d.view.ContainerDefinitions, func(c types.ContainerDefinition) bool { return text(c.Name) == text(o.Name) }) {
				return invalid("Override for container named %s is not a container in the TaskDefinition.", text(o.Name))
			}
		}
	}
	return checkTags(nil, in.Tags)
}

func (s *Server) runOne(c *cluster, d *definition, in *ecs.RunTaskInput) *task {
	t := s.newTask(c, d)
	t.view.StartedBy, t.view.Overrides, t.view.LaunchType = in.StartedBy, in.Overrides, in.LaunchType
	if t.view.Group = in.Group; in.Group == nil {
		t.view.Group = aws.String("family:" + text(d.view.Family))
	}
	if in.PropagateTags == types.PropagateTagsTaskDefinition {
		t.tags = slices.Clone(d.tags)
	}
	t.tags = tagged(t.tags, in.Tags)
	t.run = s.run(command(d, in.Overrides))
	t.hidden = s.clock.now.Add(s.levers.lag)
	t.begin()
	return t
}

// command returns the command of the first container.
func command(d *definition, overrides *types.TaskOverride) []string {
	first := d.view.ContainerDefinitions[0]
	if overrides != nil {
		for _, o := range overrides.ContainerOverrides {
			if text(o.Name) == text(first.Name) && len(o.Command) > 0 {
				return o.Command
			}
		}
	}
	return first.Command
}
