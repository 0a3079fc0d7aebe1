package embedded

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// helperEnv makes this test binary, started by a test, serve or lock a database file in a separate process.
const (
	helperEnv = "CONVERGE_EMBEDDED_HELPER"
	queue     = "embedded-test"
)

func TestMain(m *testing.M) {
	if mode, file, ok := strings.Cut(os.Getenv(helperEnv), "="); ok {
		if err := runHelper(mode, file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runHelper writes one line when it is ready and ends when its input does.
func runHelper(mode, file string) error {
	ready := "locked"
	if mode == "lock" {
		lock, err := lockDatabase(file)
		if err != nil {
			return err
		}
		defer lock.release()
	} else {
		server, err := Start(context.Background(), Options{DBFile: file, UIPort: -1})
		if err != nil {
			return err
		}
		defer server.Stop()
		ready = server.Address()
	}
	fmt.Println(ready)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

type helper struct {
	*exec.Cmd
	address string // its output when it was ready
	stdin   io.Closer
	stdout  *bufio.Reader
	stderr  *strings.Builder
}

func startHelper(t *testing.T, mode, file string) *helper {
	t.Helper()
	h := &helper{Cmd: exec.CommandContext(deadline(t), os.Args[0]), stderr: &strings.Builder{}}
	h.Env = append(os.Environ(), helperEnv+"="+mode+"="+file)
	h.Stderr = h.stderr
	stdin, err := h.StdinPipe()
	require.NoError(t, err)
	stdout, err := h.StdoutPipe()
	require.NoError(t, err)
	h.stdin, h.stdout = stdin, bufio.NewReader(stdout)
	require.NoError(t, h.Start())
	t.Cleanup(func() { _ = h.Process.Kill() })
	output, err := h.stdout.ReadString('\n')
	require.NoError(t, err, h.stderr)
	h.address = strings.TrimSpace(output)
	return h
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func startServer(t *testing.T, o Options) *Server {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(testOutput{t}, &slog.HandlerOptions{Level: slog.LevelError}))
	}
	s, err := Start(deadline(t), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

type testOutput struct{ t *testing.T }

func (o testOutput) Write(p []byte) (int, error) {
	o.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func dial(t *testing.T, address string) client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{HostPort: address, Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// chain runs an activity that many times, one after the other, and has the note in a search attribute.
func chain(ctx workflow.Context, hops int, note string) (int, error) {
	if note != "" {
		if err := workflow.UpsertTypedSearchAttributes(ctx, noteKey.ValueSet(note)); err != nil {
			return 0, err
		}
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 10 * time.Second, DisableEagerExecution: true,
	})
	done := 0
	for range hops {
		if err := workflow.ExecuteActivity(ctx, increment, done).Get(ctx, &done); err != nil {
			return 0, err
		}
	}
	return done, nil
}

func increment(n int) (int, error) { return n + 1, nil }

var noteKey = temporal.NewSearchAttributeKeyKeyword("TestNote")

func startWorker(t *testing.T, c client.Client) {
	t.Helper()
	w := worker.New(c, queue, worker.Options{})
	w.RegisterWorkflow(chain)
	w.RegisterActivity(increment)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
}

func runChain(t *testing.T, c client.Client, id string, hops int, note string) {
	t.Helper()
	run, err := c.ExecuteWorkflow(deadline(t), client.StartWorkflowOptions{ID: id, TaskQueue: queue}, chain, hops, note)
	require.NoError(t, err)
	var done int
	require.NoError(t, run.Get(deadline(t), &done))
	require.Equal(t, hops, done)
}

func TestServesWorkflowsAndUI(t *testing.T) {
	t.Parallel()
	s := startServer(t, Options{UIPort: -1})
	c := dial(t, s.Address())
	startWorker(t, c)
	runChain(t, c, "first", 2, "")

	settings := get(t, s.UIAddress()+"/api/v1/settings")
	require.Contains(t, settings, `"DisableNewsFetch":true`)
	require.Contains(t, get(t, s.UIAddress()+"/namespaces/default/workflows"), "<html")
	require.Contains(t, get(t, s.UIAddress()+"/api/v1/namespaces/default/workflows/first"), `"first"`, "the UI reaches the server")
}

func TestKeepsClosedRunsForAWeek(t *testing.T) {
	t.Parallel()
	s := startServer(t, Options{})
	response, err := dial(t, s.Address()).WorkflowService().DescribeNamespace(deadline(t),
		&workflowservice.DescribeNamespaceRequest{Namespace: Namespace})
	require.NoError(t, err)
	require.Equal(t, 7*24*time.Hour, response.Config.WorkflowExecutionRetentionTtl.AsDuration())
}

func TestWithoutUI(t *testing.T) {
	t.Parallel()
	require.Empty(t, startServer(t, Options{}).UIAddress())
}

func TestListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	s := startServer(t, Options{UIPort: -1})
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, address := range addresses {
		ip := address.(*net.IPNet).IP
		if ip.IsLoopback() {
			continue
		}
		for _, p := range []port{s.ports.frontend, s.ports.history, s.ports.matching, s.ports.worker, s.ports.ui} {
			conn, err := net.DialTimeout("tcp", net.JoinHostPort(ip.String(), fmt.Sprint(p.number)), time.Second)
			if err == nil {
				conn.Close()
			}
			require.Error(t, err, "%s port %d", ip, p.number)
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(deadline(t), http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode, url)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body)
}

// The name of the directory has every character with a meaning in SQLite's file URIs.
func TestRestartOnTheSameFileKeepsWorkflows(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "50% of #1?", "made by us", DBName())
	s := startServer(t, Options{DBFile: file})
	run, err := dial(t, s.Address()).ExecuteWorkflow(deadline(t), client.StartWorkflowOptions{ID: "kept", TaskQueue: queue}, chain, 1, "")
	require.NoError(t, err)
	require.NoError(t, s.Stop())
	log, err := os.Stat(file + "-wal")
	require.NoError(t, err)
	require.Zero(t, log.Size(), "the file is complete in itself")

	c := dial(t, startServer(t, Options{DBFile: file}).Address())
	description, err := c.DescribeWorkflowExecution(deadline(t), "kept", "")
	require.NoError(t, err)
	require.Equal(t, run.GetRunID(), description.WorkflowExecutionInfo.Execution.RunId)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, description.WorkflowExecutionInfo.Status)

	startWorker(t, c)
	require.NoError(t, c.GetWorkflow(deadline(t), "kept", "").Get(deadline(t), nil), "the workflow continues")
}

func TestKilledProcessLosesNothing(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), DBName())
	h := startHelper(t, "serve", file)
	run, err := dial(t, h.address).ExecuteWorkflow(deadline(t), client.StartWorkflowOptions{ID: "kept", TaskQueue: queue}, chain, 1, "")
	require.NoError(t, err)
	require.NoError(t, h.Process.Kill())
	_ = h.Wait()

	c := dial(t, startServer(t, Options{DBFile: file}).Address())
	startWorker(t, c)
	require.NoError(t, c.GetWorkflow(deadline(t), "kept", run.GetRunID()).Get(deadline(t), nil))
}

func TestWritesNothingToTheTerminal(t *testing.T) {
	t.Parallel()
	h := startHelper(t, "serve", filepath.Join(t.TempDir(), DBName()))
	c := dial(t, h.address)
	startWorker(t, c)
	runChain(t, c, "quiet", 1, "")
	require.NoError(t, h.stdin.Close(), "makes it stop its server")
	rest, err := io.ReadAll(h.stdout)
	require.NoError(t, err)
	require.NoError(t, h.Wait())
	require.Empty(t, string(rest))
	require.Empty(t, h.stderr.String())
}

// With the default poll rates a hop waits up to 50 ms, so the same chain of activities takes a multiple of the time. Both servers run in
// turn, and one slow round on a busy machine is allowed.
func TestPollRatesAreInEffect(t *testing.T) {
	const hops, rounds = 40, 3
	stock := dial(t, startServer(t, Options{tune: func(s *settings) {
		for key := range s.values {
			if strings.HasSuffix(strings.ToLower(key.String()), "maxpollrps") {
				delete(s.values, key)
			}
		}
	}}).Address())
	ours := dial(t, startServer(t, Options{}).Address())
	startWorker(t, stock)
	startWorker(t, ours)
	var seen []string
	for round := range rounds {
		id := fmt.Sprint("round ", round)
		start := time.Now()
		runChain(t, ours, id, hops, "")
		fast := time.Since(start)
		start = time.Now()
		runChain(t, stock, id, hops, "")
		slow := time.Since(start)
		seen = append(seen, fmt.Sprintf("%s against %s", fast.Round(time.Millisecond), slow.Round(time.Millisecond)))
		if slow > fast*3/2 {
			t.Log(seen)
			return
		}
	}
	t.Fatalf("%d hops take as long as with the stock settings: %s", hops, seen)
}

// Completed tasks are removed soon, so queues are short: with the default settings they stay for half a minute.
func TestCompletedTasksAreRemovedSoon(t *testing.T) {
	tuned := pendingTasks(t, Options{})
	stock := pendingTasks(t, Options{tune: func(s *settings) {
		for key := range s.values {
			if strings.HasSuffix(strings.ToLower(key.String()), "updateackinterval") {
				delete(s.values, key)
			}
		}
	}})
	require.NoError(t, waitUntil(deadline(t), "completed tasks are removed", func() error {
		if left := tuned(); left > 0 {
			return fmt.Errorf("%d tasks are left", left)
		}
		return nil
	}))
	require.Positive(t, stock())
}

// pendingTasks gives a server some work, and counts the tasks of it that stay in its queues.
func pendingTasks(t *testing.T, o Options) (left func() int) {
	t.Helper()
	o.DBFile = filepath.Join(t.TempDir(), DBName())
	c := dial(t, startServer(t, o).Address())
	startWorker(t, c)
	runChain(t, c, "chain", 3, "")
	db, err := sql.Open("sqlite", "file:"+escape(o.DBFile)+"?mode=ro")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return func() (left int) {
		require.NoError(t, db.QueryRow("SELECT (SELECT count(*) FROM transfer_tasks) + (SELECT count(*) FROM visibility_tasks)").Scan(&left))
		return left
	}
}

func TestCancelledStartReleasesTheFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), DBName())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Start(ctx, Options{DBFile: file})
	require.ErrorIs(t, err, context.Canceled)

	require.NoError(t, waitUntil(deadline(t), "the abandoned start releases the file", func() error {
		lock, err := lockDatabase(file)
		if err != nil {
			return err
		}
		return lock.release()
	}))
	startServer(t, Options{DBFile: file})
}

func TestStopTwice(t *testing.T) {
	t.Parallel()
	s := startServer(t, Options{UIPort: -1})
	require.NoError(t, s.Stop())
	require.NoError(t, s.Stop())
	_, err := net.Dial("tcp", s.Address())
	require.Error(t, err)
	_, err = net.Dial("tcp", strings.TrimPrefix(s.UIAddress(), "http://"))
	require.Error(t, err)
}
