package ecs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/ecsfake"
)

// Where the runtimes have access: read, Converge goes through a release beside the tool that deploys: it recognises what that deploys, and
// says what it would apply and repair. No call of it writes.
func TestTrialOnECSWritesNothing_A25(t *testing.T) {
	t.Parallel()
	server := newAWS(t, ecsfake.Options{}, "staging", "production")
	w := &world{shared.World(t), server, server.Client()}
	channels := []string{"staging", "production"}
	deploy := func(version string) { // as another tool does
		for _, channel := range channels {
			registered, err := w.ecs.RegisterTaskDefinition(t.Context(), &ecs.RegisterTaskDefinitionInput{
				Family: aws.String("web"),
				ContainerDefinitions: []types.ContainerDefinition{{
					Name: aws.String("web"), Image: aws.String("shop/web:" + version), Memory: aws.Int32(128),
					Environment: []types.KeyValuePair{{Name: aws.String("TASKS"), Value: aws.String("2")}},
				}},
			})
			require.NoError(t, err)
			revision := registered.TaskDefinition.TaskDefinitionArn
			if w.described(channel) != nil {
				_, err = w.ecs.UpdateService(t.Context(), &ecs.UpdateServiceInput{Cluster: &channel, Service: aws.String("web-" + channel), TaskDefinition: revision})
			} else {
				_, err = w.ecs.CreateService(t.Context(), &ecs.CreateServiceInput{
					Cluster: &channel, ServiceName: aws.String("web-" + channel), TaskDefinition: revision, DesiredCount: aws.Int32(2),
					DeploymentConfiguration: &types.DeploymentConfiguration{DeploymentCircuitBreaker: &types.DeploymentCircuitBreaker{Enable: true, Rollback: true}},
				})
			}
			require.NoError(t, err)
		}
	}
	deploy("v1")
	w.aws.ResetCalls()
	w.Write(strings.NewReplacer("URL", server.URL, ", ecs: {", ", access: read, ecs: {").Replace(configuration))
	w.Publish()
	t.Cleanup(func() { w.Retire("web") })
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")

	w.Release("web", "v2")
	w.explained("report only: Converge would apply v2")
	deploy("v2")
	s := w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.True(t, s.Channels[0].ReportOnly && s.Channels[1].ReportOnly)
	w.count("production", 5)
	w.explained("report only: Converge would repair it to v2")
	w.AwaitThat("web", "drift", func(s protocol.Status) bool { return s.Channels[1].Status == "DEGRADED" })

	own := map[string]int{"RegisterTaskDefinition": len(channels), "UpdateService": len(channels) + 1} // of this test
	for call, times := range w.aws.Calls() {
		if !slices.ContainsFunc([]string{"Describe", "List"}, func(verb string) bool { return strings.HasPrefix(call, verb) }) {
			require.Equal(t, own[call], times, call)
		}
	}
}
