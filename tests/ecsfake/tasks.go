package ecsfake

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// longestPause is the maximum pause between two starts of a task that fails repeatedly (guide service-throttle-logic).
const longestPause = 27 * time.Minute

// task is one task on its way from PROVISIONING to STOPPED (guide task-lifecycle-explanation).
type task struct {
	server     *Server
	id         string
	cluster    *cluster
	definition *definition
	behaviour  Behaviour
	view       types.Task
	tags       []types.Tag
	// service and deployment are nil for a one-off task; run then defines how it ends.
	service    *service
	deployment *deployment
	run        Run
	// healthy reports whether the scheduler counts it as healthy; leaving reports that it is to stop or has stopped.
	healthy, leaving bool
	// step counts the transitions, so that an outdated timer has no effect.
	step int
	// hidden is the time until which readers do not see it, while reads lag.
	hidden time.Time
}

func (t *task) status() string { return text(t.view.LastStatus) }

func (t *task) counts() (running, pending int32) {
	switch t.status() {
	case "RUNNING":
		return 1, 0
	case "PROVISIONING", "PENDING":
		return 0, 1
	}
	return 0, 0
}

func counts(tasks []*task) (running, pending int32) {
	for _, t := range tasks {
		r, p := t.counts()
		running, pending = running+r, pending+p
	}
	return running, pending
}

// launch starts a task of a deployment; startedBy is the deployment's id (API Task, startedBy).
func (s *Server) launch(v *service, p *deployment) *task {
	t := s.newTask(v.cluster, p.definition)
	t.service, t.deployment = v, p
	t.view.StartedBy, t.view.Group = aws.String(p.id), aws.String("service:"+v.name())
	t.view.LaunchType = p.launchType
	if t.view.LaunchType == "" && p.fargate() {
		t.view.LaunchType = types.LaunchTypeFargate
	}
	switch v.base.PropagateTags {
	case types.PropagateTagsService:
		t.tags = slices.Clone(v.tags)
	case types.PropagateTagsTaskDefinition:
		t.tags = slices.Clone(p.definition.tags)
	}
	if v.base.EnableECSManagedTags {
		t.tags = tagged(t.tags, []types.Tag{
			{Key: aws.String("aws:ecs:clusterName"), Value: v.cluster.view.ClusterName},
			{Key: aws.String("aws:ecs:serviceName"), Value: v.base.ServiceName},
		})
	}
	p.tasks = append(p.tasks, t)
	t.begin()
	return t
}

func (s *Server) newTask(c *cluster, d *definition) *task {
	t := &task{server: s, id: s.ids.hex("task"), cluster: c, definition: d, behaviour: s.behaviour(d)}
	arn := aws.String(s.arn("task/" + c.name() + "/" + t.id))
	t.view = types.Task{
		TaskArn: arn, ClusterArn: c.view.ClusterArn, TaskDefinitionArn: d.view.TaskDefinitionArn,
		CreatedAt: moments(s.clock.now), DesiredStatus: aws.String("RUNNING"), Cpu: d.view.Cpu, Memory: d.view.Memory,
		HealthStatus: types.HealthStatusUnknown,
	}
	for _, definition := range d.view.ContainerDefinitions {
		t.view.Containers = append(t.view.Containers, types.Container{
			ContainerArn: aws.String(s.arn("container/" + c.name() + "/" + t.id + "/" + s.ids.hex("container"))), TaskArn: arn,
			Name: definition.Name, Image: definition.Image, HealthStatus: types.HealthStatusUnknown,
		})
	}
	c.tasks[t.id] = t
	return t
}

// becomes changes the status of the task and its containers.
func (t *task) becomes(status string) {
	t.step++
	t.view.LastStatus = &status
	t.view.Version++
	containers := slices.Clone(t.view.Containers)
	for i := range containers {
		switch status {
		case "RUNNING", "STOPPED":
			containers[i].LastStatus = &status
		case "PROVISIONING", "PENDING":
			containers[i].LastStatus = aws.String("PENDING")
		}
	}
	t.view.Containers = containers
	if t.service != nil {
		t.server.touch(t.service)
	}
}

// after schedules a transition, which has no effect if the task has changed in the meantime.
func (t *task) after(d time.Duration, do func()) {
	step := t.step
	t.server.after(d, func() {
		if t.step == step {
			do()
		}
	})
}

func (t *task) begin() {
	if t.definition.view.NetworkMode != types.NetworkModeAwsvpc {
		t.pull()
		return
	}
	t.becomes("PROVISIONING")
	t.after(t.server.options.Timing.Provision, t.pull)
}

func (t *task) pull() {
	t.becomes("PENDING")
	t.view.PullStartedAt = moments(t.server.clock.now)
	if t.behaviour.StuckPending {
		return
	}
	t.after(t.server.options.Timing.Pull, t.pulled)
}

