//go:build unix

package custom

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/ecs"
	"github.com/converge-engine/converge/runtimes/kubernetes/job/report"
	"github.com/converge-engine/converge/tests/ecsfake"
)

// onECS is a fake of ECS with the task definition tool:1, and a worker that speaks to it.
func onECS(t *testing.T) (*ecsfake.Server, entities.CommandTask, Worker) {
	t.Helper()
	const speed = 200
	server, err := ecsfake.New(ecsfake.Options{Speed: speed})
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	client := server.Client()
	_, err = client.CreateCluster(t.Context(), &awsecs.CreateClusterInput{ClusterName: aws.String("shop")})
	require.NoError(t, err)
	_, err = client.RegisterTaskDefinition(t.Context(), &awsecs.RegisterTaskDefinitionInput{Family: aws.String("tool"), ContainerDefinitions: []types.ContainerDefinition{{
		Name: aws.String("tool"), Image: aws.String("tool:1"), Memory: aws.Int32(128),
		LogConfiguration: &types.LogConfiguration{LogDriver: types.LogDriverAwslogs, Options: map[string]string{"awslogs-group": "tools", "awslogs-stream-prefix": "converge"}},
	}}})
	require.NoError(t, err)
	keys := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "AKIAFAKE", SecretAccessKey: "fake"}, nil
	})
	accounts := &ecs.Accounts{
		PollInterval: 100 * time.Millisecond,
		Configure:    func(o *awsecs.Options) { o.HTTPClient, o.Credentials = ecsfake.HTTPClient(), keys },
		ConfigureLogs: func(o *cloudwatchlogs.Options) {
			o.HTTPClient, o.Credentials, o.BaseEndpoint = ecsfake.HTTPClient(), keys, &server.URL
		},
	}
	t.Cleanup(accounts.Close)
	where := entities.CommandTask{Cluster: entities.ECSRuntime{Cluster: "shop", Region: "us-east-1", Endpoint: server.URL}, TaskDefinition: "tool:1"}
	return server, where, Worker{Tasks: accounts, Secrets: everything}
}

func documented(t *testing.T, doc report.Document) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, doc.Write(&b))
	return strings.TrimSpace(b.String())
}

func streamOf(text string) report.Stream {
	return report.Stream{Data: []byte(text), Bytes: int64(len(text))}
}

// The commands of a runtime mean as tasks what they mean elsewhere: exit codes, documents on stdout, errors with the end of
// stderr, and where it ran.
func TestRuntimeOfTasks_C1_C3_C10(t *testing.T) {
	t.Parallel()
	server, where, worker := onECS(t)
	where.Wrapper = "/converge-wrapper"
	rt, err := NewWithWorker(entities.RuntimeDefinition{Name: "edge", Owner: "hello", Kind: entities.RuntimeCustom, Custom: &entities.CustomRuntime{
		Apply: entities.Command{Argv: []string{"edge", "apply"}, Timeout: time.Minute, RetryableExitCodes: []int{75}},
		Fetch: &entities.Command{Argv: []string{"edge", "fetch"}, Timeout: time.Minute}, Mode: entities.FetchStructured, Task: &where,
	}}, worker)
	require.NoError(t, err)
	server.Command("edge fetch", ecsfake.Run{Log: []string{documented(t, report.Document{
		Stdout: streamOf(`{"objects":[{"name":"web","objectType":"edge","status":"SUCCEEDED","versions":[{"version":"v1","active":true}]}]}`), Stderr: streamOf("talk\n"),
	})}})
	objects, out, err := rt.ObserveOutput(t.Context(), web("v1"))
	require.NoError(t, err)
	require.Equal(t, "v1", objects[0].Versions[0].Version)
	require.Equal(t, "talk\n", out.Stderr)

	server.Command("edge apply", ecsfake.Run{ExitCode: 9, Log: []string{documented(t, report.Document{ExitCode: 9, Stderr: streamOf("no route\n")})}})
	_, err = rt.Apply(t.Context(), web("v1"))
	require.Regexp(t, `^edge exited 9: no route \(ECS task [0-9a-f]{8}: https://us-east-1\..*\)$`, err.Error())
	require.True(t, runtimes.IsPermanent(err))

	server.Command("edge fetch", ecsfake.Run{}) // prints nothing at all
	server.Break(ecsfake.Fault{Kind: ecsfake.AccessDenied, Operations: []string{"GetLogEvents"}})
	_, err = rt.Observe(t.Context(), web("v1"))
	var reading *entities.ReadingError
	require.ErrorAs(t, err, &reading)
	require.Equal(t, runtimes.CodeFetchFailed, reading.Code)
	require.Contains(t, reading.Message, "edge exited 0, but its output is unknown: log group tools cannot be read: AccessDeniedException")
}

