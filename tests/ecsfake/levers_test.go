package ecsfake_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/ecsfake"
)

func TestRequestsFailAsTheLeversSay(t *testing.T) {
	for name, row := range map[string]struct {
		kind   ecsfake.Kind
		code   string
		status int
	}{
		"access":      {ecsfake.AccessDenied, "AccessDeniedException", 400},
		"throttled":   {ecsfake.Throttled, "ThrottlingException", 400},
		"server":      {ecsfake.ServerError, "ServerException", 500},
		"unavailable": {ecsfake.Unavailable, "", 503},
		"cut":         {ecsfake.Cut, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, ecsfake.Options{})
			l.ResetCalls()
			mend := l.Break(ecsfake.Fault{Kind: row.kind, Operations: []string{"ListServices"}})
			list := func() error {
				_, err := l.client.ListServices(l.ctx, &ecs.ListServicesInput{Cluster: aws.String("shop")})
				return err
			}
			err := list()
			require.Error(t, err)
			if row.code != "" {
				require.Equal(t, row.code, code(err))
			}
			var response *smithyhttp.ResponseError
			if errors.As(err, &response) && response.Response != nil {
				require.Equal(t, row.status, response.HTTPStatusCode())
			} else {
				require.Zero(t, row.status)
			}
			_, err = l.client.ListClusters(l.ctx, &ecs.ListClustersInput{})
			require.NoError(t, err, "other operations go on")
			mend()
			require.NoError(t, list())
			require.Equal(t, map[string]int{"ListServices": 2, "ListClusters": 1}, l.Calls())
		})
	}
}

func TestFaultEndsAfterItsTimes(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.Break(ecsfake.Fault{Kind: ecsfake.ServerError, Times: 2})
	patient := l.Client(func(o *ecs.Options) { o.Retryer = immediately{aws.NopRetryer{}} })
	l.ResetCalls()
	_, err := patient.ListClusters(l.ctx, &ecs.ListClustersInput{})
	require.NoError(t, err, "the SDK tries three times")
	require.Equal(t, 3, l.Calls()["ListClusters"])
}

// immediately retries three times without a pause.
type immediately struct{ aws.NopRetryer }

func (immediately) IsErrorRetryable(error) bool                  { return true }
func (immediately) MaxAttempts() int                             { return 3 }
func (immediately) RetryDelay(int, error) (time.Duration, error) { return 0, nil }

func TestHangingRequestEndsWithItsClientOrTheServer(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.Break(ecsfake.Fault{Kind: ecsfake.Hang})
	ctx, cancel := context.WithCancel(l.ctx)
	ended := make(chan error, 2)
	for _, ctx := range []context.Context{ctx, l.ctx} {
		go func() {
			_, err := l.client.ListServices(ctx, &ecs.ListServicesInput{Cluster: aws.String("shop")})
			ended <- err
		}()
	}
	require.Eventually(t, func() bool { return l.Calls()["ListServices"] == 2 }, time.Minute, time.Millisecond)
	require.Empty(t, ended)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.NoError(t, l.Close())
	require.Error(t, <-ended)
}

func TestLostAnswerIsOfAnActThatHappened(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.Break(ecsfake.Fault{Kind: ecsfake.LostAnswer, Operations: []string{"RegisterTaskDefinition"}, Times: 1})
	_, err := l.client.RegisterTaskDefinition(l.ctx, definition("web", "web:1"))
	require.Error(t, err)
	require.Equal(t, "web:2", revision(l.register("web", "web:1")))
}

