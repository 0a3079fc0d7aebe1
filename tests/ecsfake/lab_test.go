package ecsfake_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/ecsfake"
)

// lab is a fake with a cluster called shop, and the SDK's client for it.
type lab struct {
	*testing.T
	*ecsfake.Server
	client *ecs.Client
	ctx    context.Context
}

func newLab(t *testing.T, options ecsfake.Options) *lab {
	t.Helper()
	server, err := ecsfake.New(options)
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	l := &lab{t, server, server.Client(once), ctx}
	_, err = l.client.CreateCluster(ctx, &ecs.CreateClusterInput{ClusterName: aws.String("shop"), CapacityProviders: []string{"FARGATE", "FARGATE_SPOT", "spot"}})
	require.NoError(t, err)
	return l
}

// once has a client try each request once, so that a test sees what the API said.
func once(o *ecs.Options) { o.Retryer = aws.NopRetryer{} }

// register registers a definition of one container on EC2, without a health check unless changed, and returns its ARN.
func (l *lab) register(family, image string, change ...func(*ecs.RegisterTaskDefinitionInput)) string {
	l.Helper()
	out, err := l.client.RegisterTaskDefinition(l.ctx, definition(family, image, change...))
	require.NoError(l, err)
	return *out.TaskDefinition.TaskDefinitionArn
}

func definition(family, image string, change ...func(*ecs.RegisterTaskDefinitionInput)) *ecs.RegisterTaskDefinitionInput {
	in := &ecs.RegisterTaskDefinitionInput{
		Family: &family,
		ContainerDefinitions: []types.ContainerDefinition{{
			Name: aws.String("web"), Image: &image, Memory: aws.Int32(128), Command: []string{"serve"},
		}},
	}
	for _, c := range change {
		c(in)
	}
	return in
}

// checked gives the container a health check.
func checked(in *ecs.RegisterTaskDefinitionInput) {
	in.ContainerDefinitions[0].HealthCheck = &types.HealthCheck{Command: []string{"CMD", "true"}}
}

// create creates a service called web in the cluster shop.
func (l *lab) create(definition string, desired int32, change ...func(*ecs.CreateServiceInput)) *types.Service {
	l.Helper()
	out, err := l.client.CreateService(l.ctx, service(definition, desired, change...))
	require.NoError(l, err)
	return out.Service
}

func service(definition string, desired int32, change ...func(*ecs.CreateServiceInput)) *ecs.CreateServiceInput {
	in := &ecs.CreateServiceInput{
		Cluster: aws.String("shop"), ServiceName: aws.String("web"), TaskDefinition: &definition, DesiredCount: &desired,
	}
	for _, c := range change {
		c(in)
	}
	return in
}

// percents sets what governs a rollout.
func percents(low, high int32) func(*ecs.CreateServiceInput) {
	return func(in *ecs.CreateServiceInput) {
		configuration(in).MinimumHealthyPercent, configuration(in).MaximumPercent = &low, &high
	}
}

// breaker switches the circuit breaker on.
func breaker(rollback bool) func(*ecs.CreateServiceInput) {
	return func(in *ecs.CreateServiceInput) {
		configuration(in).DeploymentCircuitBreaker = &types.DeploymentCircuitBreaker{Enable: true, Rollback: rollback}
	}
}

func configuration(in *ecs.CreateServiceInput) *types.DeploymentConfiguration {
	if in.DeploymentConfiguration == nil {
		in.DeploymentConfiguration = &types.DeploymentConfiguration{}
	}
	return in.DeploymentConfiguration
}

func (l *lab) update(change func(*ecs.UpdateServiceInput)) *types.Service {
	l.Helper()
	in := &ecs.UpdateServiceInput{Cluster: aws.String("shop"), Service: aws.String("web")}
	change(in)
	out, err := l.client.UpdateService(l.ctx, in)
	require.NoError(l, err)
	return out.Service
}

func to(definition string) func(*ecs.UpdateServiceInput) {
	return func(in *ecs.UpdateServiceInput) { in.TaskDefinition = &definition }
}

// web is the service as it is described; nil when it is missing.
func (l *lab) web() *types.Service {
	l.Helper()
	out, err := l.client.DescribeServices(l.ctx, &ecs.DescribeServicesInput{Cluster: aws.String("shop"), Services: []string{"web"}})
	require.NoError(l, err)
	if len(out.Services) == 0 {
		return nil
	}
	return &out.Services[0]
}

// settled advances until the PRIMARY deployment is no longer in progress, and returns the service.
func (l *lab) settled() *types.Service {
	l.Helper()
	for range 3600 {
		web := l.web()
		if web.Deployments[0].RolloutState != types.DeploymentRolloutStateInProgress {
			return web
		}
		l.Advance(time.Second)
	}
	l.Fatal("the service does not settle within an hour")
	return nil
}

// rollout writes deployments[] on one line: status, revision, state, running+pending of desired, failed tasks.
func rollout(web *types.Service) string {
	lines := []string{}
	for _, d := range web.Deployments {
		lines = append(lines, fmt.Sprintf("%s %s %s %d+%d/%d failed %d", *d.Status, revision(*d.TaskDefinition), d.RolloutState,
			d.RunningCount, d.PendingCount, d.DesiredCount, d.FailedTasks))
	}
	return strings.Join(lines, "; ")
}

func revision(arn string) string { return arn[strings.LastIndex(arn, "/")+1:] }

// code is the code of an error of the API.
func code(err error) string {
	var refusal smithy.APIError
	if errors.As(err, &refusal) {
		return refusal.ErrorCode()
	}
	return fmt.Sprint(err)
}

// messages are the events, newest first, without ids.
func messages(web *types.Service) []string {
	out := []string{}
	for _, e := range web.Events {
		out = append(out, *e.Message)
	}
	return out
}

func (l *lab) tasks(change func(*ecs.ListTasksInput)) []types.Task {
	l.Helper()
	in := &ecs.ListTasksInput{Cluster: aws.String("shop")}
	change(in)
	list, err := l.client.ListTasks(l.ctx, in)
	require.NoError(l, err)
	if len(list.TaskArns) == 0 {
		return nil
	}
	out, err := l.client.DescribeTasks(l.ctx, &ecs.DescribeTasksInput{Cluster: aws.String("shop"), Tasks: list.TaskArns, Include: []types.TaskField{types.TaskFieldTags}})
	require.NoError(l, err)
	return out.Tasks
}
