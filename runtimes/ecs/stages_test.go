package ecs

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/ecsfake"
)

// loadBalanced is a service behind a load balancer, whose deployments shift traffic as configured.
func loadBalanced(configuration map[string]any) func(*serviceSpec) {
	return func(s *serviceSpec) {
		withField("deploymentConfiguration", configuration)(s)
		withField("loadBalancers", []any{map[string]any{
			"containerName": "web", "containerPort": 80, "targetGroupArn": "arn:blue",
			"advancedConfiguration": map[string]any{"alternateTargetGroupArn": "arn:green", "productionListenerRule": "arn:rule", "roleArn": "arn:role"},
		}})(s)
		s.change = func(definition, _ map[string]any) {
			definition["containerDefinitions"].([]any)[0].(map[string]any)["portMappings"] = []any{map[string]any{"containerPort": 80}}
		}
	}
}

func hook(kind string, stages ...any) map[string]any {
	h := map[string]any{"lifecycleStages": stages, "targetType": kind}
	if kind == "AWS_LAMBDA" {
		h["hookTargetArn"], h["roleArn"] = "arn:check", "arn:role"
	}
	return h
}

// readingLines is all that is observed, one line for each object.
func (l *testCluster) readingLines(in runtimes.Request) (lines []string, all []entities.Object) {
	l.Helper()
	all, err := l.Runtime.Observe(l.ctx, in)
	require.NoError(l, err)
	for _, o := range all {
		lines = append(lines, o.Name+" "+summary(o))
	}
	return lines, all
}

// stagesOf lists what is observed until it is stable or has failed, each stage once: the name of the object that represents it.
func (l *testCluster) stagesOf(in runtimes.Request) (names []string, last entities.Current) {
	l.Helper()
	target := &entities.Target{FullVersion: in.FullVersion}
	digests := map[string]bool{}
	for range 720 {
		l.Runtime = l.worker() // whose calls are not limited
		_, all := l.readingLines(in)
		if len(all) > 1 && (len(names) == 0 || names[len(names)-1] != all[1].Name) {
			names = append(names, all[1].Name)
			digest := entities.Reading{Objects: all}.Digest()
			require.False(l, digests[digest], "each stage is news")
			digests[digest] = true
		}
		if last = entities.FetchObjects(all, target); last.Stable || last.Failed != "" {
			return names, last
		}
		require.NotContains(l, last.Reason, "not running")
		l.Advance(6 * time.Second)
	}
	l.Fatalf("it does not end within an hour: %q", names)
	return nil, last
}

// A strategy that shifts traffic is passed on as it is declared, ECS goes through its stages, and the version is stable when the
// bake time is over and nothing of the version before runs: not before. What ECS fills in is no drift.
func TestStrategiesThatShiftTraffic(t *testing.T) {
	for _, row := range []struct {
		configuration map[string]any
		want          []string
	}{
		{
			map[string]any{"strategy": "BLUE_GREEN", "bakeTimeInMinutes": 1, "lifecycleHooks": []any{hook("AWS_LAMBDA", "POST_SCALE_UP")}},
			[]string{"web SCALE_UP", "web BAKE_TIME, 100%", "web CLEAN_UP, 100%"},
		},
		{
			map[string]any{"strategy": "CANARY", "bakeTimeInMinutes": 1, "canaryConfiguration": map[string]any{"canaryPercent": "12.50", "canaryBakeTimeInMinutes": 1}},
			[]string{"web SCALE_UP", "web PRODUCTION_TRAFFIC_SHIFT, 12.5%", "web BAKE_TIME, 100%", "web CLEAN_UP, 100%"},
		},
		{
			map[string]any{"strategy": "LINEAR", "bakeTimeInMinutes": 1, "linearConfiguration": map[string]any{"stepPercent": "50.0", "stepBakeTimeInMinutes": 1}},
			[]string{"web SCALE_UP", "web PRODUCTION_TRAFFIC_SHIFT, 50%", "web BAKE_TIME, 100%", "web CLEAN_UP, 100%"},
		},
	} {
		l := newTestCluster(t, ecsfake.Options{})
		shifting := loadBalanced(row.configuration)
		l.applyStable(requestFor("v1", 1, shifting))
		l.apply(requestFor("v2", 2, shifting))
		stages, last := l.stagesOf(requestFor("v2", 2, shifting))
		require.Equal(t, row.want, stages)
		require.True(t, last.Stable)
		l.ResetCalls()
		require.Empty(t, l.apply(requestFor("v2", 2, shifting)))
		require.Equal(t, "SUCCEEDED; v2* 2/2", summary(l.observe(requestFor("v2", 2, shifting))))
		require.Zero(t, writes(l.Calls()))
		require.Zero(t, l.Calls()["DescribeServiceDeployments"], "no requests for a healthy service")
	}
}

