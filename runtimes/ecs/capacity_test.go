package ecs

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/ecsfake"
)

// onFargate declares a service with network mode awsvpc, for Fargate.
func onFargate(s *serviceSpec) {
	s.change = func(definition, _ map[string]any) {
		definition["networkMode"], definition["requiresCompatibilities"], definition["cpu"], definition["memory"] = "awsvpc", []any{"FARGATE"}, "256", 512
	}
	withField("networkConfiguration", map[string]any{"awsvpcConfiguration": map[string]any{"subnets": []any{"subnet-a"}}})(s)
}

func strategy(names ...string) func(*serviceSpec) {
	all := []any{}
	for n, name := range names {
		all = append(all, map[string]any{"capacityProvider": name, "weight": n + 1})
	}
	return withField("capacityProviderStrategy", all)
}

// AWS changes capacity providers only with a new deployment, also on the way back to a launch type, as in a rollback. The tasks are
// replaced with the same task definition, and the plan says so.
func TestAnotherCapacityProviderForcesADeployment(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	image := func(s *serviceSpec) { s.image = "shop/web:v1" }
	launched := withField("launchType", "FARGATE")
	l.applyStable(requestFor("v1", 1, onFargate, launched))
	for n, row := range []struct {
		change     func(*serviceSpec)
		fields     string
		providers  int
		launchType types.LaunchType
	}{
		{strategy("FARGATE", "FARGATE_SPOT"), "capacityProviderStrategy, forceNewDeployment", 2, ""},
		{strategy("FARGATE_SPOT"), "capacityProviderStrategy, forceNewDeployment", 1, ""},
		{launched, "capacityProviderStrategy, forceNewDeployment", 0, types.LaunchTypeFargate},
		{strategy("FARGATE_SPOT"), "capacityProviderStrategy, forceNewDeployment", 1, ""},
		{strategy(), "capacityProviderStrategy, forceNewDeployment", 0, types.LaunchTypeFargate},
	} {
		in := requestFor("v1-i2", int64(n+2), onFargate, image, row.change)
		before := *l.web().Deployments[0].Id
		plan, err := l.Plan(l.ctx, in)
		require.NoError(t, err)
		require.Len(t, plan, 1, n)
		require.Equal(t, "ECS changes capacityProviderStrategy only with a new deployment: all tasks are replaced", plan[0].Message)
		require.Equal(t, "capacityProviderStrategy", plan[0].Fields[0].Path)
		require.Equal(t, "updated the service web: "+row.fields+"\n", l.apply(in), n)
		l.advanceUntil(in, stable("v1-i2"))
		web := l.web()
		require.NotEqual(t, before, *web.Deployments[0].Id, n)
		require.Len(t, web.CapacityProviderStrategy, row.providers, n)
		require.Equal(t, row.launchType, web.LaunchType, n)
		l.Runtime = l.worker()
		require.Empty(t, l.apply(in), "once", n)
	}
	require.Equal(t, []string{"web:1"}, l.revisions())
}

// A new task definition together with another strategy is one deployment.
func TestCapacityProvidersWithANewVersion(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.applyStable(requestFor("v1", 1, onFargate, withField("launchType", "FARGATE")))
	in := requestFor("v2", 2, onFargate, strategy("FARGATE_SPOT"))
	require.Equal(t, "registered the task definition web:2\nupdated the service web: capacityProviderStrategy, forceNewDeployment, taskDefinition\n", l.apply(in))
	l.advanceUntil(in, stable("v2"))
	require.Len(t, l.web().Deployments, 1)
	back := requestFor("v1", 3, onFargate, withField("launchType", "FARGATE"))
	require.Equal(t, "updated the service web: capacityProviderStrategy, forceNewDeployment, taskDefinition\n", l.apply(back), "a rollback")
	require.Equal(t, "SUCCEEDED; v1* 2/2", summary(l.advanceUntil(back, stable("v1"))))
}

// A change by hand is drift, and is put back in the same way.
func TestCapacityProvidersChangedByHand(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	in := requestFor("v1", 1, onFargate, strategy("FARGATE"))
	l.applyStable(in)
	l.update(func(u *ecs.UpdateServiceInput) {
		u.CapacityProviderStrategy = []types.CapacityProviderStrategyItem{{CapacityProvider: new("FARGATE_SPOT"), Weight: 1}}
		u.ForceNewDeployment = true
	})
	l.Runtime = l.worker()
	require.Contains(t, summary(l.observe(in)), "not as declared: capacityProviderStrategy")
	require.Equal(t, "updated the service web: capacityProviderStrategy, forceNewDeployment\n", l.apply(in))
	l.advanceUntil(in, stable("v1"))
	require.Equal(t, "FARGATE", *l.web().CapacityProviderStrategy[0].CapacityProvider)
}

// From one launch type to another there is no way.
func TestAnotherLaunchTypeIsRefused(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.applyStable(requestFor("v1", 1, onFargate, withField("launchType", "FARGATE")))
	_, err := l.Apply(l.ctx, requestFor("v2", 2, onFargate, withField("launchType", "EC2")))
	require.True(t, runtimes.IsPermanent(err), err)
	require.ErrorContains(t, err, "launchType of the service web cannot be changed (there it is \"FARGATE\")")
}
