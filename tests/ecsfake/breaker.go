package ecsfake

import (
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// threshold returns the number of failed tasks that trips the breaker: half the desired count, at least 3 and at most 200, rounded up
// (guide deployment-circuit-breaker), unless thresholdConfiguration overrides it (API ThresholdConfiguration).
func (v *service) threshold() int32 {
	kind, value := types.ThresholdTypeBoundedPercent, int32(50)
	if t := v.base.DeploymentConfiguration.DeploymentCircuitBreaker.ThresholdConfiguration; t != nil {
		kind, value = t.Type, t.Value
	}
	percent := (int32(v.wanted())*value + 99) / 100
	switch kind {
	case types.ThresholdTypeCount:
		return max(1, value)
	case types.ThresholdTypeUnboundedPercent:
		return max(1, percent)
	}
	return min(max(percent, 3), 200)
}

// judge fails a deployment in progress whose breaker has tripped or whose alarm has gone off.
func (s *Server) judge(v *service) {
	p := v.primary()
	if p == nil || !p.inProgress() {
		return
	}
	c := v.base.DeploymentConfiguration
	if b := c.DeploymentCircuitBreaker; b.Enable && p.failed >= v.threshold() {
		p.record.tripped = true
		s.fails(v, failure{"tasks failed to start.", "ECS deployment circuit breaker: tasks failed to start.", b.Rollback})
		return
	}
	if a := c.Alarms; a != nil && a.Enable && !p.rollsBack {
		on := slices.DeleteFunc(slices.Clone(a.AlarmNames), func(name string) bool { return !s.levers.alarms[name] })
		if p.record.alarms = on; len(on) > 0 {
			s.fails(v, failure{"alarm detected.", "ECS deployment alarms: alarm detected.", a.Rollback})
		}
	}
}

// failure is the reason why a deployment fails, and whether it is rolled back.
type failure struct {
	event, reason string
	rollback      bool
}

// fails marks the PRIMARY deployment as failed. It rolls back if that is configured and there is a completed deployment. Otherwise the
// deployment stays as it is, stalled (guide deployment-circuit-breaker).
func (s *Server) fails(v *service, why failure) {
	p := v.primary()
	p.tell(s.clock.now, types.DeploymentRolloutStateFailed, "%s", why.reason)
	s.event(v, "(service %s) (deployment %s) deployment failed: %s", v.name(), p.id, why.event)
	switch {
	case p.rollsBack:
		p.record.end(s.clock.now, types.ServiceDeploymentStatusRollbackFailed, why.reason)
	case !why.rollback || v.completed == nil || v.completed == p:
		// API ServiceDeployment, stoppedAt: without the rollback option it stops. Its status when there is nothing to roll back to is
		// not documented.
		p.record.end(s.clock.now, types.ServiceDeploymentStatusStopped, why.reason)
		p.record.view.StoppedAt = moments(s.clock.now)
	default:
		s.rollBack(v, why.reason)
	}
}

// rollBack returns to the last completed deployment, which is then no longer completed (guide deployment-circuit-breaker). The
// service's tags do not change.
func (s *Server) rollBack(v *service, reason string) {
	failed, back := v.primary(), v.completed
	if s.options.Rollback == RollbackStartsNew {
		back = s.newDeployment(back.shape, back.revision)
	}
	back.record, back.rollsBack, v.completed = failed.record, true, nil
	v.shape = back.shape
	s.event(v, "(service %s) rolling back to deployment %s.", v.name(), back.id)
	s.lead(v, back)
	r := &failed.record.view
	r.Status, r.StatusReason, r.UpdatedAt = types.ServiceDeploymentStatusRollbackInProgress, aws.String(reason), moments(s.clock.now)
	r.Rollback = &types.Rollback{Reason: aws.String(reason), StartedAt: moments(s.clock.now), ServiceRevisionArn: back.revision.ServiceRevisionArn}
	if v.shifts() {
		failed.record.weigh(0)
	}
}

// succeeded ends the service deployment of a deployment that reached its steady state.
func (s *Server) succeeded(p *deployment) {
	status := types.ServiceDeploymentStatusSuccessful
	if p.rollsBack {
		status = types.ServiceDeploymentStatusRollbackSuccessful
	}
	reason := text(p.record.view.StatusReason)
	p.record.end(s.clock.now, status, reason)
	p.rollsBack = false
}

// startFailed counts a task that never was RUNNING, and throttles the scheduler after a few in a row. The number, and how the pauses
// grow, are not documented (guide service-throttle-logic).
func (s *Server) startFailed(v *service, p *deployment) {
	p.count()
	if p.failed >= 3 {
		pause := s.options.Timing.Restart
		for i := int32(3); i < p.failed && pause < longestPause; i++ {
			pause *= 2
		}
		pause = min(pause, longestPause)
		p.retry = s.clock.now.Add(pause)
		s.after(pause, func() { s.touch(v) })
		s.warn(v, "(service "+v.name()+") is unable to consistently start tasks successfully.")
	}
	s.touch(v)
}

// recovered resets the count at a healthy task (API DeploymentCircuitBreaker, resetOnHealthyTask, default true).
func (s *Server) recovered(v *service, p *deployment) {
	if reset := v.base.DeploymentConfiguration.DeploymentCircuitBreaker.ResetOnHealthyTask; reset == nil || *reset {
		p.failed = 0
	}
}
