// Package ecs_test releases to Amazon ECS as operators see it: the whole product, with an embedded Temporal server, on the
// fake of the API.
package ecs_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
	ecsruntime "github.com/converge-engine/converge/runtimes/ecs"
	"github.com/converge-engine/converge/tests/ecsfake"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// shared is what the tests of this package share.
var shared = stage.New(map[entities.RuntimeKind]activities.Factory{entities.RuntimeECS: onFake})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

var accounts = &ecsruntime.Accounts{
	PollInterval: 150 * time.Millisecond, ThrottleTimeout: 2 * time.Second,
	Configure: func(o *ecs.Options) {
		o.HTTPClient = ecsfake.HTTPClient()
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKIAFAKE", SecretAccessKey: "fake"}, nil
		})
	},
}

func onFake(d entities.RuntimeDefinition) (runtimes.Runtime, error) {
	return ecsruntime.New(d, accounts)
}

// configuration is one service in two channels, each on a cluster of its own.
const configuration = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: staging, runtimes: [{name: APP-staging}]}
- {name: production, runtimes: [{name: APP-production}], preconditions: [{releaseChannelStable: {releaseChannel: staging}}]}
---
{apiVersion: converge/v1, kind: Runtime, name: APP-staging, ecs: {cluster: staging, region: us-east-1, endpoint: "URL", pollInterval: 100ms, steadyPollInterval: 1s, retry: {backoff: 100ms, maxBackoff: 1s}}}
---
{apiVersion: converge/v1, kind: Runtime, name: APP-production, ecs: {cluster: production, region: us-east-1, endpoint: "URL", pollInterval: 100ms, steadyPollInterval: 1s, retry: {backoff: 100ms, maxBackoff: 1s}}}
---
apiVersion: converge/v1
kind: Service
name: web
progressDeadline: 5m
parameters:
- {name: tasks, type: int, default: 2}
ecs:
  taskDefinition:
    family: web
    containerDefinitions:
    - {name: web, image: "shop/web:${{ version }}", memory: 128, environment: [{name: TASKS, value: "${{ params.tasks }}"}]}
  service:
    serviceName: web-${{ channel }}
    desiredCount: ${{ params.tasks }}
    deploymentConfiguration: {deploymentCircuitBreaker: {enable: true, rollback: true}}
