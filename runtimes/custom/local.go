package custom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"syscall"
	"time"

	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/kubernetes/job/report"
)

// localRunner runs commands as processes of this machine, in the directory of the definition.
type localRunner struct {
	dir   string
	grace time.Duration
	drain time.Duration
}

func (l *localRunner) run(ctx context.Context, res *result, w command) {
	files := ""
	if len(w.files) > 0 {
		dir, err := writeFiles(w.files)
		defer func() { _ = os.RemoveAll(dir) }() // an error has no consequence: the system cleans up the directory
		if err != nil {
			res.setError(runtimes.CodeFetchFailed, err)
			return
		}
		files = dir
	}
	path, env, err := l.prepare(res.argv, w, files)
	if err != nil {
		res.setError(runtimes.CodeCommandNotFound, err)
		return
	}
	l.execute(ctx, res, path, env)
}

// prepare finds the program, and builds its environment; files is the directory of its files.
func (l *localRunner) prepare(argv []string, w command, files string) (path string, env []string, err error) {
	all := inherit()
	maps.Copy(all, w.env)
	maps.Copy(all, w.secrets)
	if files != "" {
		all[filesVariable] = files
		maps.Copy(all, w.filePaths(files))
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		env = append(env, name+"="+all[name])
	}
	path, err = l.program(argv[0], all["PATH"])
	return path, env, err
}

func (l *localRunner) execute(ctx context.Context, res *result, path string, env []string) {
	bounded, cancel := context.WithTimeout(ctx, res.timeout)
	defer cancel()
	bounded, stop := context.WithCancelCause(bounded)
	defer stop(nil)

	c := res.capture(func() {
		if res.needsOutput {
			stop(errTooLarge)
		}
	})
	p := process{
		path: path, argv: res.argv, dir: l.dir, env: env, grace: l.grace, drain: l.drain, killLeftovers: res.killLeftovers || res.needsOutput,
		stdout: io.MultiWriter(c.document, c.stdout), stderr: c.stderr, // neither of them fails
	}
	runtimes.ProgressOf(ctx).SetOutput(c.last)
	started := time.Now()
	exit, err := p.run(bounded)
	took := time.Since(started)
	doc, wrapped := report.Find(c.document.buf.Bytes())
	if wrapped {
		c, exit = res.unwrap(c, doc), exit.withReport(doc)
	}
	res.storeOutput(c, started, took)
	res.out.ExitCode, res.signal = exit.code, exit.signal

	switch {
	case c.document.exceeded && res.needsOutput:
		res.setTooLarge()
	case err == nil && exit.ended: // it ended without our signal, perhaps just in time
		if wrapped {
			res.setWrapperResult(doc)
		}
	case ctx.Err() != nil:
		res.setInterrupted(ctx)
	case errors.Is(err, runtimes.ErrDisconnected):
		res.setError("", fmt.Errorf("%s interrupted: %w", res.argv[0], err))
	case bounded.Err() != nil:
		res.setTimedOut()
	default:
		res.setError(l.startError(path, err))
	}
}

// The reasons for which Converge ends a command.

func (res *result) setTooLarge() {
	res.setError(runtimes.CodeOutputTooLarge, fmt.Errorf("%s printed more than %d KiB", res.argv[0], MaxDocument>>10))
}

func (res *result) setInterrupted(ctx context.Context) {
	if errors.Is(ctx.Err(), context.Canceled) {
		res.setError("", fmt.Errorf("%s interrupted: %w", res.argv[0], context.Canceled))
		return
	}
	// The deadline is the caller's, not ours.
	res.setError(runtimes.CodeTimeout, fmt.Errorf("%s did not finish in time and was ended%s", res.argv[0], res.lastOutput()))
}

func (res *result) setTimedOut() {
	res.setError(runtimes.CodeTimeout, fmt.Errorf("%s did not finish within %s and was ended%s", res.argv[0], res.timeout, res.lastOutput()))
}

