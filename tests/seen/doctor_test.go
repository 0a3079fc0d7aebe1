package seen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/buckettest"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/deployment"
	"github.com/converge-engine/converge/worker/embedded"
)

// This file has, for each finding of `converge admin doctor`, a state in which it is really so. Those of versions of workers are in
// tests/upgrade, that of workflows that fail in tests/operators.

// ran is what the program prints, what it says, and its exit code.
func ran(t *testing.T, arguments ...string) (out, said string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), shared.Converge(t), arguments...)
	var stderr bytes.Buffer
	cmd.Stderr, cmd.Dir = &stderr, t.TempDir()
	stdout, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return string(stdout), stderr.String(), cmd.ProcessState.ExitCode()
}

// doctor is what it finds, by code, each with what to do; and what it looked at.
func doctor(t *testing.T, arguments ...string) (found map[string][]deployment.Finding, looked string) {
	t.Helper()
	out, said, code := ran(t, append([]string{"admin", "doctor", "--exit-code", "--output", "json"}, arguments...)...)
	var report deployment.Report
	require.NoError(t, json.Unmarshal([]byte(out), &report), "%s\n%s", out, said)
	found = map[string][]deployment.Finding{}
	for _, f := range report.Findings {
		require.NotEmpty(t, f.What)
		require.NotEmpty(t, f.Why)
		require.NotEmpty(t, f.Next)
		found[f.Code] = append(found[f.Code], f)
	}
	require.Equal(t, len(found) > 0, code == 2, "exit code %d", code)
	return found, strings.Join(report.Examined, "; ")
}

func codes(found map[string][]deployment.Finding) (all []string) {
	for code := range found {
		all = append(all, code)
	}
	slices.Sort(all)
	return all
}

// eventually waits until doctor finds these codes, and no others.
func eventually(t *testing.T, want []string, arguments ...string) (found map[string][]deployment.Finding) {
	t.Helper()
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		found, _ = doctor(t, arguments...)
		return slices.Equal(want, codes(found)), fmt.Sprint(found)
	})
	return found
}

// Nobody serves there: doctor says so, and looks at the store all the same. It is no error, and made nothing.
func TestDoctorWithoutServer_F10(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "store")
	address := fmt.Sprintf("127.0.0.1:%d", shared.FreePort(t))
	found, _ := doctor(t, "--address", address, "--store", missing)
	require.Equal(t, []string{deployment.NoConnection, deployment.UnreachableStore}, codes(found))
	require.Contains(t, found[deployment.NoConnection][0].Why, "no Temporal server at "+address)
	require.Equal(t, missing, found[deployment.UnreachableStore][0].What)
	require.NoDirExists(t, missing)
	_, _, code := ran(t, "admin", "doctor", "--address", address)
	require.Zero(t, code, "without --exit-code")
}