// A secret never becomes part of a task's description: not one of the runtime, of the service, nor of a command of its own. Nothing
// is started.
func TestNoSecretsInTasks_G5(t *testing.T) {
	t.Setenv("WORKER_TOKEN", hidden)
	server, where, worker := onECS(t)
	secret := map[string]entities.Value{"TOKEN": {WorkerEnv: "WORKER_TOKEN"}}
	def := entities.RuntimeDefinition{Name: "edge", Owner: "hello", Kind: entities.RuntimeCustom, Custom: &entities.CustomRuntime{Apply: sh("true"), Task: &where}}
	rt, err := NewWithWorker(def, worker)
	require.NoError(t, err)
	in := web("v1")
	in.Payload.Custom.Env = secret
	refused := func(err error) {
		t.Helper()
		require.ErrorContains(t, err, `TOKEN: secrets cannot be passed to an ECS task, because its description shows its environment; set them in the "secrets" of the task definition's container`)
		require.NotContains(t, err.Error(), hidden)
		require.True(t, runtimes.IsPermanent(err))
	}
	_, err = rt.Apply(t.Context(), in)
	refused(err)
	o := standalone("x")
	o.Task, o.Env = &where, secret
	_, _, err = RunStandalone(t.Context(), worker, o)
	refused(err)
	in.Payload.Custom.Env, in.Payload.Custom.Files = nil, map[string]string{"a.json": "{}"}
	_, err = rt.Apply(t.Context(), in)
	require.ErrorContains(t, err, "the service has files (a.json), which cannot be copied into an ECS task")
	require.Zero(t, server.Calls()["RunTask"])
}

// A check or an extension reports the output of its task, or that it is unknown.
func TestStandaloneTask_A20_A21(t *testing.T) {
	t.Parallel()
	server, where, worker := onECS(t)
	server.Command("smoke", ecsfake.Run{ExitCode: 2, Log: []string{"not yet"}})
	o := standalone("smoke")
	o.Task, o.Document = &where, `{"schema":"converge.check/v1"}`
	out, signal, err := RunStandalone(t.Context(), worker, o)
	require.NoError(t, err)
	listed, err := server.Client().ListTasks(t.Context(), &awsecs.ListTasksInput{Cluster: aws.String("shop"), DesiredStatus: types.DesiredStatusStopped})
	require.NoError(t, err)
	tasks, err := server.Client().DescribeTasks(t.Context(), &awsecs.DescribeTasksInput{Cluster: aws.String("shop"), Tasks: listed.TaskArns})
	require.NoError(t, err)
	require.Contains(t, tasks.Tasks[0].Overrides.ContainerOverrides[0].Environment,
		types.KeyValuePair{Name: aws.String("PVN_CHECK"), Value: &o.Document}, "files cannot be copied into a task")
	require.Equal(t, [4]any{2, "", "not yet\n", mergedRemark}, [4]any{out.ExitCode, signal, out.Stdout, out.Remark})
	require.Contains(t, out.Location, "ECS task ")

	server.Break(ecsfake.Fault{Kind: ecsfake.AccessDenied, Operations: []string{"GetLogEvents"}})
	out, _, err = RunStandalone(t.Context(), worker, o)
	require.NoError(t, err)
	require.Equal(t, 2, out.ExitCode)
	require.Contains(t, out.Remark, "(its output is unknown: log group tools cannot be read: AccessDeniedException")
}

func TestInvalidTaskDefinitions(t *testing.T) {
	t.Parallel()
	task := entities.CommandTask{Cluster: entities.ECSRuntime{Cluster: "shop"}, TaskDefinition: "tool:1"}
	for says, change := range map[string]func(*entities.CustomRuntime){
		"both a job and a task are declared":                     func(c *entities.CustomRuntime) { c.Job = &entities.CommandJob{Namespace: "a", Image: "b"} },
		"watch cannot run as a Job or a task, because those end": func(c *entities.CustomRuntime) { c.Watch = new(sh("true")) },
		"its task has no cluster or no task definition":          func(c *entities.CustomRuntime) { c.Task = &entities.CommandTask{} },
		"run as ECS tasks, but this worker cannot run tasks":     func(*entities.CustomRuntime) {},
	} {
		c := entities.CustomRuntime{Apply: sh("true"), Task: &task}
		change(&c)
		_, err := NewWithWorker(entities.RuntimeDefinition{Name: "x", Kind: entities.RuntimeCustom, Custom: &c}, Worker{})
		require.ErrorContains(t, err, says)
	}
}
