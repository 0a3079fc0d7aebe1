//go:build unix

package custom

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/kubernetes/api"
	"github.com/converge-engine/converge/tests/kubetest"
	"github.com/converge-engine/converge/tests/runtimetest"
)

// These run commands as Jobs of a real control plane, whose node runs them as processes of this machine.

type oneCluster struct{ client *api.Client }

func (c oneCluster) Client(context.Context, entities.RuntimeDefinition) (*api.Client, error) {
	return c.client, nil
}

// clientOf is a worker's connection to a control plane.
func clientOf(t *testing.T, plane *kubetest.Cluster) oneCluster {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig)
	require.NoError(t, err)
	client, err := api.New(config, nil)
	require.NoError(t, err)
	return oneCluster{client}
}

func buildWrapper(t *testing.T) string {
	t.Helper()
	kubetest.Start(t) // skips without one
	path := filepath.Join(t.TempDir(), "converge-wrapper")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/converge-engine/converge/cmd/converge-wrapper")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// inJobs makes a runtime whose commands run as Jobs in a namespace of the test.
func inJobs(t *testing.T, wrapper string, c entities.CustomRuntime) *Runtime {
	t.Helper()
	plane := kubetest.Start(t)
	c.Job = &entities.CommandJob{Namespace: plane.Namespace(t), Image: "tool:1", Wrapper: wrapper}
	rt, err := NewWithWorker(entities.RuntimeDefinition{Name: "cluster", Owner: "hello", Kind: entities.RuntimeCustom, Custom: &c}, Worker{Clusters: clientOf(t, plane), Secrets: everything})
	require.NoError(t, err)
	return rt
}

// What every runtime promises, with a Job for each reading and each apply.
func TestConformanceAsJobs_A11_C1(t *testing.T) {
	script, err := filepath.Abs("testdata/demo.sh")
	require.NoError(t, err)
	wrapper := buildWrapper(t)
	runtimetest.Run(t, runtimetest.Harness{Timeout: 2 * time.Minute, New: func(t *testing.T) runtimetest.Subject {
		dir := t.TempDir()
		in := func(verb string) []string {
			return []string{"sh", "-c", `cd "$1" && exec sh "$2" ` + verb, "sh", dir, script}
		}
		rt := inJobs(t, wrapper, entities.CustomRuntime{
			Apply:  entities.Command{Argv: in("apply"), Timeout: time.Minute, RetryableExitCodes: []int{75}},
			Fetch:  &entities.Command{Argv: in("fetch"), Timeout: time.Minute},
			Mode:   entities.FetchStructured,
			Remove: &entities.Command{Argv: in("remove"), Timeout: time.Minute},
		})
		write := func(name, text string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		return runtimetest.Subject{
			Runtime: rt, Fleet: true,
			Changes: func(channel string) int {
				log, err := os.ReadFile(filepath.Join(dir, channel+".log"))
				require.NoError(t, err)
				return bytes.Count(log, []byte("\n"))
			},
			FailApply:   func(permanent bool) { write("fail-apply", map[bool]string{true: "1", false: "75"}[permanent]) },
			FailReading: func() { write("fail-fetch", "1") },
			Hang: func(arrived func()) {
				opened := pipe(t, filepath.Join(dir, "hang"))
				go func() { <-opened; arrived() }()
			},
		}
	}})
}

// The same variables and files; stderr apart; and no secret in what is kept.
func TestApplyAsJob_C3_C7(t *testing.T) {
	t.Setenv("WORKER_TOKEN", hidden)
	rt := inJobs(t, buildWrapper(t), entities.CustomRuntime{
		Apply: sh(`env | grep -E '^(PVN|CONVERGE_ADDRESS|ZONE)' | sort; cat "$CONVERGE_FILES/routes/a.json"; echo "token $TOKEN" >&2; exit 3`),
		Env:   map[string]entities.Value{"TOKEN": {WorkerEnv: "WORKER_TOKEN"}, "ZONE": {Literal: "us"}},
	})
	in := web("v2-i3")
	in.Key = "k"
	in.Payload.Address = map[string]string{"namespace": "shop"}
	in.Payload.Custom.Files = map[string]string{"routes/a.json": "{}\n"}
	out, err := rt.Apply(t.Context(), in)
	require.EqualError(t, err, "sh exited 3: token ***")
	require.Equal(t, strings.Join([]string{
		"CONVERGE_ADDRESS_NAMESPACE=shop",
		"PVN_APPLICATION=hello", "PVN_INSTANCE=main", "PVN_RELEASE_CHANNEL=staging", "PVN_SERVICE=web", "PVN_SERVICE_ID=" + in.ServiceID, "PVN_SERVICE_VERSION=v2-i3",
		"ZONE=us", "{}", "",
	}, "\n"), out.Stdout)
	require.Equal(t, "token ***\n", out.Stderr)
	require.Equal(t, 3, out.ExitCode)
	require.WithinDuration(t, time.Now(), out.Started, time.Minute)
	require.Positive(t, out.Duration)
}

// How a fetch that fails in a cluster is shown, by code and in words.
func TestFetchAsJob_C6(t *testing.T) {
	wrapper := buildWrapper(t)
	for _, row := range []struct {
		name, script, code, want string
		change                   func(*entities.CustomRuntime)
	}{
		{"fails", "echo no cluster >&2; exit 1", runtimes.CodeFetchFailed, "sh exited 1: no cluster", nil},
		{"malformed", "echo '{}'", runtimes.CodeMalformed, "sh: objects: missing; expected a list", nil},
		{
			"merged", "echo '{\"objects\": []}'; echo debug >&2", runtimes.CodeMalformed, "(stderr is in it too: the job has no converge-wrapper)",
			func(c *entities.CustomRuntime) { c.Job.Wrapper = "" },
		},
		{"endless", "exec yes", runtimes.CodeOutputTooLarge, "sh printed more than 256 KiB", nil},
		{
			"hangs", "echo the lock is taken >&2; exec sleep 1000", runtimes.CodeTimeout, "sh did not finish within 5s and was ended: the lock is taken",
			func(c *entities.CustomRuntime) { c.Fetch.Timeout = 5 * time.Second },
		},
		{"image", "true", runtimes.CodeFetchFailed, "image tool:nopull cannot be pulled: ", func(c *entities.CustomRuntime) { c.Job.Image = "tool:nopull" }},
		{
			"no program", "", runtimes.CodeCommandNotFound, "in image tool:1: no-such-program cannot be started: ",
			func(c *entities.CustomRuntime) { c.Fetch.Argv = []string{"no-such-program"} },
		},
		{
			"no wrapper", "", runtimes.CodeCommandNotFound, "image tool:1 cannot start /no/wrapper: ",
			func(c *entities.CustomRuntime) { c.Job.Wrapper = "/no/wrapper" },
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := fetching(entities.FetchStructured, row.script)
			c.Fetch.Timeout = time.Minute
			rt := inJobs(t, wrapper, c)
			if row.change != nil {
				row.change(rt.def.Custom)
			}
			_, err := rt.Observe(t.Context(), web("v1"))
			require.ErrorContains(t, err, "")
			require.ErrorContains(t, err, row.want)
			require.Equal(t, row.code, code(t, err))
			left, err := rt.runner.(*jobRunner).clusters.(oneCluster).client.Jobs(rt.def.Custom.Job.Namespace).List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			for _, j := range left.Items {
				require.NotNil(t, j.DeletionTimestamp, j.Name)
			}
		})
	}
}

func TestJobsNeedClusters(t *testing.T) {
	def := entities.RuntimeDefinition{Name: "x", Kind: entities.RuntimeCustom, Custom: &entities.CustomRuntime{Apply: sh("true"), Job: &entities.CommandJob{Namespace: "a", Image: "b"}}}
	_, err := New(def)
	require.EqualError(t, err, "runtime x: its commands run as Jobs, but this worker has no cluster connections")
	def.Custom.Job.Image = ""
	_, err = NewWithWorker(def, Worker{Clusters: oneCluster{}})
	require.EqualError(t, err, "runtime x: its job has no namespace or no image")
}

// A check that runs as a Job finds its document in a file, as one on the worker's machine does.
func TestStandaloneJobReadsItsDocument_A20(t *testing.T) {
	plane := kubetest.Start(t)
	o := standalone("sh", "-c", `cat "$PVN_CHECK_FILE"; exit 1`)
	o.Job, o.Document = &entities.CommandJob{Namespace: plane.Namespace(t), Image: "tool:1"}, `{"schema":"converge.check/v1"}`
	out, _, err := RunStandalone(t.Context(), Worker{Clusters: clientOf(t, plane)}, o)
	require.NoError(t, err)
	require.Equal(t, 1, out.ExitCode)
	require.Equal(t, o.Document, strings.TrimSpace(out.Stdout))
}

// The requirements of a Job for its nodes are in its pods.
func TestJobHasResourcesAndNodeSelectors_C7(t *testing.T) {
	t.Parallel()
	j := jobRunner{def: entities.RuntimeDefinition{Custom: &entities.CustomRuntime{Job: &entities.CommandJob{
		Requests: map[string]string{"cpu": "500m"}, Limits: map[string]string{"memory": "1Gi"}, NodeSelector: map[string]string{"pool": "ci"},
		Tolerations: []entities.Toleration{{Key: "ci", Operator: "Exists", Effect: "NoSchedule"}},
	}}}}
	r := j.request(&result{}, command{})
	require.Equal(t, corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("500m")}, Limits: corev1.ResourceList{"memory": resource.MustParse("1Gi")},
	}, r.Resources)
	require.Equal(t, map[string]string{"pool": "ci"}, r.NodeSelector)
	require.Equal(t, []corev1.Toleration{{Key: "ci", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}, r.Tolerations)
}
