package ecs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/ecsfake"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// This file reads, while something goes wrong, what a person reads who asks why.

// watched is a world whose drift is only observed, so that it stays to be seen.
func watched(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, strings.Replace(configuration, "progressDeadline: 5m", "progressDeadline: 5m\ndrift: observe", 1), ecsfake.Options{})
}

// reads waits until `converge explain` of a channel has all of these texts.
func (w *world) reads(channel string, texts ...string) {
	w.T.Helper()
	w.AwaitThat("web", strings.Join(texts, " … "), func(s protocol.Status) bool {
		said := strings.Join(explain.Lines(s, channel, time.Now()), "\n")
		for _, text := range texts {
			if !strings.Contains(said, text) {
				return false
			}
		}
		return true
	})
}

// broken begins a release whose image cannot be pulled.
func (w *world) broken() {
	w.aws.Behave("shop/web:v2", ecsfake.CannotPull("shop/web:v2"))
	w.Release("web", "v2")
}

func TestFailingImageIsSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.broken()
	w.reads("staging", "runs v1; rolled back from v2, and v2 is barred here",
		"rolled back by ECS: ECS deployment circuit breaker: tasks failed to start; task ",
		"of web:3 stopped: CannotPullContainerError: pull image manifest has been retried 1 time(s): failed to resolve ref shop/web:v2: not found",
		"converge retry "+w.App+"/web v2")
	w.reads("production", "v2 is blocked by something that failed", "staging")
}

func TestRollbackByHandIsSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.aws.Behave("shop/web:v2", ecsfake.Behaviour{StuckPending: true})
	w.Release("web", "v2")
	w.reads("staging", "moving to v2", "web:3 is being deployed: 0 of 2 tasks run")
	s := w.described("staging")
	_, err := w.ecs.StopServiceDeployment(t.Context(), &ecs.StopServiceDeploymentInput{ServiceDeploymentArn: s.CurrentServiceDeployment, StopType: types.StopServiceDeploymentStopTypeRollback})
	require.NoError(t, err)
	w.reads("staging", "runs v1; rolled back from v2, and v2 is barred here", "rolled back by ECS: Service deployment stopped by a user")
}

func TestDriftIsSeen(t *testing.T) {
	t.Parallel()
	w := watched(t)
	w.count("production", 5)
	w.reads("production", "it had converged and is now unhealthy or drifted", "web-production drifted: not as declared: desiredCount is 5, declared 2", "not repaired: drift is only observed here")
}

func TestDeploymentByHandIsSeen(t *testing.T) {
	t.Parallel()
	w := watched(t)
	_, err := w.ecs.RegisterTaskDefinition(t.Context(), &ecs.RegisterTaskDefinitionInput{
		Family: aws.String("web"), ContainerDefinitions: []types.ContainerDefinition{{Name: aws.String("web"), Image: aws.String("hotfix"), Memory: aws.Int32(128)}},
	})
	require.NoError(t, err)
	_, err = w.ecs.UpdateService(t.Context(), &ecs.UpdateServiceInput{Cluster: aws.String("production"), Service: aws.String("web-production"), TaskDefinition: aws.String("web:3")})
	require.NoError(t, err)
	w.reads("production", "web-production at another version: it runs web:3, which another owner registered and deployed at 09:", "version unknown 2/2")
}

func TestServiceDeletedByHandIsSeen(t *testing.T) {
	t.Parallel()
	const slow = 20 * time.Minute // for tasks to end: 12 s
	w := newWorldOf(t, strings.Replace(configuration, "progressDeadline: 5m", "progressDeadline: 5m\ndrift: observe", 1), ecsfake.Options{Timing: ecsfake.Timing{Deactivate: slow}})
	_, err := w.ecs.DeleteService(t.Context(), &ecs.DeleteServiceInput{Cluster: aws.String("staging"), Service: aws.String("web-staging"), Force: aws.Bool(true)})
	require.NoError(t, err)
	w.reads("staging", "it had converged and is now unhealthy or drifted", "it is being deleted (DRAINING); it can be created again after its tasks end")
	w.reads("staging", "web-staging not running: the service does not exist on the cluster staging: it was not created yet, or was deleted")
}

// What drains is waited for, and that is said; then it is there again.
func TestServiceInDrainingIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, configuration, ecsfake.Options{Timing: ecsfake.Timing{Deactivate: 5 * time.Minute}})
	_, err := w.ecs.DeleteService(t.Context(), &ecs.DeleteServiceInput{Cluster: aws.String("staging"), Service: aws.String("web-staging"), Force: aws.Bool(true)})
	require.NoError(t, err)
	w.reads("staging", "applying v1", "it is being deleted (DRAINING)")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
}