`

// shortDeadline is for tests of the progress deadline. A busy machine may take longer than that to deploy what would succeed.
var shortDeadline = strings.Replace(configuration, "progressDeadline: 5m", "progressDeadline: 20s", 1)

// world is an application on a fake of its own, whose minute takes a second.
type world struct {
	*stage.World
	aws *ecsfake.Server
	ecs *ecs.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, configuration, ecsfake.Options{})
}

// newAWS is a fake of its own with clusters, whose hundred seconds take one.
func newAWS(t *testing.T, options ecsfake.Options, clusters ...string) *ecsfake.Server {
	t.Helper()
	options.Speed = 100
	server, err := ecsfake.New(options)
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	for _, name := range clusters {
		_, err := server.Client().CreateCluster(t.Context(), &ecs.CreateClusterInput{ClusterName: &name})
		require.NoError(t, err)
	}
	return server
}

// newWorldOf is one of another configuration, or on another fake.
func newWorldOf(t *testing.T, configuration string, options ecsfake.Options) *world {
	t.Helper()
	server := newAWS(t, options, "staging", "production")
	w := &world{shared.World(t), server, server.Client()}
	w.Write(strings.ReplaceAll(configuration, "URL", server.URL))
	w.Publish()
	t.Cleanup(func() { w.Retire("web") })
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	return w
}

// explained waits until explain holds a text.
func (w *world) explained(text string) {
	w.T.Helper()
	w.AwaitThat("web", text, func(protocol.Status) bool {
		value, err := temporaltest.Query(w.T.Context(), w.Client, w.ID("web"), protocol.QueryExplain)
		var answer json.RawMessage
		return err == nil && value.Get(&answer) == nil && strings.Contains(string(answer), text)
	})
}

func (w *world) count(channel string, n int32) {
	w.T.Helper()
	_, err := w.ecs.UpdateService(w.T.Context(), &ecs.UpdateServiceInput{Cluster: &channel, Service: aws.String("web-" + channel), DesiredCount: &n})
	require.NoError(w.T, err)
}

func (w *world) desired(channel string) int32 {
	if s := w.described(channel); s != nil {
		return s.DesiredCount
	}
	return -1
}

// described is the service of a channel as ECS has it; nil: it is not there.
func (w *world) described(channel string) *types.Service {
	out, err := w.ecs.DescribeServices(w.T.Context(), &ecs.DescribeServicesInput{Cluster: &channel, Services: []string{"web-" + channel}})
	if err != nil || len(out.Services) == 0 {
		return nil
	}
	return &out.Services[0]
}

// An image that cannot be pulled fails in staging: ECS takes it back, the release is over there and never reaches
// production, nothing is applied again, and the next version goes through both.
func TestImageThatFailsIsBarredAndNeverReachesProduction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.aws.Behave("shop/web:v2", ecsfake.CannotPull("shop/web:v2"))
	w.aws.ResetCalls()
	w.Release("web", "v2")
	w.AwaitThat("web", "rolled back", func(s protocol.Status) bool {
		return stage.Channels(s) == "staging ROLLED_BACK v1, production BLOCKED v1"
	})
	w.explained("rolled back by ECS: ECS deployment circuit breaker: tasks failed to start")
	require.Equal(t, 1, w.aws.Calls()["RegisterTaskDefinition"])
	require.Equal(t, 1, w.aws.Calls()["UpdateService"], "ECS rolled back by itself, and nobody applied v2 again")

	w.Release("web", "v3")
	w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
}

// Tasks that run and then exit trip no breaker: the progress deadline ends it, and the version before is put back.
func TestProgressDeadlineEndsWhatNoBreakerSees(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, shortDeadline, ecsfake.Options{})
	w.aws.Behave("shop/web:v2", ecsfake.Exits(1, time.Second))
	w.Release("web", "v2")
	w.AwaitThat("web", "rolled back", func(s protocol.Status) bool {
		return stage.Channels(s) == "staging ROLLED_BACK v1, production BLOCKED v1"
	})
	w.explained("not stable within 20s")
}

// What somebody changes or deletes by hand is put back.
func TestHandMadeChangesArePutBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.count("production", 5)
	require.Eventually(t, func() bool { return w.desired("production") == 2 }, time.Minute, 50*time.Millisecond)
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")

	_, err := w.ecs.DeleteService(t.Context(), &ecs.DeleteServiceInput{Cluster: aws.String("staging"), Service: aws.String("web-staging"), Force: aws.Bool(true)})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return w.desired("staging") == 2 }, time.Minute, 50*time.Millisecond)
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.Equal(t, 2, w.aws.Calls()["RegisterTaskDefinition"], "one for each channel, whatever was put back")
}

// An account that is used up delays a release and fails nothing.
func TestThrottledAccountDelaysARelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.aws.Break(ecsfake.Fault{Kind: ecsfake.Throttled, Operations: []string{"RegisterTaskDefinition", "UpdateService"}, Times: 2})
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	status, err := json.Marshal(w.Status("web"))
	require.NoError(t, err)
	require.NotContains(t, string(status), "FAILED")
}

// dev prepares the programs, whose workers find the fake as they would find AWS.
func dev(t *testing.T, dir string, fake *ecsfake.Server) *stage.Dev {
	t.Helper()
	d := shared.Dev(t, dir)
	d.Env = []string{
		"AWS_ENDPOINT_URL_ECS=" + fake.URL, "AWS_ACCESS_KEY_ID=AKIAFAKE", "AWS_SECRET_ACCESS_KEY=fake",
		"AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null",
	}
	return d
}

// One channel is taken down: its service is gone from ECS, that of the other stays, and a restart makes it anew.
func TestChannelIsTakenDownOnECS_A24(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone := func() bool {
		s := w.described("production")
		return s == nil || aws.ToString(s.Status) != "ACTIVE"
	}
	w.Act("web", protocol.Delete, `{"channel":"production","by":"bob","reason":"moved"}`)
	w.Await("web", "staging CONVERGED v1, production DELETED v1")
	require.True(t, gone())
	require.EqualValues(t, 2, w.desired("staging"))
	w.Act("web", protocol.RestartService, `{"channel":"production","by":"bob"}`)
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.False(t, gone())
}
