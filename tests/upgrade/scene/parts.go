package scene

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/tests/programtest"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
)

// build makes the worker's two programs, before and after.
func build(ctx context.Context, dir string) error {
	for name, tags := range map[string]string{"before": "", "after": "after"} {
		built, err := programtest.Build(ctx, tags, "github.com/converge-engine/converge/tests/upgrade/worker")
		if err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join(built, "worker"), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// site is a server of its own with a store and a runtime.
type site struct {
	dir    string // with the programs, the store, the runtime, the configuration and what workers said
	server *embedded.Server
	client client.Client
}

func newSite(ctx context.Context, dir string) (*site, error) {
	for _, name := range []string{"store", "runtime", "config"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	server, err := embedded.Start(ctx, embedded.Options{SearchAttributes: worker.SearchAttributes(), DrainageInterval: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	c, err := client.Dial(client.Options{HostPort: server.Address(), Logger: silent{}})
	if err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return &site{dir: dir, server: server, client: c}, nil
}

func (s *site) close() error {
	s.client.Close()
	return s.server.Stop()
}

// silent discards what the SDK says: what counts is asked of the server.
type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}

var _ sdklog.Logger = silent{}

// program is a worker as a process of its own.
type program struct {
	*exec.Cmd
	said string // file
}

// start runs a build of the worker; without a deployment it is no version.
func (s *site) start(programs, build, deployment string) (*program, error) {
	args := []string{"-address", s.server.Address(), "-store", filepath.Join(s.dir, "store"), "-folder", filepath.Join(s.dir, "runtime")}
	if deployment != "" {
		args = append(args, "-deployment", deployment, "-build", build)
	}
	p := &program{exec.Command(filepath.Join(programs, build), args...), filepath.Join(s.dir, build+".log")}
	said, err := os.Create(p.said)
	if err != nil {
		return nil, err
	}
	defer said.Close()
	p.Stdout, p.Stderr = said, said
	return p, p.Start()
}

// stop ends it as a supervisor does.
func (p *program) stop() error {
	if p.ProcessState != nil {
		return nil
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.Wait()
}

// ownCPU is what this process has used, the server in it.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// complaints counts the lines in which a worker says that a history does not replay.
func (p *program) complaints() (int, error) {
	said, err := os.ReadFile(p.said)
	return bytes.Count(said, []byte("TMPRL1100")), err
}

// refused counts the services whose histories a worker says do not replay.
func (p *program) refused() (int, error) {
	said, err := os.ReadFile(p.said)
	of := map[string]bool{}
	for line := range bytes.Lines(said) {
		if id := serviceOf.Find(line); id != nil && bytes.Contains(line, []byte("TMPRL1100")) {
			of[string(id)] = true
		}
	}
	return len(of), err
}

var serviceOf = regexp.MustCompile(`WorkflowID=service/\S+`)

// count is how many workflows a query finds.
func (s *site) count(ctx context.Context, query string) (int, error) {
	answer, err := s.client.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: embedded.Namespace, Query: query})
	return int(answer.GetCount()), err
}

// await waits until a query finds so many workflows.
func (s *site) await(ctx context.Context, want int, query string) error {
	return until(ctx, func() (bool, string, error) {
		n, err := s.count(ctx, query)
		return n == want, fmt.Sprintf("%d of %d: %s", n, want, query), err
	})
}

// patience is the deadline of every wait.
const patience = 15 * time.Minute

func until(ctx context.Context, so func() (bool, string, error)) error {
	deadline := time.Now().Add(patience)
	for {
		ok, seen, err := so()
		if err != nil || ok {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not after %s; last: %s", patience, seen)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// failedTasks counts the workflow tasks that failed because a history does not replay, in all runs, and those that failed
// for other reasons.
func (s *site) failedTasks(ctx context.Context) (nonDeterministic, other int64, err error) {
	var mismatched, others atomic.Int64
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(8)
	request := &workflowservice.ListWorkflowExecutionsRequest{Namespace: embedded.Namespace, PageSize: 1000}
	for {
		page, err := s.client.ListWorkflow(ctx, request)
		if err != nil {
			return 0, 0, errors.Join(err, group.Wait())
		}
		for _, e := range page.Executions {
			group.Go(func() error { return s.failedTasksOf(within, e, &mismatched, &others) })
		}
		if request.NextPageToken = page.NextPageToken; len(request.NextPageToken) == 0 {
			break
		}
	}
	err = group.Wait()
	return mismatched.Load(), others.Load(), err
}

func (s *site) failedTasksOf(ctx context.Context, e *workflowpb.WorkflowExecutionInfo, mismatched, others *atomic.Int64) error {
	events := s.client.GetWorkflowHistory(ctx, e.Execution.WorkflowId, e.Execution.RunId, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return err
		}
		failed := event.GetWorkflowTaskFailedEventAttributes()
		switch {
		case failed == nil:
		case failed.Cause == enumspb.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR:
			mismatched.Add(1)
		case failed.Cause != enumspb.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND: // a signal came just then: it is done again
			others.Add(1)
		}
	}
	return nil
}

// applies are how often each target was applied: "application/service/channel/instance version".
func (s *site) applies() (map[string]int, error) {
	log, err := os.ReadFile(filepath.Join(s.dir, "runtime", "applies"))
	times := map[string]int{}
	for line := range strings.Lines(string(log)) {
		times[strings.TrimSpace(line)]++
	}
	return times, err
}
