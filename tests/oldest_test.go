package tests

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// versionOf is the version of a module that another module of this repository requires.
func versionOf(t *testing.T, goMod, module string) string {
	t.Helper()
	data, err := os.ReadFile(repository + "/" + goMod)
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(module) + ` v(\S+)`).FindSubmatch(data)
	require.NotNil(t, found, "%s requires no %s", goMod, module)
	return string(found[1])
}

// docs/upgrading.md names the versions that the tests run.
func TestDocsSupportedVersions(t *testing.T) {
	oldestKubernetes := versionOf(t, "tests/kube/oldest.mod", "k8s.io/kubernetes")
	rows := table(t, readPage(t, "docs/upgrading.md").section(t, "## What it runs on"), "| needs | oldest tested | newest tested |")
	require.Equal(t, [][]string{
		{"Temporal server", versionOf(t, "tests/temporalcli/go.mod", "go.temporal.io/server"), versionOf(t, "go.mod", "go.temporal.io/server")},
		{"Kubernetes", oldestKubernetes, versionOf(t, "tests/kube/go.mod", "k8s.io/kubernetes")},
	}, rows)
	minor, _, _ := strings.Cut(strings.TrimPrefix(oldestKubernetes, "1."), ".")
	data, err := os.ReadFile(repository + "/deploy/chart/Chart.yaml")
	require.NoError(t, err)
	require.Contains(t, string(data), fmt.Sprintf("\nkubeVersion: \">=1.%s.0-0\"\n", minor))
}

// startDev starts the server of the stock CLI, in memory, and returns its address.
func startDev(t *testing.T, cli string) string {
	t.Helper()
	port := shared.FreePort(t)
	server := exec.Command(cli, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", fmt.Sprint(port), "--log-level", "error")
	server.Stderr = os.Stderr
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait() // reports the kill
	})
	address := fmt.Sprintf("127.0.0.1:%d", port)
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		c, err := client.Dial(client.Options{HostPort: address, Logger: stage.Quiet{}})
		if err != nil {
			return false, err.Error()
		}
		defer c.Close()
		_, err = c.WorkflowService().DescribeNamespace(t.Context(), &workflowservice.DescribeNamespaceRequest{Namespace: "default"})
		return err == nil, fmt.Sprint(err)
	})
	return address
}

// A release goes its way on the oldest server that is supported, the one of the stock CLI: gates, a pause, a rollback, a workflow that is
// terminated, and a worker that is replaced. The server has nothing of Converge before.
func TestOldestTemporal_F1(t *testing.T) {
	t.Parallel()
	w := shared.At(t, startDev(t, temporalCLI(t)))
	info, err := w.Client.WorkflowService().GetSystemInfo(t.Context(), &workflowservice.GetSystemInfoRequest{})
	require.NoError(t, err)
	require.Equal(t, versionOf(t, "tests/temporalcli/go.mod", "go.temporal.io/server"), info.GetServerVersion())
	w.StartWorker()
	w.Write(stage.TwoChannels + stage.Web)
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // the server may not know the new search attributes everywhere yet
		_, err := publish.Publish(t.Context(), publish.Options{Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "test", Fake: true})
		return err == nil, fmt.Sprint(err)
	})
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.Act("web", protocol.Pause, `{"by":"bob","channel":"production","reason":"drill"}`)
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production PAUSED v1")
	w.StopWorker()
	w.StartWorker()
	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), w.ID("web"), "", "by mistake"))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		d, err := w.Client.DescribeWorkflowExecution(t.Context(), w.ID("web"), "")
		is := d.GetWorkflowExecutionInfo().GetStatus()
		return err == nil && is == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, fmt.Sprint(is, err)
	})
	w.Await("web", "staging CONVERGED v2, production PAUSED v1")
	w.Act("web", protocol.Resume, `{"by":"bob","channel":"production"}`)
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	w.Act("web", protocol.Rollback, `{"by":"bob","version":"v2","reason":"errors"}`)
	w.Await("web", "staging ROLLED_BACK v1, production ROLLED_BACK v1")
	w.Release("web", "v3")
	w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
}
