package ecsfake

import (
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// The strategies that shift traffic, BLUE_GREEN, LINEAR and CANARY, go through the stages of API ServiceDeployment, lifecycleStage
// (guides blue-green-deployment-how-it-works, canary-deployment, deployment-lifecycle-hooks). There is no traffic: only the stage and
// the weights show the shifts. Not documented: that the green deployment is PRIMARY all the time (kayac/ecspresso#860 shows it), that a
// stage moves updatedAt, and that the first deployment of a service has nothing to shift from and goes through no stage.

// stages returns the stages of every deployment. RECONCILE_SERVICE is only for one that begins while another is in progress.
func stages() []types.ServiceDeploymentLifecycleStage {
	return []types.ServiceDeploymentLifecycleStage{
		types.ServiceDeploymentLifecycleStagePreScaleUp, types.ServiceDeploymentLifecycleStageScaleUp, types.ServiceDeploymentLifecycleStagePostScaleUp,
		types.ServiceDeploymentLifecycleStageTestTrafficShift, types.ServiceDeploymentLifecycleStagePostTestTrafficShift,
		"PRE_PRODUCTION_TRAFFIC_SHIFT", // the SDK has it only for hooks
		types.ServiceDeploymentLifecycleStageProductionTrafficShift, types.ServiceDeploymentLifecycleStagePostProductionTrafficShift,
		types.ServiceDeploymentLifecycleStageBakeTime, types.ServiceDeploymentLifecycleStageCleanUp,
	}
}

// shifting is the progress of a service deployment through the stages.
type shifting struct {
	step      int             // of the production traffic
	continued map[string]bool // hooks that paused it and were continued, by id
}

func (v *service) shifts() bool {
	switch v.base.DeploymentConfiguration.Strategy {
	case types.DeploymentStrategyBlueGreen, types.DeploymentStrategyLinear, types.DeploymentStrategyCanary:
		return true
	}
	return false
}

// inStages reports whether the PRIMARY deployment goes through stages. A rollback does not, nor does a deployment with nothing to shift
// from.
func (v *service) inStages() bool {
	p := v.primary()
	return v.shifts() && p.inProgress() && !p.rollsBack && len(v.deployments) > 1
}

func (v *service) stage() types.ServiceDeploymentLifecycleStage {
	return v.primary().record.view.LifecycleStage
}

// shifted reports whether the old tasks are no longer needed.
func (v *service) shifted() bool {
	return !v.inStages() || v.stage() == types.ServiceDeploymentLifecycleStageCleanUp
}

// bluesStay reports whether the old tasks may not be stopped yet. A rollback stops the green ones at once.
func (v *service) bluesStay() bool { return !v.shifted() }

// awaitsScaleUp reports whether no green task may start yet.
func (v *service) awaitsScaleUp() bool {
	return v.inStages() && v.stage() == types.ServiceDeploymentLifecycleStagePreScaleUp
}

// shift advances a deployment through its stages as far as possible now.
func (s *Server) shift(v *service) {
	for v.inStages() && s.past(v) {
		p := v.primary()
		p.baking = false
		r := p.record
		r.view.LifecycleStage = stages()[slices.Index(stages(), v.stage())+1]
		r.view.UpdatedAt = moments(s.clock.now)
		s.touch(v)
	}
}

// past reports whether a stage has ended.
func (s *Server) past(v *service) bool {
	p := v.primary()
	if !s.hooked(v) {
		return false
	}
	switch v.stage() {
	case types.ServiceDeploymentLifecycleStageScaleUp:
		n := len(p.live())
		return n == v.wanted() && healthy(p.tasks) == n
	case types.ServiceDeploymentLifecycleStageProductionTrafficShift:
		return s.moved(v)
	case types.ServiceDeploymentLifecycleStageBakeTime:
		return s.bake(v, p, minutes(v.base.DeploymentConfiguration.BakeTimeInMinutes, 0))
	case types.ServiceDeploymentLifecycleStageCleanUp:
		return false
	}
	return true
}

func minutes(given *int32, otherwise int32) time.Duration {
	if given != nil {
		otherwise = *given
	}
	return time.Duration(otherwise) * time.Minute
}

// moved reports whether all production traffic was shifted, step by step (API LinearConfiguration, CanaryConfiguration).
func (s *Server) moved(v *service) bool {
	p := v.primary()
	percents, pause := v.steps()
	for {
		p.record.weigh(percents[p.record.step])
		if p.record.step == len(percents)-1 {
			return true
		}
		if !s.bake(v, p, pause) {
			return false
		}
		p.baking = false
		p.record.step++
	}
}

// steps returns the percentages of the production traffic, and the pause after each but the last.
func (v *service) steps() (percents []float64, pause time.Duration) {
	c := v.base.DeploymentConfiguration
	switch c.Strategy {
	case types.DeploymentStrategyCanary:
		canary := aws.ToFloat64(or(c.CanaryConfiguration).CanaryPercent)
		if canary == 0 {
			canary = 5
		}
		return []float64{canary, 100}, minutes(or(c.CanaryConfiguration).CanaryBakeTimeInMinutes, 10)
	case types.DeploymentStrategyLinear:
		step := aws.ToFloat64(or(c.LinearConfiguration).StepPercent)
		if step == 0 {
			step = 10
		}
		for at := step; at < 100; at += step {
			percents = append(percents, at)
		}
		return append(percents, 100), minutes(or(c.LinearConfiguration).StepBakeTimeInMinutes, 6)
	}
	return []float64{100}, 0
}

// or dereferences a pointer; nil gives the zero value.
func or[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// hooked reports whether the hooks of the current stage have all succeeded. A failed hook rolls the deployment back (guide
// deployment-lifecycle-hooks).
func (s *Server) hooked(v *service) bool {
	r := v.primary().record
	r.view.LifecycleHookDetails = nil
	passed := true
	for i, hook := range v.base.DeploymentConfiguration.LifecycleHooks {
		if !slices.Contains(hook.LifecycleStages, types.DeploymentLifecycleHookStage(v.stage())) {
			continue
		}
		d := s.hookStatus(r, hook, fmt.Sprintf("ecs-hook-%d-%s", i, v.stage()))
		r.view.LifecycleHookDetails = append(r.view.LifecycleHookDetails, d)
		if d.Status == types.DeploymentLifecycleHookStatusFailed {
			s.fails(v, failure{"lifecycle hook failed.", "Lifecycle hook " + text(d.TargetArn) + " failed at " + string(v.stage()) + ".", true})
			return false
		}
		passed = passed && d.Status == types.DeploymentLifecycleHookStatusSucceeded
	}
	return passed
}

// hookStatus returns the status of a hook. A paused hook continues after ContinueServiceDeployment (guide pause-lifecycle-hooks).
func (s *Server) hookStatus(r *record, hook types.DeploymentLifecycleHook, id string) types.DeploymentLifecycleHookDetail {
	d := types.DeploymentLifecycleHookDetail{HookId: &id, TargetArn: hook.HookTargetArn, TargetType: hook.TargetType, Status: types.DeploymentLifecycleHookStatusSucceeded}
	switch status := s.levers.hooks[text(hook.HookTargetArn)]; {
	case hook.TargetType == types.DeploymentLifecycleHookTargetTypePause && !r.continued[id]:
		d.Status = types.DeploymentLifecycleHookStatusAwaitingAction
	case hook.TargetType != types.DeploymentLifecycleHookTargetTypePause && status != "":
		d.Status = status
	}
	return d
}

// continueServiceDeployment continues a paused deployment, or rolls it back (guide continue-service-deployment).
func (s *Server) continueServiceDeployment(in *ecs.ContinueServiceDeploymentInput) (*ecs.ContinueServiceDeploymentOutput, error) {
	r := s.record(text(in.ServiceDeploymentArn))
	if r == nil {
		return nil, refuse("ServiceDeploymentNotFoundException", "The service deployment does not exist.")
	}
	waits := slices.ContainsFunc(r.view.LifecycleHookDetails, func(d types.DeploymentLifecycleHookDetail) bool {
		return text(d.HookId) == text(in.HookId) && d.Status == types.DeploymentLifecycleHookStatusAwaitingAction
	})
	if !waits || r.service.primary() != r.primary {
		return nil, invalid("The hook does not await an action.")
	}
	s.remember(r.service)
	if in.Action == types.DeploymentLifecycleHookActionRollback {
		s.fails(r.service, failure{"rolled back at a pause hook.", "Rolled back at a pause hook by a user.", true})
	} else {
		if r.continued == nil {
			r.continued = map[string]bool{}
		}
		r.continued[text(in.HookId)] = true
	}
	s.touch(r.service)
	return &ecs.ContinueServiceDeploymentOutput{ServiceDeploymentArn: in.ServiceDeploymentArn}, nil
}

// weigh sends this percentage of the production traffic to the new revision.
func (r *record) weigh(percent float64) {
	r.view.TargetServiceRevision = &types.ServiceRevisionSummary{RequestedProductionTrafficWeight: &percent}
}