func TestReadsLagWrites(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.register("web", "web:1")
	l.create("web:1", 1)
	l.settled()
	l.Lag(2 * time.Minute)

	two := l.register("web", "web:2")
	_, err := l.client.DescribeTaskDefinition(l.ctx, &ecs.DescribeTaskDefinitionInput{TaskDefinition: &two})
	require.Equal(t, "ClientException", code(err))
	require.Equal(t, two, *l.update(to(two)).TaskDefinition, "the answer to a write tells")
	created, err := l.client.CreateService(l.ctx, service("web:1", 1, func(in *ecs.CreateServiceInput) { in.ServiceName = aws.String("new") }))
	require.NoError(t, err)
	ran, err := l.run()
	require.NoError(t, err)
	describe := func() (*ecs.DescribeServicesOutput, int) {
		out, err := l.client.DescribeServices(l.ctx, &ecs.DescribeServicesInput{Cluster: aws.String("shop"), Services: []string{"web", *created.Service.ServiceArn}})
		require.NoError(t, err)
		list, err := l.client.ListServices(l.ctx, &ecs.ListServicesInput{Cluster: aws.String("shop")})
		require.NoError(t, err)
		return out, len(list.ServiceArns)
	}
	l.Advance(119 * time.Second)
	out, listed := describe()
	require.Equal(t, "PRIMARY web:1 COMPLETED 1+0/1 failed 0", rollout(&out.Services[0]))
	require.Len(t, out.Failures, 1)
	require.Equal(t, 1, listed)
	require.Nil(t, l.describe(ran.Tasks[0].TaskArn))

	l.Advance(time.Second)
	out, listed = describe()
	require.Equal(t, "PRIMARY web:2 COMPLETED 1+0/1 failed 0", rollout(&out.Services[0]))
	require.Empty(t, out.Failures)
	require.Equal(t, 2, listed)
	require.NotNil(t, l.describe(ran.Tasks[0].TaskArn))

	_, err = l.client.DeleteService(l.ctx, &ecs.DeleteServiceInput{Cluster: aws.String("shop"), Service: aws.String("web"), Force: aws.Bool(true)})
	require.NoError(t, err)
	require.Equal(t, "ACTIVE", *l.web().Status)
	l.Advance(2 * time.Minute)
	require.Equal(t, "INACTIVE", *l.web().Status)
}

func TestClockFollowsTheRealOneFaster(t *testing.T) {
	l := newLab(t, ecsfake.Options{Speed: 3600})
	l.create(l.register("web", "web:1"), 1)
	require.Eventually(t, func() bool { return l.web().Deployments[0].RolloutState == types.DeploymentRolloutStateCompleted }, time.Minute, time.Millisecond)
	before := l.Now()
	l.Advance(time.Hour)
	require.GreaterOrEqual(t, l.Now().Sub(before), time.Hour, "and can still be moved")
	require.Less(t, l.Now().Sub(before), 20*time.Hour)
}

func TestRequestsMustBeSignedForTheRegion(t *testing.T) {
	l := newLab(t, ecsfake.Options{Region: "eu-west-1", Account: "210987654321"})
	_, err := l.Client(once, func(o *ecs.Options) { o.Region = "us-east-1" }).ListClusters(l.ctx, &ecs.ListClustersInput{})
	require.Equal(t, "InvalidSignatureException", code(err))
	_, err = l.Client(once, func(o *ecs.Options) { o.Credentials = aws.AnonymousCredentials{} }).ListClusters(l.ctx, &ecs.ListClustersInput{})
	require.Equal(t, "MissingAuthenticationTokenException", code(err))
	out, err := l.client.ListClusters(l.ctx, &ecs.ListClustersInput{})
	require.NoError(t, err)
	require.Equal(t, []string{"arn:aws:ecs:eu-west-1:210987654321:cluster/shop"}, out.ClusterArns)
}

func TestOtherRequestsAreRefused(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	_, err := l.client.CreateTaskSet(l.ctx, &ecs.CreateTaskSetInput{Cluster: aws.String("shop"), Service: aws.String("web"), TaskDefinition: aws.String("web")})
	require.ErrorContains(t, err, "CreateTaskSet is not modelled by this fake")
	answer, err := http.Get(l.URL)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusBadRequest, answer.StatusCode)
}