// process is one command in its own process group.
type process struct {
	path           string
	argv, env      []string
	dir            string
	stdin          io.Reader // nil: empty
	stdout, stderr io.Writer
	grace          time.Duration // between SIGTERM and SIGKILL, when ctx ends
	drain          time.Duration // for processes that still hold the pipes after the command ended
	killLeftovers  bool          // end the rest of the group afterwards, even after a success
}

// exit is the end of a process. ended is false if it never started or if Converge ended it.
type exit struct {
	ended  bool
	code   int
	signal string
}

// run starts the process and returns when it has ended. When ctx ends first, the whole group gets SIGTERM, then after the grace
// SIGKILL, and the error is that of ctx. It is runtimes.ErrDisconnected if the lifeline expired and the watchdog ended it. The grace is short if another worker is about to take over. It is the rest of the time if
// there is only a request to end. run returns in any case: it closes pipes that a grandchild holds after the drain.
func (p process) run(ctx context.Context) (exit, error) {
	if err := ctx.Err(); err != nil {
		return exit{code: -1}, err
	}
	cmd := exec.Command(p.path) // not CommandContext: that would end the leader and leave its group
	cmd.Args, cmd.Env, cmd.Dir = p.argv, p.env, p.dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.stdin, p.stdout, p.stderr
	cmd.WaitDelay = p.drain
	ownGroup(cmd)

	started, done := make(chan error, 1), make(chan waitResult, 1)
	go func() {
		// Linux sends the parent-death signal (which ownGroup requests) when the *thread* that started the child ends, so that
		// thread must not end before the child does.
		goruntime.LockOSThread()
		defer goruntime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			err = cmd.Wait()
			done <- newWaitResult(cmd.ProcessState, err)
		}
	}()
	if err := <-started; err != nil {
		return exit{code: -1}, err
	}

	endWatch := sharedWatchdog.enforceLifeline(ctx, cmd.Process.Pid)
	select {
	case end := <-done:
		if p.killLeftovers {
			signalGroup(cmd.Process.Pid, syscall.SIGKILL)
		}
		if endWatch() && end.exit.ended && (end.exit.signal != "" || end.exit.code != 0) {
			return exit{code: -1}, runtimes.ErrDisconnected
		}
		return end.exit, end.err
	case <-ctx.Done():
	}
	defer endWatch()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, runtimes.ErrDisconnected):
		p.grace = min(p.grace, runtimes.DisconnectGrace)
	case errors.Is(cause, runtimes.ErrStopRequested):
		if deadline, hasDeadline := ctx.Deadline(); hasDeadline {
			p.grace = max(p.grace, time.Until(deadline))
		}
	}
	p.endGroup(cmd.Process.Pid, done, runtimes.LifelineOf(ctx))
	return exit{code: -1}, ctx.Err()
}

// endGroup ends every process of the group. The leader may end at SIGTERM while one of its children still cleans up: the grace is
// for all of them, and ends with the lifeline.
func (p process) endGroup(group int, done <-chan waitResult, lifeline runtimes.Lifeline) {
	deadline := time.NewTimer(p.grace)
	defer deadline.Stop()
	poll := time.NewTicker(10 * time.Millisecond) // the end of a process that is not our child causes no notification
	defer poll.Stop()

	signalGroup(group, syscall.SIGTERM)
	leader := done
	for waiting := true; waiting && (leader != nil || groupAlive(group)); {
		select {
		case <-leader:
			leader = nil
		case <-deadline.C:
			waiting = false
		case <-poll.C:
			waiting = !lifeline.Expired()
		}
	}
	signalGroup(group, syscall.SIGKILL)
	if leader != nil {
		<-leader
	}
}

// waitResult is the result of waiting for the process.
type waitResult struct {
	exit exit
	err  error // waiting for it, or reading its output, failed
}

func newWaitResult(state *os.ProcessState, err error) waitResult {
	var failed *exec.ExitError
	if err == nil || errors.Is(err, exec.ErrWaitDelay) || errors.As(err, &failed) {
		// ErrWaitDelay: the command succeeded, and another process kept its output open.
		return waitResult{exit: exit{ended: true, code: state.ExitCode(), signal: signalOf(state)}}
	}
	return waitResult{exit: exit{code: -1}, err: err}
}