// A namespace that is not there, one without search attributes and without workers, and one that somebody serves who has not
// added them: what cannot be listed is said.
func TestDoctorOfNamespaces_F10(t *testing.T) {
	t.Parallel()
	w := shared.Unserved(t, embedded.Options{})
	found, _ := doctor(t, "--address", w.Address, "--namespace", "nowhere")
	require.Equal(t, []string{deployment.NoNamespace}, codes(found))

	_, err := w.Client.WorkflowService().RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: "bare", WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
	require.NoError(t, err)
	found = eventually(t, []string{deployment.NoSearchAttribute, deployment.NoWorkers}, "--address", w.Address, "--namespace", "bare")
	require.Len(t, found[deployment.NoSearchAttribute], len(worker.SearchAttributes()))
	require.Equal(t, "ConvergeApplication", found[deployment.NoSearchAttribute][0].What)
	require.Contains(t, found[deployment.NoSearchAttribute][0].Next, "temporal operator search-attribute create --namespace bare --name ConvergeApplication --type Keyword")

	c, err := client.Dial(client.Options{HostPort: w.Address, Namespace: "bare", Logger: stage.Quiet{}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	other := sdkworker.New(c, protocol.TaskQueue, sdkworker.Options{})
	other.RegisterActivity(func() error { return nil })
	require.NoError(t, other.Start())
	t.Cleanup(other.Stop)
	found = eventually(t, []string{deployment.NoSearchAttribute, deployment.NotExamined}, "--address", w.Address, "--namespace", "bare")
	require.Equal(t, "statuses of services", found[deployment.NotExamined][0].What)
}

// Nothing is found where nothing is wrong; then a workflow that was ended while no worker runs, a runtime that cannot be read,
// and stores that are empty or somebody else's.
func TestDoctorOfServices_F10(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	found, looked := doctor(t, "--address", w.Address)
	require.Empty(t, found)
	require.Contains(t, looked, "namespace default; search attributes: 6; versions of workers at the task queue: 1; tasks that wait at the task queue: ")
	require.Contains(t, looked, "the store "+w.Store)

	w.Fake.At(w.App, "web", "production").FailReadings(1<<30, "unreachable")
	found = eventually(t, []string{deployment.UnreadableRuntime}, "--address", w.Address)
	require.Equal(t, "runtime "+w.App+"-rt", found[deployment.UnreadableRuntime][0].What)
	require.Contains(t, found[deployment.UnreadableRuntime][0].Why, "1 instances cannot be read: "+w.App+"/web production: unreachable")
	w.Fake.At(w.App, "web", "production").FailReadings(0, "")
	eventually(t, nil, "--address", w.Address)

	found, _ = doctor(t, "--address", w.Address, "--store", t.TempDir())
	require.Equal(t, []string{deployment.UnreachableStore}, codes(found))
	require.Contains(t, found[deployment.UnreachableStore][0].Why, "it is empty")
	other := shared.OwnServer(t, 0)
	found, _ = doctor(t, "--address", w.Address, "--store", other.Store)
	require.Equal(t, []string{deployment.StoreOfAnother}, codes(found))

	w.StopWorker()
	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), w.ID("web"), "", "by mistake"))
	found = eventually(t, []string{deployment.EndedWorkflow}, "--address", w.Address)
	require.Equal(t, w.ID("web"), found[deployment.EndedWorkflow][0].What)
	why := found[deployment.EndedWorkflow][0].Why
	require.True(t, strings.HasPrefix(why, "its workflow was terminated by ") && strings.HasSuffix(why, ": by mistake, and was not started again"), why)
	w.StartWorker()
	eventually(t, nil, "--address", w.Address)
	require.NotEmpty(t, w.Act("web", protocol.Pause, `{"by":"bob","reason":"drill"}`)) // it is managed again
}

const remoteEdge = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels: [{name: edge, runtimes: [{name: APP-rt}]}]
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
worker: remote
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
`

// A runtime has workers of its own, and there is none.
func TestDoctorOfRemoteRuntimes_F10(t *testing.T) {
	if os.Getenv("AWS_ACCESS_KEY_ID") == "" { // for the whole process: the bucket verifies nothing
		os.Setenv("AWS_ACCESS_KEY_ID", "test")     //nolint:usetesting // this test is parallel
		os.Setenv("AWS_SECRET_ACCESS_KEY", "test") //nolint:usetesting // the same
	}
	t.Parallel()
	bucket := httptest.NewServer(buckettest.New())
	t.Cleanup(bucket.Close)
	w := shared.Unserved(t, embedded.Options{})
	w.Store = buckettest.URL(bucket.URL)
	w.StartWorker()
	w.Write(remoteEdge + stage.Web)
	w.Publish()
	w.Release("web", "v1")
	found := eventually(t, []string{deployment.QueueWithoutWorkers}, "--address", w.Address, "--store", w.Store)
	require.Equal(t, "runtime/"+w.App+"-rt", found[deployment.QueueWithoutWorkers][0].What)
	require.Equal(t, "start one that can reach the runtime: converge worker --runtime "+w.App+"-rt", found[deployment.QueueWithoutWorkers][0].Next)
}