// guide request-throttling: a bucket's size at once, then its rate.
func TestBucketsThrottle(t *testing.T) {
	call := map[ecsfake.Group]func(l *lab) error{
		ecsfake.ServiceReads: func(l *lab) error {
			_, err := l.client.DescribeServices(l.ctx, &ecs.DescribeServicesInput{Cluster: aws.String("shop"), Services: []string{"x"}})
			return err
		},
		ecsfake.ServiceWrites: func(l *lab) error {
			_, err := l.client.UpdateService(l.ctx, &ecs.UpdateServiceInput{Cluster: aws.String("shop"), Service: aws.String("web")})
			return err
		},
		ecsfake.TaskDefinitionWrites: func(l *lab) error {
			_, err := l.client.RegisterTaskDefinition(l.ctx, definition("web", "web:1"))
			return err
		},
		ecsfake.TaskDefinitionReads: func(l *lab) error {
			_, err := l.client.DescribeTaskDefinition(l.ctx, &ecs.DescribeTaskDefinitionInput{TaskDefinition: aws.String("web")})
			return err
		},
		ecsfake.TaskRuns: func(l *lab) error { _, err := l.run(); return err },
		ecsfake.TagWrites: func(l *lab) error {
			_, err := l.client.TagResource(l.ctx, &ecs.TagResourceInput{
				ResourceArn: aws.String("arn:aws:ecs:us-east-1:123456789012:service/shop/web"),
				Tags:        []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}},
			})
			return err
		},
	}
	for group, want := range map[ecsfake.Group]ecsfake.Rate{
		ecsfake.ServiceReads: {Burst: 100, PerSecond: 20}, ecsfake.ServiceWrites: {Burst: 50, PerSecond: 5},
		ecsfake.TaskDefinitionWrites: {Burst: 20, PerSecond: 1}, ecsfake.TaskDefinitionReads: {Burst: 50, PerSecond: 20},
		ecsfake.TaskRuns: {Burst: 100, PerSecond: 40}, ecsfake.TagWrites: {Burst: 20, PerSecond: 10},
	} {
		t.Run(string(group), func(t *testing.T) {
			l := newLab(t, ecsfake.Options{})
			l.create(l.register("web", "web:1"), 0)
			passed := func() int {
				for n := range 1000 {
					if err := call[group](l); err != nil {
						var response *smithyhttp.ResponseError
						require.True(t, errors.As(err, &response))
						require.Equal(t, "400 ThrottlingException", fmt.Sprint(response.HTTPStatusCode(), " ", code(err)))
						return n
					}
				}
				return 1000
			}
			l.Limit(true)
			require.InDelta(t, want.Burst, passed(), 0)
			l.Advance(time.Second)
			require.InDelta(t, want.PerSecond, passed(), 0)
			l.Advance(time.Hour)
			require.InDelta(t, want.Burst, passed(), 0)
			throttled := 0
			for operation, n := range l.Throttled() {
				require.Equal(t, group, ecsfake.GroupOf(operation))
				throttled += n
			}
			require.Equal(t, 3, throttled)
			l.Limit(false)
			require.Equal(t, 1000, passed(), "off again")
		})
	}
}

func TestBucketsOfOtherGroupsStayFull(t *testing.T) {
	l := newLab(t, ecsfake.Options{LimitClock: time.Now})
	l.Limit(true)
	for range 25 {
		_, _ = l.client.RegisterTaskDefinition(l.ctx, definition("web", "web:1"))
	}
	require.GreaterOrEqual(t, l.Throttled()["RegisterTaskDefinition"], 1)
	_, err := l.client.ListServices(l.ctx, &ecs.ListServicesInput{Cluster: aws.String("shop")})
	require.NoError(t, err)
}

func TestManyMayCallAtOnce(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.register("web", "web:1")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			name := fmt.Sprintf("web-%d", i)
			_, err := l.client.CreateService(l.ctx, service("web", 2, func(in *ecs.CreateServiceInput) { in.ServiceName = &name }))
			if err != nil {
				t.Error(err)
			}
			for range 20 {
				if _, err := l.client.DescribeServices(l.ctx, &ecs.DescribeServicesInput{Cluster: aws.String("shop"), Services: []string{name}}); err != nil {
					t.Error(err)
				}
				l.Advance(time.Second)
				l.Behave("web:2", ecsfake.CannotPull(name))
				l.Alarm(name, true)
				l.Lag(time.Second)
				l.Calls()
			}
		})
	}
	all.Wait()
	require.Equal(t, 160, l.Calls()["DescribeServices"])
}