func (t *task) pulled() {
	b := t.behaviour
	switch {
	case b.PullError != "":
		t.contain(func(c *types.Container) { c.Reason = &b.PullError })
		t.ends(types.TaskStopCodeTaskFailedToStart, b.PullError, true)
	case b.ExitCode != nil && b.Early:
		t.view.PullStoppedAt = moments(t.server.clock.now)
		t.exits(*b.ExitCode, true)
	default:
		t.view.PullStoppedAt = moments(t.server.clock.now)
		t.runs()
	}
}

// contain changes the first container; the other containers follow it.
func (t *task) contain(change func(*types.Container)) {
	containers := slices.Clone(t.view.Containers)
	change(&containers[0])
	t.view.Containers = containers
}

func (t *task) runs() {
	t.becomes("RUNNING")
	t.view.StartedAt = moments(t.server.clock.now)
	t.print()
	switch b := t.behaviour; {
	case b.ExitCode != nil:
		t.after(b.ExitAfter, func() { t.exits(*b.ExitCode, false) })
	case t.service == nil && t.run.For >= 0:
		t.after(t.run.For, func() { t.exits(t.run.ExitCode, false) })
	}
	t.watch()
}

// watch makes the task healthy or unhealthy. Without any check it counts as healthy after 40 seconds, with a check when that passes
// (API DeploymentConfiguration, minimumHealthyPercent). The grace period ignores the check for a time (API UpdateService,
// healthCheckGracePeriodSeconds).
func (t *task) watch() {
	timing := t.server.options.Timing
	checks := t.definition.checkedHealth()
	if t.deployment != nil {
		checks = t.deployment.checkedHealth()
	}
	switch {
	case !checks:
		t.after(timing.Settled, func() { t.well(types.HealthStatusUnknown) })
	case !t.behaviour.Unhealthy:
		t.after(timing.Health, func() { t.well(types.HealthStatusHealthy) })
	default:
		wait := timing.Unhealthy
		if t.service != nil {
			grace := time.Duration(aws.ToInt32(t.service.base.HealthCheckGracePeriodSeconds)) * time.Second
			wait = max(wait, grace)
		}
		t.after(wait, t.sick)
	}
}

func (t *task) well(status types.HealthStatus) {
	t.healthy = true
	t.health(status)
	if t.service != nil {
		t.server.recovered(t.service, t.deployment)
		t.server.touch(t.service)
	}
}

func (t *task) health(status types.HealthStatus) {
	if t.definition.checkedHealth() {
		t.view.HealthStatus = status
		t.contain(func(c *types.Container) { c.HealthStatus = status })
	}
}

// sick makes the scheduler stop an unhealthy task, which counts as failed; a one-off task continues to run. The reasons are those of
// guide stopped-task-error-codes, the events those of guide service-unhealthy-event-messages.
func (t *task) sick() {
	t.health(types.HealthStatusUnhealthy)
	if t.service == nil {
		return
	}
	reason, told := "Task failed container health checks", "failed container health checks."
	if b := t.deployment.balancers; len(b) > 0 && !t.definition.checkedHealth() {
		group := "(target-group " + text(b[0].TargetGroupArn) + ")"
		reason = "Task failed ELB health checks in " + group
		told = fmt.Sprintf("(port %d) is unhealthy in %s due to (reason Health checks failed).", aws.ToInt32(b[0].ContainerPort), group)
	}
	t.server.event(t.service, "(service %s) (task %s) %s", t.service.name(), t.id, told)
	t.deployment.count()
	t.stop(types.TaskStopCodeServiceSchedulerInitiated, reason)
}

// exits ends the task with its first container, which is essential. A task that never was RUNNING counts as failed.
func (t *task) exits(code int32, failed bool) {
	t.contain(func(c *types.Container) { c.ExitCode = &code })
	t.ends(types.TaskStopCodeEssentialContainerExited, "Essential container in task exited", failed)
}

// ends handles a task that stops without a request.
func (t *task) ends(code types.TaskStopCode, reason string, failed bool) {
	t.leave(code, reason)
	if failed && t.service != nil {
		t.server.startFailed(t.service, t.deployment)
	}
	t.view.ExecutionStoppedAt = moments(t.server.clock.now)
	t.deprovision()
}

func (t *task) leave(code types.TaskStopCode, reason string) {
	t.leaving, t.healthy = true, false
	t.view.DesiredStatus, t.view.StopCode, t.view.StoppedReason = aws.String("STOPPED"), code, &reason
	t.view.StoppingAt = moments(t.server.clock.now)
	t.step++
}

// stop stops a task on request: DEACTIVATING removes it from its load balancers, STOPPING waits for its containers.
func (t *task) stop(code types.TaskStopCode, reason string) {
	if t.leaving {
		return
	}
	started := t.status() == "RUNNING"
	t.leave(code, reason)
	if !started {
		t.deprovision()
		return
	}
	t.becomes("DEACTIVATING")
	t.after(t.server.options.Timing.Deactivate, func() {
		t.becomes("STOPPING")
		t.after(t.server.options.Timing.Stop, func() {
			t.view.ExecutionStoppedAt = moments(t.server.clock.now)
			t.contain(func(c *types.Container) { c.ExitCode = aws.Int32(0) })
			t.deprovision()
		})
	})
}

