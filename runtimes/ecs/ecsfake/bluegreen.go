package ecsfake

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// The stages of BLUE_GREEN of guide blue-green-deployment-how-it-works, without traffic: the shifts take no time, and
// nobody but the stage and the weights tells of them. The green deployment is PRIMARY all the time (not documented).

func (v *service) blueGreen() bool {
	return v.base.DeploymentConfiguration.Strategy == types.DeploymentStrategyBlueGreen
}

// bluesStay is whether the old tasks may not be stopped yet: before the clean-up. A rollback stops the green ones at once.
func (v *service) bluesStay() bool {
	p := v.primary()
	return v.blueGreen() && p.inProgress() && !p.rollsBack && p.record.view.LifecycleStage != types.ServiceDeploymentLifecycleStageCleanUp
}

// shifted moves a blue/green deployment, whose green tasks are all healthy, on to its clean-up; it is true when that is
// done, and at once for a rolling one, for a rollback, and where there is nothing to shift from.
func (s *Server) shifted(v *service) bool {
	p := v.primary()
	if !v.blueGreen() || p.rollsBack || len(v.deployments) == 1 {
		return true
	}
	stage := &p.record.view.LifecycleStage
	if *stage == types.ServiceDeploymentLifecycleStageScaleUp {
		*stage = types.ServiceDeploymentLifecycleStageBakeTime
		p.record.shift(100)
	}
	if *stage == types.ServiceDeploymentLifecycleStageBakeTime &&
		s.bake(v, p, time.Duration(aws.ToInt32(v.base.DeploymentConfiguration.BakeTimeInMinutes))*time.Minute) {
		*stage = types.ServiceDeploymentLifecycleStageCleanUp
		p.baking = false
		s.touch(v)
	}
	return *stage == types.ServiceDeploymentLifecycleStageCleanUp
}