func TestBakeTimeIsReported(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	shifting := loadBalanced(map[string]any{"strategy": "BLUE_GREEN", "bakeTimeInMinutes": 5})
	l.applyStable(requestFor("v1", 1, shifting))
	l.apply(requestFor("v2", 2, shifting))
	began := l.Now()
	var lines []string
	for range 100 {
		if lines, _ = l.readingLines(requestFor("v2", 2, shifting)); len(lines) > 1 && strings.Contains(lines[1], "BAKE_TIME") {
			break
		}
		l.Advance(time.Second)
	}
	require.Equal(t, "web PENDING; v2* 2/2; v1* 2/2; web:2 is being deployed: 2 of 2 tasks run", lines[0])
	require.Equal(t, "web BAKE_TIME, 100% PENDING; BLUE_GREEN, stage BAKE_TIME: it gets the production traffic and is monitored; the previous version still runs, for 5 minutes, until about "+
		began.Add(5*time.Minute+30*time.Second).Format("15:04 UTC"), lines[1])
}

// During the bake time ECS rolls back for an alarm, a hook, or a person: that is a failure of the version, then and much later.
func TestRollbacksOfShiftedTraffic(t *testing.T) {
	for name, row := range map[string]struct {
		hooks []any
		undo  func(*testCluster)
		why   string
	}{
		"alarm": {nil, func(l *testCluster) { l.Alarm("errors", true) }, "ECS deployment alarms: alarm detected."},
		"hook": {
			[]any{hook("AWS_LAMBDA", "POST_PRODUCTION_TRAFFIC_SHIFT")},
			func(l *testCluster) { l.Hook("arn:check", types.DeploymentLifecycleHookStatusFailed) },
			"Lifecycle hook arn:check failed at POST_PRODUCTION_TRAFFIC_SHIFT.",
		},
		"person": {nil, func(l *testCluster) {
			_, err := l.client.StopServiceDeployment(l.ctx, &ecs.StopServiceDeploymentInput{ServiceDeploymentArn: l.web().CurrentServiceDeployment, StopType: "ROLLBACK"})
			require.NoError(l, err)
		}, "Service deployment stopped by a user."},
	} {
		bothRollbacks(t, func(t *testing.T, options ecsfake.Options) {
			l := newTestCluster(t, options)
			configuration := map[string]any{
				"strategy": "BLUE_GREEN", "bakeTimeInMinutes": 10, "alarms": map[string]any{"alarmNames": []any{"errors"}, "enable": true, "rollback": true},
			}
			if row.hooks != nil {
				configuration["lifecycleHooks"] = row.hooks
			}
			shifting := loadBalanced(configuration)
			l.applyStable(requestFor("v1", 1, shifting))
			if row.hooks != nil {
				l.Hook("arn:check", types.DeploymentLifecycleHookStatusInProgress)
			}
			in := requestFor("v2", 2, shifting)
			l.apply(in)
			l.Advance(3 * time.Minute)
			lines, _ := l.readingLines(in)
			require.Len(t, lines, 2, name)
			if row.hooks != nil {
				require.Contains(t, lines[1], "stage POST_PRODUCTION_TRAFFIC_SHIFT: it gets the production traffic; it waits for the hook arn:check")
			}
			row.undo(l)
			_, last := l.stagesOf(in)
			require.Contains(t, last.Failed, "rolled back by ECS: "+row.why, name)
			l.Alarm("errors", false)
			l.Advance(time.Hour)
			l.Runtime = l.worker()
			require.Equal(t, "FAILED; v1* 2/2; v2 0/0; rolled back by ECS: "+row.why, summary(l.observe(in)), name)
			require.Equal(t, "SUCCEEDED; v1* 2/2", summary(l.observe(requestFor("v1", 3, shifting))), name)
		})
	}
}

// A hook that pauses says how to continue.
func TestPausedDeploymentIsReported(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	shifting := loadBalanced(map[string]any{"strategy": "BLUE_GREEN", "bakeTimeInMinutes": 0, "lifecycleHooks": []any{hook("PAUSE", "POST_SCALE_UP")}})
	l.applyStable(requestFor("v1", 1, shifting))
	in := requestFor("v2", 2, shifting)
	l.apply(in)
	l.Advance(time.Hour)
	lines, all := l.readingLines(in)
	require.Equal(t, "web POST_SCALE_UP, hook AWAITING_ACTION PENDING; BLUE_GREEN, stage POST_SCALE_UP: its tasks run, and get no traffic yet; a hook has paused it until a person continues it or rolls it back", lines[1])
	said := strings.Fields(all[1].Events[0].Message[strings.Index(all[1].Events[0].Message, "aws "):])
	_, err := l.client.ContinueServiceDeployment(l.ctx, &ecs.ContinueServiceDeploymentInput{
		Action: types.DeploymentLifecycleHookAction(said[4]), HookId: &said[6], ServiceDeploymentArn: &said[8],
	})
	require.NoError(t, err, said)
	_, last := l.stagesOf(in)
	require.True(t, last.Stable)
}