func (t *task) deprovision() {
	t.becomes("DEPROVISIONING")
	t.after(t.server.options.Timing.Deprovision, t.stopped)
}

// stopped ends the task; it can be described for an hour (API DescribeTasks).
func (t *task) stopped() {
	t.becomes("STOPPED")
	t.view.StoppedAt = moments(t.server.clock.now)
	if p := t.deployment; p != nil {
		p.tasks = slices.DeleteFunc(p.tasks, func(o *task) bool { return o == t })
	}
	t.after(time.Hour, func() { delete(t.cluster.tasks, t.id) })
}

// task finds a task of a cluster by id or ARN; nil if there is none.
func (s *Server) task(c *cluster, ref string) *task {
	id, ok := s.resource("task", ref)
	if ok && strings.HasPrefix(ref, "arn:") {
		id, ok = strings.CutPrefix(id, c.name()+"/")
	}
	if !ok {
		return nil
	}
	return c.tasks[id]
}

func (s *Server) describeTasks(in *ecs.DescribeTasksInput) (*ecs.DescribeTasksOutput, error) {
	c, err := s.cluster(in.Cluster)
	if err != nil {
		return nil, err
	}
	if n := len(in.Tasks); n == 0 || n > 100 {
		return nil, invalid("You may specify between 1 and 100 tasks, not %d.", n)
	}
	out := &ecs.DescribeTasksOutput{Tasks: []types.Task{}, Failures: []types.Failure{}}
	for _, ref := range in.Tasks {
		t := s.task(c, ref)
		if t == nil || s.clock.now.Before(t.hidden) {
			name, _ := s.resource("task", ref)
			if ref == name {
				name = c.name() + "/" + name
			}
			out.Failures = append(out.Failures, missing(s.arn("task/"+name)))
			continue
		}
		view := t.view
		if slices.Contains(in.Include, types.TaskFieldTags) {
			view.Tags = t.tags
		}
		out.Tasks = append(out.Tasks, view)
	}
	return out, nil
}

// listTasks lists the tasks by desired status, running or stopped; startedBy allows no other filter (API ListTasks).
func (s *Server) listTasks(in *ecs.ListTasksInput) (*ecs.ListTasksOutput, error) {
	c, err := s.cluster(in.Cluster)
	if err != nil {
		return nil, err
	}
	if in.StartedBy != nil && (in.ServiceName != nil || in.Family != nil || in.ContainerInstance != nil || in.LaunchType != "") {
		return nil, invalid("startedBy must be the only filter that you use.")
	}
	if in.ServiceName != nil {
		v, err := s.service(c, in.ServiceName)
		if err != nil {
			return nil, err
		}
		in.ServiceName = v.base.ServiceName
	}
	arns := []string{}
	for _, id := range slices.Sorted(maps.Keys(c.tasks)) {
		if t := c.tasks[id]; t.among(in) && !s.clock.now.Before(t.hidden) {
			arns = append(arns, text(t.view.TaskArn))
		}
	}
	arns, next, err := page(arns, 100, in.MaxResults, in.NextToken)
	if err != nil {
		return nil, err
	}
	return &ecs.ListTasksOutput{TaskArns: arns, NextToken: next}, nil
}

// among reports whether a task matches the request.
func (t *task) among(in *ecs.ListTasksInput) bool {
	status := "RUNNING"
	if in.DesiredStatus != "" {
		status = string(in.DesiredStatus)
	}
	return text(t.view.DesiredStatus) == status &&
		(in.StartedBy == nil || text(t.view.StartedBy) == *in.StartedBy) &&
		(in.Family == nil || text(t.definition.view.Family) == *in.Family) &&
		(in.LaunchType == "" || t.view.LaunchType == in.LaunchType) &&
		(in.ServiceName == nil || t.service != nil && t.service.name() == *in.ServiceName)
}

// stopTask stops a task; the service of the task then starts another one (API StopTask).
func (s *Server) stopTask(in *ecs.StopTaskInput) (*ecs.StopTaskOutput, error) {
	c, err := s.cluster(in.Cluster)
	if err != nil {
		return nil, err
	}
	t := s.task(c, text(in.Task))
	if t == nil {
		return nil, invalid("The referenced task was not found.")
	}
	reason := "Task stopped by user"
	if in.Reason != nil {
		reason = *in.Reason
	}
	if len(reason) > 1024 {
		return nil, invalid("The reason must be at most 1024 characters.")
	}
	t.stop(types.TaskStopCodeUserInitiated, reason)
	view := t.view
	return &ecs.StopTaskOutput{Task: &view}, nil
}
