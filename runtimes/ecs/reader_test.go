package ecs

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/ecsfake"
)

// The number of calls of an apply: docs/ecs.md has the same table.
func TestCallsOfAnApply(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	counted := func(do func()) map[string]int {
		l.ResetCalls()
		do()
		return l.Calls()
	}
	require.Equal(t, map[string]int{"DescribeServices": 2, "ListServices": 1, "ListTaskDefinitions": 1, "RegisterTaskDefinition": 1, "CreateService": 1},
		counted(func() { l.apply(requestFor("v1", 1)) }), "the first version")
	l.advanceUntil(requestFor("v1", 1), stable("v1"))
	require.Equal(t, map[string]int{"DescribeServices": 1}, counted(func() { l.apply(requestFor("v1", 1)) }), "nothing to do")
	require.Equal(t, map[string]int{"DescribeServices": 2, "ListTaskDefinitions": 1, "DescribeTaskDefinition": 1, "RegisterTaskDefinition": 1, "TagResource": 1, "UpdateService": 1},
		counted(func() { l.apply(requestFor("v2", 2)) }), "a new version")
	l.advanceUntil(requestFor("v2", 2), stable("v2"))
	require.Equal(t, map[string]int{"DescribeServices": 1, "ListTaskDefinitions": 1, "TagResource": 1, "UpdateService": 1},
		counted(func() { l.apply(requestFor("v1", 3)) }), "an old version that is remembered")
	l.advanceUntil(requestFor("v1", 3), stable("v1"))
	require.Equal(t, map[string]int{"DescribeServices": 1}, counted(func() { l.observe(requestFor("v1", 3)) }), "a reading of a healthy service")
}

// createServices makes services on the cluster without a runtime, and instances of them.
func (l *testCluster) createServices(n int) []runtimes.Request {
	l.Helper()
	want, err := declare(requestFor("v1", 1).Payload)
	require.NoError(l, err)
	out, err := l.client.RegisterTaskDefinition(l.ctx, want.definition)
	require.NoError(l, err)
	all := make([]runtimes.Request, n)
	for i := range all {
		name := fmt.Sprintf("web%04d", i)
		in := requestFor("v1", 1, withField("serviceName", name), withField("desiredCount", 0))
		in.Owner.Service = name
		all[i] = in
		_, err := l.client.CreateService(l.ctx, &ecs.CreateServiceInput{
			Cluster: aws.String("shop"), ServiceName: &name, TaskDefinition: out.TaskDefinition.TaskDefinitionArn, DesiredCount: aws.Int32(0),
		})
		require.NoError(l, err)
	}
	l.Advance(5 * time.Minute)
	return all
}

