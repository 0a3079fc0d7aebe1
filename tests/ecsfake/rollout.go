package ecsfake

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// deployment is one entry of deployments[]: tasks of one shape.
type deployment struct {
	shape
	id                 string
	createdAt, changed time.Time
	state              types.DeploymentRolloutState
	reason             string
	// failed is failedTasks: the number of failed tasks since the last healthy one (API Deployment).
	failed   int32
	tasks    []*task
	record   *record
	revision *types.ServiceRevision
	// rollsBack marks a deployment that a rollback restores.
	rollsBack bool
	// retry is the time at which the throttled scheduler starts the next task. stuck is set once it has reported why it cannot
	// continue.
	retry time.Time
	stuck bool
	// baked is the time at which alarms and the bake time of BLUE_GREEN no longer delay it; baking reports whether that time is set.
	baked  time.Time
	baking bool
}

func (p *deployment) live() []*task {
	return slices.DeleteFunc(slices.Clone(p.tasks), func(t *task) bool { return t.leaving })
}

func (p *deployment) tell(now time.Time, state types.DeploymentRolloutState, format string, args ...any) {
	p.state, p.reason, p.changed = state, fmt.Sprintf(format, args...), now
}

// count counts a failed task. The service deployment counts it only while it is in progress.
func (p *deployment) count() {
	p.failed++
	if p.inProgress() {
		p.record.failures = max(p.record.failures, p.failed)
	}
}

func (p *deployment) inProgress() bool { return p.state == types.DeploymentRolloutStateInProgress }

func (v *service) primary() *deployment {
	if len(v.deployments) == 0 {
		return nil
	}
	return v.deployments[0]
}

func (v *service) tasks() []*task {
	var all []*task
	for _, p := range v.deployments {
		all = append(all, p.tasks...)
	}
	return all
}

func (v *service) live() []*task {
	var all []*task
	for _, p := range v.deployments {
		all = append(all, p.live()...)
	}
	return all
}

func healthy(tasks []*task) int {
	n := 0
	for _, t := range tasks {
		if t.healthy && !t.leaving {
			n++
		}
	}
	return n
}

// wanted returns the desired number of tasks: for DAEMON one on each instance (API Service, schedulingStrategy).
func (v *service) wanted() int {
	if v.daemon() && v.status == active {
		return v.cluster.instances
	}
	return int(v.desired)
}

// deploy starts a deployment of the service's current shape; the PRIMARY deployment becomes ACTIVE (API Deployment, status).
func (s *Server) deploy(v *service) {
	p := s.newDeployment(v.shape, s.newRevision(v, v.shape))
	p.record = s.newRecord(v, p)
	s.lead(v, p)
}

func (s *Server) newDeployment(shape shape, revision *types.ServiceRevision) *deployment {
	return &deployment{shape: shape, id: "ecs-svc/" + s.ids.digits(), createdAt: s.clock.now, revision: revision}
}

// lead makes a deployment the PRIMARY one, in progress.
func (s *Server) lead(v *service, p *deployment) {
	p.failed, p.stuck, p.baking, p.baked, p.retry = 0, false, false, time.Time{}, time.Time{}
	p.tell(s.clock.now, types.DeploymentRolloutStateInProgress, "ECS deployment %s in progress.", p.id)
	v.deployments = slices.DeleteFunc(v.deployments, func(o *deployment) bool { return o == p })
	v.deployments = slices.Insert(v.deployments, 0, p)
	s.touch(v)
}

// schedule runs the service scheduler for one service.
func (s *Server) schedule(v *service) {
	if v.status == draining {
		s.drained(v)
		return
	}
	if v.status == inactive || v.primary() == nil {
		return
	}
	s.judge(v)
	s.shift(v)
	s.replace(v)
	s.start(v)
	s.finish(v)
}

// bounds returns the minimum number of healthy tasks and the maximum number of tasks during a deployment (API DeploymentConfiguration:
// the lower one rounded up, the upper one down).
func (v *service) bounds() (lower, upper int) {
	c, n := v.base.DeploymentConfiguration, v.wanted()
	return (n*int(*c.MinimumHealthyPercent) + 99) / 100, n * int(*c.MaximumPercent) / 100
}

// replace stops surplus tasks: those of older deployments as long as enough healthy ones remain, and those of the PRIMARY above the
// desired count.
func (s *Server) replace(v *service) {
	p := v.primary()
	var stopped []*task
	stop := func(t *task) {
		t.stop(types.TaskStopCodeServiceSchedulerInitiated, "Scaling activity initiated by (deployment "+t.deployment.id+")")
		stopped = append(stopped, t)
	}
	if p.state != types.DeploymentRolloutStateFailed && !v.bluesStay() {
		lower, _ := v.bounds()
		spare := healthy(v.live()) - lower
		for _, old := range slices.Backward(v.deployments[1:]) {
			for _, t := range old.live() {
				if t.healthy && spare <= 0 {
					continue
				}
				if t.healthy {
					spare--
				}
				stop(t)
			}
		}
	}
	surplus := p.live()
	slices.SortStableFunc(surplus, func(a, b *task) int { return order(!a.healthy, !b.healthy) })
	for _, t := range surplus[:max(0, len(surplus)-v.wanted())] {
		stop(t)
	}
	s.tellStopped(v, stopped)
}