// A worker that may not read the stage gets the state of the service itself.
func TestUnreadableStage(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	shifting := loadBalanced(map[string]any{"strategy": "BLUE_GREEN", "bakeTimeInMinutes": 5})
	l.applyStable(requestFor("v1", 1, shifting))
	l.apply(requestFor("v2", 2, shifting))
	l.Break(ecsfake.Fault{Kind: ecsfake.AccessDenied, Operations: []string{"DescribeServiceDeployments"}})
	lines, _ := l.readingLines(requestFor("v2", 2, shifting))
	require.Equal(t, []string{"web PENDING; v2* 0/2; v1* 2/2; web:2 is being deployed: 0 of 2 tasks run"}, lines)
}

// What is sent for each way to run tasks, and that neither AWS's defaults nor what it makes of the declared are drift.
func TestWaysToRunTasks(t *testing.T) {
	vpc := map[string]any{"awsvpcConfiguration": map[string]any{"subnets": []any{"subnet-b", "subnet-a"}, "assignPublicIp": "DISABLED"}}
	far := func(s *serviceSpec) {
		s.change = func(definition, _ map[string]any) {
			definition["networkMode"], definition["requiresCompatibilities"], definition["cpu"], definition["memory"] = "awsvpc", []any{"FARGATE"}, "256", 512
		}
		withField("networkConfiguration", vpc)(s)
	}
	for name, row := range map[string]struct {
		changes []func(*serviceSpec)
		check   func(*types.Service)
	}{
		"Fargate": {[]func(*serviceSpec){far, withField("launchType", "FARGATE"), withField("platformVersion", "LATEST")}, func(s *types.Service) {
			require.Equal(t, types.LaunchTypeFargate, s.LaunchType)
			require.Equal(t, "LATEST", *s.PlatformVersion)
			require.Equal(t, []string{"subnet-b", "subnet-a"}, s.NetworkConfiguration.AwsvpcConfiguration.Subnets)
		}},
		"Fargate of no platform version": {[]func(*serviceSpec){far, withField("launchType", "FARGATE")}, func(s *types.Service) {
			require.Equal(t, types.LaunchTypeFargate, s.LaunchType)
		}},
		"Fargate Spot": {[]func(*serviceSpec){far, withField("capacityProviderStrategy", []any{
			map[string]any{"capacityProvider": "FARGATE", "base": 1, "weight": 1}, map[string]any{"capacityProvider": "FARGATE_SPOT", "weight": 3, "base": 0},
		})}, func(s *types.Service) {
			require.Empty(t, s.LaunchType)
			require.Len(t, s.CapacityProviderStrategy, 2)
			require.Equal(t, int32(3), s.CapacityProviderStrategy[1].Weight)
		}},
		"EC2": {[]func(*serviceSpec){withField("launchType", "EC2"), withField("placementStrategy", []any{map[string]any{"type": "spread", "field": "instanceId"}})}, func(s *types.Service) {
			require.Equal(t, types.LaunchTypeEc2, s.LaunchType)
			require.Equal(t, "instanceId", *s.PlacementStrategy[0].Field)
		}},
		"daemon": {[]func(*serviceSpec){withField("desiredCount", nil), withField("schedulingStrategy", "DAEMON")}, func(s *types.Service) {
			require.Equal(t, types.SchedulingStrategyDaemon, s.SchedulingStrategy)
			require.Equal(t, int32(2), s.DesiredCount, "one for each instance")
		}},
	} {
		l := newTestCluster(t, ecsfake.Options{})
		require.Equal(t, "SUCCEEDED; v1* 2/2", summary(l.applyStable(requestFor("v1", 1, row.changes...))), name)
		row.check(l.web())
		l.ResetCalls()
		l.Runtime = l.worker()
		require.Empty(t, l.apply(requestFor("v1", 1, row.changes...)), name)
		require.Zero(t, writes(l.Calls()), name)
		require.Equal(t, "registered the task definition web:2\nupdated the service web: taskDefinition\n", l.apply(requestFor("v2", 2, row.changes...)), name)
		require.Equal(t, "SUCCEEDED; v2* 2/2", summary(l.advanceUntil(requestFor("v2", 2, row.changes...), stable("v2"))), name)
		l.remove(requestFor("v2", 3, row.changes...))
		require.Equal(t, "INACTIVE", *l.web().Status, name)
	}
}