// A thousand services that are asked about at once are read in tens, within what ECS allows: a hundred calls. Each is then
// read again every 25 seconds, which is 4 calls a second of the 20 that are allowed.
func TestThousandServicesAreReadWithinTheLimits(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{LimitClock: time.Now})
	const services = 1000
	all := l.createServices(services)
	l.Runtime = l.worker(func(t *timing) { t.batchDelay, t.maxAge = 50*time.Millisecond, time.Minute })
	l.Limit(true)
	l.ResetCalls()
	var wait sync.WaitGroup
	for _, in := range all {
		wait.Go(func() {
			if _, err := l.Runtime.Observe(l.ctx, in); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	require.Empty(t, l.Throttled())
	calls := l.Calls()["DescribeServices"]
	t.Logf("%d services: %d calls", services, calls)
	require.GreaterOrEqual(t, calls, services/maxServicesPerCall)
	require.LessOrEqual(t, calls, services/maxServicesPerCall+maxConcurrentCalls+1)

	for _, row := range []struct {
		services int
		perSweep time.Duration
	}{{10, 5 * time.Second}, {100, 5 * time.Second}, {1000, 25 * time.Second}} {
		timing := defaultTiming()
		every := max(timing.pollInterval, time.Duration(row.services)*timing.perService)
		require.Equal(t, row.perSweep, every)
		perSecond := float64(row.services) / maxServicesPerCall / every.Seconds()
		t.Logf("%d services: %.0f calls in an idle minute; ECS allows %.0f", row.services, perSecond*60, rates()[serviceReads].perSecond*60)
		require.Less(t, perSecond, rates()[serviceReads].perSecond*usableShare/2)
	}
}

// A burst of writes is slowed down to what ECS allows, and none is refused: it takes longer, and nothing fails.
func TestBurstIsSlowedDownAndNotRefused(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{LimitClock: time.Now})
	l.Limit(true)
	var wait sync.WaitGroup
	const services = 18 // ECS allows 20 registrations at once and one a second then; we keep to 16
	for i := range services {
		wait.Go(func() {
			name := fmt.Sprintf("web%d", i)
			in := requestFor("v1", 1, withField("serviceName", name))
			in.Owner.Service = name
			if _, err := l.Runtime.Apply(l.ctx, in); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	require.Empty(t, l.Throttled())
}

// An account whose rate limit others have used up: an apply waits and continues, a reading reports what it waits for.
func TestThrottledAccountDelaysAndFailsNothing(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.Break(ecsfake.Fault{Kind: ecsfake.Throttled, Operations: []string{"RegisterTaskDefinition"}, Times: 1})
	l.apply(requestFor("v1", 1))
	require.Equal(t, 2, l.Calls()["RegisterTaskDefinition"])
	l.advanceUntil(requestFor("v1", 1), stable("v1"))

	l.Runtime = l.worker(func(t *timing) { t.throttleTimeout = 100 * time.Millisecond })
	stop := l.Break(ecsfake.Fault{Kind: ecsfake.Throttled, Operations: []string{"UpdateService"}})
	_, err := l.Runtime.Apply(l.ctx, requestFor("v2", 2))
	require.EqualError(t, err, "AWS currently throttles service writes in this account and region; the call is retried later")
	require.True(t, runtimes.IsUnready(err), "it does not count as an attempt")
	require.False(t, runtimes.IsPermanent(err))
	stop()
	l.Runtime = l.worker()
	l.applyStable(requestFor("v2", 2))
	require.Equal(t, []string{"web:2", "web:1"}, l.revisions())

	mend := l.Break(ecsfake.Fault{Kind: ecsfake.Throttled})
	soon, cancel := context.WithTimeout(l.ctx, 300*time.Millisecond) // the deadline is what is tested
	defer cancel()
	_, err = l.Runtime.Observe(soon, requestFor("v2", 2))
	var reading *entities.ReadingError
	require.ErrorAs(t, err, &reading)
	require.Equal(t, "throttled", reading.Code)
	require.True(t, reading.Throttled)
	require.Equal(t, "observe demo/web in staging: AWS currently throttles service reads in this account and region; the call is retried later", reading.Message)
	mend()
	require.Equal(t, "SUCCEEDED; v2* 2/2", summary(l.observe(requestFor("v2", 2))))
}

// Readings of several services are batched across callers; a change by others causes a hint, without a poll of the caller.
func TestReaderHintsAtChanges(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.Runtime = l.worker(func(t *timing) { t.pollInterval, t.perService, t.maxAge = 20*time.Millisecond, 0, time.Minute })
	hints := make(chan runtimes.Owner, 100)
	defer l.Runtime.Watch(func(owner runtimes.Owner) { hints <- owner })()
	in := requestFor("v1", 1)
	l.applyStableByReader(in)
	for len(hints) > 0 {
		<-hints
	}
	l.update(func(u *ecs.UpdateServiceInput) { u.DesiredCount = aws.Int32(5) })
	select {
	case owner := <-hints:
		require.Equal(t, in.Owner, owner)
	case <-l.ctx.Done():
		t.Fatal("no hint")
	}
	require.Contains(t, summary(l.observe(in)), "desiredCount is 5, declared 2")
}

// applyStableByReader applies, and waits until the reader has found the result on its own.
func (l *testCluster) applyStableByReader(in runtimes.Request) {
	l.Helper()
	l.apply(in)
	require.Eventually(l.T, func() bool {
		l.Advance(5 * time.Second)
		return stable(in.FullVersion)(l.observe(in))
	}, time.Minute, 5*time.Millisecond)
}

// Runtimes of one account and region share its rate limit, with any role; those of other accounts and regions do not.
func TestRateLimitIsSharedByAccountAndRegion(t *testing.T) {
	accounts := &Accounts{}
	defer accounts.Close()
	of := func(name, region, role string) *cluster {
		return accounts.cluster(entities.RuntimeDefinition{ECS: &entities.ECSRuntime{Cluster: name, Region: region, RoleARN: role}})
	}
	a := of("a", "eu-west-1", "arn:aws:iam::111111111111:role/deploy")
	require.Same(t, a, of("a", "eu-west-1", "arn:aws:iam::111111111111:role/deploy"))
	require.Same(t, a.account, of("b", "eu-west-1", "arn:aws:iam::111111111111:role/deploy").account)
	require.Same(t, a.account.limiter, of("b", "eu-west-1", "arn:aws:iam::111111111111:role/other").account.limiter)
	require.NotSame(t, a.account.limiter, of("a", "us-east-1", "arn:aws:iam::111111111111:role/deploy").account.limiter)
	require.NotSame(t, a.account.limiter, of("a", "eu-west-1", "arn:aws:iam::222222222222:role/deploy").account.limiter)
}
