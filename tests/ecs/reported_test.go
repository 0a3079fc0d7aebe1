package ecs_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/ecsfake"
)

// What an extension reports is in the task definition that its release registers, and a steady service stays at it.
func TestOutputsReachTheTaskDefinition_A21(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, strings.NewReplacer(
		`{name: TASKS, value:`, `{name: DB, value: "${{ outputs.infra.host }}:5432"}, {name: TASKS, value:`,
		"progressDeadline: 5m", `progressDeadline: 5m
extensions: [{name: infra, lifecycle: preApproval, outputs: [host], command: [echo, '{"outputs": {"host": "db-${{ channel }}-${{ version }}"}}']}]`,
	).Replace(configuration), ecsfake.Options{})
	has := func(cluster, version string) {
		t.Helper()
		services, err := w.ecs.DescribeServices(t.Context(), &ecs.DescribeServicesInput{Cluster: &cluster, Services: []string{"web-" + cluster}})
		require.NoError(t, err)
		task, err := w.ecs.DescribeTaskDefinition(t.Context(), &ecs.DescribeTaskDefinitionInput{TaskDefinition: services.Services[0].TaskDefinition})
		require.NoError(t, err)
		require.Contains(t, task.TaskDefinition.ContainerDefinitions[0].Environment, types.KeyValuePair{Name: aws.String("DB"), Value: aws.String("db-" + cluster + "-" + version + ":5432")})
	}
	has("staging", "v1")
	has("production", "v1")
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	has("production", "v2")
}