// An account that stays used up for much longer than the progress deadline delays a release, which is said, and fails nothing:
// before anything was written, and while ECS rolls.
func TestThrottledAccountIsSeenAndFailsNothing(t *testing.T) {
	stage.Long(t, "a minute")
	t.Parallel()
	w := newWorldOf(t, shortDeadline, ecsfake.Options{})
	mend := w.aws.Break(ecsfake.Fault{Kind: ecsfake.Throttled, Operations: []string{"UpdateService"}})
	w.Release("web", "v2")
	w.reads("staging", "moving to v2", "the apply cannot begin: AWS currently throttles service writes in this account and region; the call is retried later")
	tries := w.aws.Calls()["UpdateService"]
	w.AwaitThat("web", "tried again, which is later than the deadline", func(protocol.Status) bool { return w.aws.Calls()["UpdateService"] > tries })
	require.Equal(t, "staging CONVERGING v2, production WAITING_PRECONDITIONS v1", stage.Channels(w.Status("web")))
	mend()
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")

	w.aws.Behave("shop/web:v3", ecsfake.Behaviour{StuckPending: true})
	w.Release("web", "v3")
	w.reads("staging", "moving to v3", "is being deployed: 0 of 2 tasks run")
	mend = w.aws.Break(ecsfake.Fault{Kind: ecsfake.Throttled, Operations: []string{"DescribeServices"}})
	w.reads("staging", "the running version is unknown", "throttled: observe "+w.App+"/web in staging: AWS currently throttles service reads in this account and region; the call is retried later")
	began := time.Now()
	w.AwaitThat("web", "more than the deadline", func(s protocol.Status) bool {
		require.NotContains(t, stage.Channels(s), "ROLL")
		return time.Since(began) > 25*time.Second
	})
	mend()
	w.AwaitThat("web", "the deadline counts again", func(s protocol.Status) bool {
		return stage.Channels(s) == "staging ROLLED_BACK v2, production BLOCKED v2"
	})
}

// Blue/green: the stage and its end are said while it lasts, and what ECS takes back in the bake time is barred.
func TestBakeTimeIsSeen(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, strings.Replace(strings.Replace(configuration, "progressDeadline: 5m", "progressDeadline: 1m", 1),
		"deploymentConfiguration: {deploymentCircuitBreaker: {enable: true, rollback: true}}",
		"deploymentConfiguration: {strategy: BLUE_GREEN, bakeTimeInMinutes: 10, alarms: {alarmNames: [errors], enable: true, rollback: true}}", 1), ecsfake.Options{})
	w.Release("web", "v2")
	w.reads("staging", "ServiceDeployment/web-staging BAKE_TIME, 100%", "BLUE_GREEN, stage BAKE_TIME: it gets the production traffic and is monitored; the previous version still runs, for 10 minutes, until about 09:")
	require.Equal(t, "staging CONVERGING v2, production WAITING_PRECONDITIONS v1", stage.Channels(w.Status("web")), "not before the bake time is over")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")

	w.Release("web", "v3")
	w.reads("staging", "stage BAKE_TIME")
	w.aws.Alarm("errors", true)
	w.reads("staging", "runs v2; rolled back from v3, and v3 is barred here", "rolled back by ECS: ECS deployment alarms: alarm detected")
}

// A worker dies between registering and updating: the next one says what it does, and registers nothing again.
func TestCrashBetweenRegisterAndUpdateIsSeen(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs; not with -short")
	}
	server := newAWS(t, ecsfake.Options{}, "staging", "production")
	dir := filepath.Join(t.TempDir(), "shop")
	d := dev(t, dir, server)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	text := strings.NewReplacer("APP", "shop", "URL", server.URL, "progressDeadline: 5m", "progressDeadline: 5m\ninitialVersion: v1").Replace(configuration)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "converge.yaml"), []byte(text), 0o600))
	d.Start()
	d.Await("shop/web", "staging CONVERGED v1, production CONVERGED v1")

	server.ResetCalls()
	mend := server.Break(ecsfake.Fault{Kind: ecsfake.Hang, Operations: []string{"UpdateService"}})
	out, code := d.Converge("release", "shop/web", "v2")
	require.Zero(t, code, out)
	require.Eventually(t, func() bool { return server.Calls()["UpdateService"] > 0 }, time.Minute, 10*time.Millisecond)
	d.Kill()
	d.Start()
	require.Eventually(t, func() bool { return server.Calls()["UpdateService"] > 1 }, time.Minute, 10*time.Millisecond)
	out, _ = d.Converge("explain", "shop/web", "staging")
	require.Contains(t, out, "runs v1; moving to v2")
	require.Contains(t, out, "applying v2")
	mend()
	d.Await("shop/web", "staging CONVERGED v2, production CONVERGED v2")
	require.Equal(t, 2, server.Calls()["RegisterTaskDefinition"], "one in each channel")
}
