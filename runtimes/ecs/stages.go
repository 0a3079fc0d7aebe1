package ecs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/converge-engine/converge/entities"
)

// ECS takes a service with the strategy BLUE_GREEN, LINEAR or CANARY through stages, including hooks and a bake time. The earlier
// version stays until they are over, and ECS returns to it when a hook or an alarm fails.

// stage is the progress of such a deployment, as last read.
type stage struct {
	at         time.Time // when it was read
	deployment string
	found      *types.ServiceDeployment // nil: unknown
}

// isStaged reports whether the PRIMARY deployment goes through stages.
func isStaged(s *types.Service) bool {
	p, c := primaryOf(s), s.DeploymentConfiguration
	return p != nil && p.RolloutState == types.DeploymentRolloutStateInProgress && s.CurrentServiceDeployment != nil &&
		c != nil && c.Strategy != "" && c.Strategy != types.DeploymentStrategyRolling
}

// stageOf reads the progress from time to time, as long as the rate limit leaves enough calls for more important requests. A failure
// has no other effect.
func (c *cluster) stageOf(ctx context.Context, s *types.Service) *types.ServiceDeployment {
	c.mu.Lock()
	e := c.entry(text(s.ServiceName))
	known := e.stage
	if known.deployment != text(s.CurrentServiceDeployment) {
		known = stage{deployment: text(s.CurrentServiceDeployment)}
	}
	if time.Since(known.at) < c.timing.maxAge || !c.account.limiter.hasSpare(serviceReads) {
		c.mu.Unlock()
		return known.found
	}
	known.at = time.Now()
	e.stage = known
	c.mu.Unlock()
	client, err := c.account.client(ctx)
	if err != nil {
		return known.found
	}
	out, err := call(ctx, c, serviceReads, client.DescribeServiceDeployments, &ecs.DescribeServiceDeploymentsInput{ServiceDeploymentArns: []string{known.deployment}})
	if err != nil || len(out.ServiceDeployments) == 0 {
		return known.found
	}
	known.found = &out.ServiceDeployments[0]
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entry(text(s.ServiceName)).stage = known
	return known.found
}

// stageObject reports the deployment as an object of its own, whose name contains all of its changing state.
func stageObject(s *types.Service, d *types.ServiceDeployment) *entities.Object {
	if d == nil || d.LifecycleStage == "" {
		return nil
	}
	parts := []string{string(d.LifecycleStage)}
	if weight, ok := weightOf(d); ok {
		parts = append(parts, weight)
	}
	o := &entities.Object{Type: "ServiceDeployment", Status: entities.ObjectPending, Message: stageMessage(s, d)}
	for _, h := range d.LifecycleHookDetails {
		parts = append(parts, "hook "+string(h.Status))
		if h.Status == types.DeploymentLifecycleHookStatusAwaitingAction && d.UpdatedAt != nil {
			o.Events = append(o.Events, entities.Event{Timestamp: d.UpdatedAt.UTC(), Message: fmt.Sprintf(
				"to continue (or roll back with --action ROLLBACK): aws ecs continue-service-deployment --action CONTINUE --hook-id %s --service-deployment-arn %s", text(h.HookId), text(d.ServiceDeploymentArn))})
		}
	}
	o.Name = text(s.ServiceName) + " " + strings.Join(parts, ", ")
	return o
}

// weightOf is the share of the production traffic that goes to the new revision.
func weightOf(d *types.ServiceDeployment) (string, bool) {
	if d.TargetServiceRevision == nil || d.TargetServiceRevision.RequestedProductionTrafficWeight == nil {
		return "", false
	}
	return fmt.Sprintf("%g%%", *d.TargetServiceRevision.RequestedProductionTrafficWeight), true
}

// stageTexts are the stages in words (API ServiceDeployment, lifecycleStage).
func stageTexts() map[types.ServiceDeploymentLifecycleStage]string {
	return map[types.ServiceDeploymentLifecycleStage]string{
		types.ServiceDeploymentLifecycleStageReconcileService:           "ECS first completes the previous deployment",
		types.ServiceDeploymentLifecycleStagePreScaleUp:                 "no task of it has started yet",
		types.ServiceDeploymentLifecycleStageScaleUp:                    "its tasks start, and get no traffic yet",
		types.ServiceDeploymentLifecycleStagePostScaleUp:                "its tasks run, and get no traffic yet",
		types.ServiceDeploymentLifecycleStageTestTrafficShift:           "test traffic moves to it",
		types.ServiceDeploymentLifecycleStagePostTestTrafficShift:       "it gets the test traffic, and no production traffic yet",
		"PRE_PRODUCTION_TRAFFIC_SHIFT":                                  "production traffic is about to move to it",
		types.ServiceDeploymentLifecycleStageProductionTrafficShift:     "production traffic moves to it",
		types.ServiceDeploymentLifecycleStagePostProductionTrafficShift: "it gets the production traffic",
		types.ServiceDeploymentLifecycleStageBakeTime:                   "it gets the production traffic and is monitored; the previous version still runs",
		types.ServiceDeploymentLifecycleStageCleanUp:                    "the previous version is being stopped",
	}
}

// stageMessage describes the current action of ECS, how long it takes, and its cause of waiting.
func stageMessage(s *types.Service, d *types.ServiceDeployment) string {
	line := fmt.Sprintf("%s, stage %s: %s", s.DeploymentConfiguration.Strategy, d.LifecycleStage, stageTexts()[d.LifecycleStage])
	if weight, ok := weightOf(d); ok && d.LifecycleStage == types.ServiceDeploymentLifecycleStageProductionTrafficShift {
		line += fmt.Sprintf(" (%s so far)", weight)
	}
	if bake := s.DeploymentConfiguration.BakeTimeInMinutes; bake != nil && d.LifecycleStage == types.ServiceDeploymentLifecycleStageBakeTime && d.UpdatedAt != nil {
		// It is not documented that a stage changes updatedAt, so this time is approximate.
		until := d.UpdatedAt.Add(time.Duration(*bake) * time.Minute)
		line += fmt.Sprintf(", for %d minutes, until about %s", *bake, until.UTC().Format(timeFormat))
	}
	for _, h := range d.LifecycleHookDetails {
		line += hookMessage(h)
	}
	return line
}

// hookMessage says how a hook affects the deployment.
func hookMessage(h types.DeploymentLifecycleHookDetail) string {
	expires := ""
	if h.ExpiresAt != nil {
		expires = fmt.Sprintf("; at %s ECS treats it as %s", h.ExpiresAt.UTC().Format(timeFormat), h.TimeoutAction)
	}
	switch h.Status {
	case types.DeploymentLifecycleHookStatusAwaitingAction:
		return "; a hook has paused it until a person continues it or rolls it back" + expires
	case types.DeploymentLifecycleHookStatusInProgress:
		return "; it waits for the hook " + text(h.TargetArn) + expires
	}
	return ""
}
