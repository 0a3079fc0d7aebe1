package ecsfake_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/ecsfake"
)

// shifting makes a service of a strategy that shifts traffic, settled at web:1, and begins to deploy web:2.
func shifting(t *testing.T, change func(*types.DeploymentConfiguration)) *lab {
	t.Helper()
	l := newLab(t, ecsfake.Options{})
	for range 2 {
		l.register("web", "web:1", func(in *ecs.RegisterTaskDefinitionInput) {
			in.ContainerDefinitions[0].PortMappings = []types.PortMapping{{ContainerPort: aws.Int32(80)}}
		})
	}
	l.create("web:1", 2, func(in *ecs.CreateServiceInput) {
		in.LoadBalancers = []types.LoadBalancer{{
			ContainerName: aws.String("web"), ContainerPort: aws.Int32(80), TargetGroupArn: aws.String("arn:blue"),
			AdvancedConfiguration: &types.AdvancedConfiguration{AlternateTargetGroupArn: aws.String("arn:green")},
		}}
		configuration(in).BakeTimeInMinutes = aws.Int32(5)
		change(configuration(in))
	})
	l.settled()
	l.update(to("web:2"))
	return l
}

// shown is the newest service deployment: stage, percent of the traffic, what its hooks say.
func (l *lab) shown() string {
	d := l.deployments()[0]
	line := string(d.LifecycleStage)
	if w := d.TargetServiceRevision.RequestedProductionTrafficWeight; w != nil {
		line += fmt.Sprintf(" %g", *w)
	}
	for _, h := range d.LifecycleHookDetails {
		line += " " + string(h.Status)
	}
	return line
}

// seen lists what is shown until the deployment is no longer in progress, each once.
func (l *lab) seen() (all []string) {
	l.Helper()
	for range 3600 {
		if now := l.shown(); len(all) == 0 || all[len(all)-1] != now {
			all = append(all, now)
		}
		if l.web().Deployments[0].RolloutState != types.DeploymentRolloutStateInProgress {
			return all
		}
		l.Advance(time.Second)
	}
	l.Fatalf("it does not end within an hour: %q", all)
	return nil
}

// API CanaryConfiguration, LinearConfiguration: one step, or equal ones, each watched but the last.
func TestTrafficMovesInSteps(t *testing.T) {
	for _, row := range []struct {
		change func(*types.DeploymentConfiguration)
		want   []string
	}{
		{func(c *types.DeploymentConfiguration) { c.Strategy = types.DeploymentStrategyBlueGreen }, []string{"SCALE_UP", "BAKE_TIME 100", "CLEAN_UP 100"}},
		{
			func(c *types.DeploymentConfiguration) { c.Strategy = types.DeploymentStrategyCanary },
			[]string{"SCALE_UP", "PRODUCTION_TRAFFIC_SHIFT 5", "BAKE_TIME 100", "CLEAN_UP 100"},
		},
		{func(c *types.DeploymentConfiguration) {
			c.Strategy = types.DeploymentStrategyLinear
			c.LinearConfiguration = &types.LinearConfiguration{StepPercent: aws.Float64(40), StepBakeTimeInMinutes: aws.Int32(1)}
		}, []string{"SCALE_UP", "PRODUCTION_TRAFFIC_SHIFT 40", "PRODUCTION_TRAFFIC_SHIFT 80", "BAKE_TIME 100", "CLEAN_UP 100"}},
	} {
		l := shifting(t, row.change)
		require.Equal(t, row.want, l.seen())
		require.Equal(t, "PRIMARY web:2 COMPLETED 2+0/2 failed 0", rollout(l.web()))
	}
}

// hooked is BLUE_GREEN with one hook.
func hooked(kind types.DeploymentLifecycleHookTargetType, at types.DeploymentLifecycleHookStage) func(*types.DeploymentConfiguration) {
	return func(c *types.DeploymentConfiguration) {
		c.Strategy = types.DeploymentStrategyBlueGreen
		hook := types.DeploymentLifecycleHook{TargetType: kind, LifecycleStages: []types.DeploymentLifecycleHookStage{at}}
		if kind != types.DeploymentLifecycleHookTargetTypePause {
			hook.HookTargetArn, hook.RoleArn = aws.String("arn:check"), aws.String("arn:role")
		}
		c.LifecycleHooks = []types.DeploymentLifecycleHook{hook}
	}
}

// guide deployment-lifecycle-hooks: a hook holds its stage up, and one that failed has the deployment rolled back.
func TestHooksHoldUpAndRollBack(t *testing.T) {
	l := shifting(t, hooked("", types.DeploymentLifecycleHookStagePreScaleUp))
	require.Equal(t, "SCALE_UP", l.shown(), "it succeeds, unless a test says otherwise")
	l.settled()
	l.Hook("arn:check", types.DeploymentLifecycleHookStatusInProgress)
	l.update(to("web:1"))
	l.Advance(10 * time.Minute)
	require.Equal(t, "PRE_SCALE_UP IN_PROGRESS", l.shown())
	require.Equal(t, "PRIMARY web:1 IN_PROGRESS 0+0/2 failed 0; ACTIVE web:2 COMPLETED 2+0/0 failed 0", rollout(l.web()), "no green task has started")
	l.Hook("arn:check", types.DeploymentLifecycleHookStatusFailed)
	require.Equal(t, "PRIMARY web:2 COMPLETED 2+0/2 failed 0", rollout(l.settled()))
	require.Equal(t, types.ServiceDeploymentStatusRollbackSuccessful, l.deployments()[0].Status)
	require.Contains(t, *l.deployments()[0].StatusReason, "arn:check failed at PRE_SCALE_UP")
}

// guide pause-lifecycle-hooks.
func TestPauseHookWaitsForAnAction(t *testing.T) {
	for action, want := range map[types.DeploymentLifecycleHookAction]string{
		types.DeploymentLifecycleHookActionContinue: "PRIMARY web:2 COMPLETED 2+0/2 failed 0", types.DeploymentLifecycleHookActionRollback: "PRIMARY web:1 COMPLETED 2+0/2 failed 0",
	} {
		l := shifting(t, hooked(types.DeploymentLifecycleHookTargetTypePause, types.DeploymentLifecycleHookStagePostScaleUp))
		l.Advance(30 * time.Minute)
		require.Equal(t, "POST_SCALE_UP AWAITING_ACTION", l.shown())
		d := l.deployments()[0]
		in := &ecs.ContinueServiceDeploymentInput{ServiceDeploymentArn: d.ServiceDeploymentArn, HookId: aws.String("another"), Action: action}
		_, err := l.client.ContinueServiceDeployment(l.ctx, in)
		require.Equal(t, "InvalidParameterException", code(err))
		in.HookId = d.LifecycleHookDetails[0].HookId
		_, err = l.client.ContinueServiceDeployment(l.ctx, in)
		require.NoError(t, err)
		require.Equal(t, want, rollout(l.settled()))
	}
}