// order sorts true before false.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func (s *Server) tellStopped(v *service, stopped []*task) {
	if len(stopped) > 0 {
		s.event(v, "(service %s) has stopped %d running tasks: %s.", v.name(), len(stopped), named(stopped))
	}
}

func named(tasks []*task) string {
	names := make([]string, len(tasks))
	for i, t := range tasks {
		names[i] = "(task " + t.id + ")"
	}
	return strings.Join(names, " ")
}

// start starts as many tasks of the PRIMARY deployment as allowed; a failed deployment starts none (API Deployment, rolloutState).
func (s *Server) start(v *service) {
	p := v.primary()
	room := v.wanted() - len(p.live())
	if _, upper := v.bounds(); !v.shifts() {
		room = min(room, upper-len(v.live()))
	}
	if p.state == types.DeploymentRolloutStateFailed || v.awaitsScaleUp() || room <= 0 || s.clock.now.Before(p.retry) {
		s.reportStuck(v, room)
		return
	}
	if s.unplaceable(v, p) {
		return
	}
	var started []*task
	for range room {
		started = append(started, s.launch(v, p))
	}
	s.event(v, "(service %s) has started %d tasks: %s.", v.name(), len(started), named(started))
}

// unplaceable reports whether the scheduler finds no capacity for a task. That counts as a failed task (API Deployment, failedTasks),
// and the scheduler retries.
func (s *Server) unplaceable(v *service, p *deployment) bool {
	full := s.behaviour(p.definition).Unplaceable || !p.fargate() && v.cluster.instances == 0
	if full {
		s.warn(v, "(service "+v.name()+") was unable to place a task because no container instance met all of its requirements.")
		p.count()
		p.retry = s.clock.now.Add(s.options.Timing.Restart)
		s.after(s.options.Timing.Restart, func() { s.touch(v) })
		s.touch(v)
	}
	return full
}

// reportStuck reports once that minimum and maximum do not allow the deployment to continue (guide service-event-messages-list).
func (s *Server) reportStuck(v *service, room int) {
	p := v.primary()
	settled := !slices.ContainsFunc(v.tasks(), func(t *task) bool { return t.leaving || !t.healthy })
	if room > 0 || p.stuck || !p.inProgress() || v.shifts() || len(p.live()) >= v.wanted() || !settled {
		return
	}
	p.stuck = true
	s.event(v, "(service %s) was unable to stop or start tasks during a deployment because of the service deployment configuration. "+
		"Update the minimumHealthyPercent or maximumPercent value and try again.", v.name())
}

// finish removes deployments without tasks, and completes the PRIMARY one when the service has reached a steady state (API Deployment,
// rolloutState).
func (s *Server) finish(v *service) {
	p := v.primary()
	v.deployments = slices.DeleteFunc(v.deployments, func(o *deployment) bool { return o != p && len(o.tasks) == 0 })
	if !p.inProgress() {
		return
	}
	if n := len(p.live()); n != v.wanted() || healthy(p.tasks) != n {
		return
	}
	if !v.shifted() || len(v.deployments) > 1 || !s.bake(v, p, s.alarmBake(v)) {
		return
	}
	p.tell(s.clock.now, types.DeploymentRolloutStateCompleted, "ECS deployment %s completed.", p.id)
	v.completed = p
	s.succeeded(p)
	s.event(v, "(service %s) (deployment %s) deployment completed.", v.name(), p.id)
	s.event(v, "%s", v.steady())
}

// bake reports whether a deployment has been watched for the given time since it finished.
func (s *Server) bake(v *service, p *deployment, d time.Duration) bool {
	if !p.baking {
		p.baking, p.baked = true, s.clock.now.Add(d)
		s.after(d, func() { s.touch(v) })
	}
	return !s.clock.now.Before(p.baked)
}

func (s *Server) alarmBake(v *service) time.Duration {
	if a := v.base.DeploymentConfiguration.Alarms; a != nil && a.Enable {
		return s.options.Timing.AlarmBake
	}
	return 0
}

// event adds to the events of a service, newest first. The latest 100 stay (API Service, events).
func (s *Server) event(v *service, format string, args ...any) {
	e := types.ServiceEvent{Id: aws.String(s.ids.hex("event")), CreatedAt: moments(s.clock.now), Message: aws.String(fmt.Sprintf(format, args...))}
	v.events = slices.Insert(v.events, 0, e)
	v.events = v.events[:min(len(v.events), 100)]
}

// warn adds an event, unless the same event was added within six hours and the service was not steady since (guide
// service-event-messages).
func (s *Server) warn(v *service, message string) {
	for _, e := range v.events {
		if text(e.Message) == v.steady() || s.clock.now.Sub(*e.CreatedAt) >= 6*time.Hour {
			break
		}
		if text(e.Message) == message {
			return
		}
	}
	s.event(v, "%s", message)
}

func (v *service) steady() string { return "(service " + v.name() + ") has reached a steady state." }

// stopAll stops all tasks of a service.
func (s *Server) stopAll(v *service) {
	stopped := v.live()
	for _, t := range stopped {
		t.stop(types.TaskStopCodeServiceSchedulerInitiated, "Scaling activity initiated by (deployment "+t.deployment.id+")")
	}
	s.tellStopped(v, stopped)
}
