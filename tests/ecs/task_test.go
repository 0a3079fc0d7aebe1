package ecs_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/ecsfake"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

const withTasks = `apiVersion: converge/v1
kind: Application
name: shop
releaseChannels:
- name: prod
  runtimes: [{name: none}]
  protections:
  - {name: smoke, task: {command: [smoke], cluster: tools, region: us-east-1, taskDefinition: "tool:1"}, lifecycle: [{preApproval: {}}]}
  extensions:
  - name: migrate
    lifecycle: postApproval
    command: [migrate, "${{ version }}"]
    env: {LEVEL: full}
    retry: {maxAttempts: 2, backoff: 10ms}
    task: {cluster: tools, region: us-east-1, taskDefinition: "tool:1"}
---
{apiVersion: converge/v1, kind: Runtime, name: none, custom: {apply: {command: ["true"]}}}
---
{apiVersion: converge/v1, kind: Service, name: web}
`

// A protection and an extension run as tasks: while one runs explain says where, one that fails names its reason and its task, and a
// retry is a task of its own.
func TestReleaseWithTasks_A20_A21(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs; not with -short")
	}
	server := newAWS(t, ecsfake.Options{}, "tools")
	client := server.Client()
	_, err := client.RegisterTaskDefinition(t.Context(), &ecs.RegisterTaskDefinitionInput{Family: aws.String("tool"), ContainerDefinitions: []types.ContainerDefinition{{
		Name: aws.String("tool"), Image: aws.String("tool:1"), Memory: aws.Int32(128),
		LogConfiguration: &types.LogConfiguration{LogDriver: types.LogDriverAwslogs, Options: map[string]string{"awslogs-group": "tools", "awslogs-stream-prefix": "converge"}},
	}}})
	require.NoError(t, err)
	server.Command("smoke", ecsfake.Run{Log: []string{"all is well"}})
	server.Command("migrate v1", ecsfake.Run{For: 20 * time.Minute})
	server.Command("migrate v2", ecsfake.Run{ExitCode: 4, Log: []string{"table is locked"}})
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shop.converge.yaml"), []byte(withTasks), 0o600))
	d := dev(t, dir, server)
	d.Env = append(d.Env, "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS="+server.URL)
	d.Start()
	explained := func(text string) {
		t.Helper()
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			out, _ := d.Converge("explain", "shop/web")
			return strings.Contains(out, text), out
		})
	}
	require.Eventually(t, func() bool {
		_, code := d.Converge("release", "shop/web", "v1")
		return code == 0
	}, 2*time.Minute, time.Second)
	explained("runs as an ECS task in cluster tools (https://us-east-1.console.aws.amazon.com/ecs/v2/clusters/tools/tasks?region=us-east-1), attempt 1")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // the check is a task too, and comes first
		ran := commands(t, client)
		return slices.Equal(ran, []string{"migrate v1", "smoke"}), fmt.Sprint(ran)
	})

	d.Await("shop/web", "prod CONVERGED v1")

	_, code := d.Converge("release", "shop/web", "v2")
	require.Zero(t, code)
	explained("failed 2 times: migrate exited 4: table is locked (ECS task ")
}

// commands are what ran as tasks so far, each once.
func commands(t *testing.T, client *ecs.Client) []string {
	t.Helper()
	seen := map[string]bool{}
	for _, status := range []types.DesiredStatus{types.DesiredStatusRunning, types.DesiredStatusStopped} {
		list, err := client.ListTasks(t.Context(), &ecs.ListTasksInput{Cluster: aws.String("tools"), DesiredStatus: status})
		require.NoError(t, err)
		if len(list.TaskArns) == 0 {
			continue
		}
		out, err := client.DescribeTasks(t.Context(), &ecs.DescribeTasksInput{Cluster: aws.String("tools"), Tasks: list.TaskArns})
		require.NoError(t, err)
		for _, task := range out.Tasks {
			seen[strings.Join(task.Overrides.ContainerOverrides[0].Command, " ")] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}
