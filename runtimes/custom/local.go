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

// local runs commands as processes of this machine, in the directory of the definition.
type local struct {
	dir   string
	grace time.Duration
	drain time.Duration
}

func (l *local) run(ctx context.Context, res *result, w work) {
	files := ""
	if len(w.files) > 0 {
		dir, err := writeFiles(w.files)
		defer func() { _ = os.RemoveAll(dir) }() // an error has no consequence: the system cleans up the directory
		if err != nil {
			res.end(runtimes.CodeFetchFailed, err)
			return
		}
		files = dir
	}
	path, env, err := l.prepare(res.argv, w, files)
	if err != nil {
		res.end(runtimes.CodeCommandNotFound, err)
		return
	}
	l.execute(ctx, res, path, env)
}

// prepare finds the program, and builds its environment; files is the directory of its files.
func (l *local) prepare(argv []string, w work, files string) (path string, env []string, err error) {
	all := inherit()
	maps.Copy(all, w.env)
	maps.Copy(all, w.secrets)
	if files != "" {
		all[filesVariable] = files
		maps.Copy(all, w.paths(files))
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		env = append(env, name+"="+all[name])
	}
	path, err = l.program(argv[0], all["PATH"])
	return path, env, err
}

func (l *local) execute(ctx context.Context, res *result, path string, env []string) {
	bounded, cancel := context.WithTimeout(ctx, res.timeout)
	defer cancel()
	bounded, stop := context.WithCancelCause(bounded)
	defer stop(nil)

	c := res.capture(func() {
		if res.answers {
			stop(errTooLarge)
		}
	})
	p := process{
		path: path, argv: res.argv, dir: l.dir, env: env, grace: l.grace, drain: l.drain, sweep: res.sweep || res.answers,
		stdout: io.MultiWriter(c.whole, c.stdout), stderr: c.stderr, // neither of them fails
	}
	runtimes.ProgressOf(ctx).Prints(c.last)
	started := time.Now()
	exit, err := p.run(bounded)
	took := time.Since(started)
	doc, wrapped := report.Find(c.whole.buf.Bytes())
	if wrapped {
		c, exit = res.unwrap(c, doc), exit.of(doc)
	}
	res.keep(c, started, took)
	res.out.ExitCode, res.signal = exit.code, exit.signal

	switch {
	case c.whole.over && res.answers:
		res.tooLarge()
	case err == nil && exit.ended: // it ended without our signal, perhaps just in time
		if wrapped {
			res.ended(doc)
		}
	case ctx.Err() != nil:
		res.interrupted(ctx)
	case bounded.Err() != nil:
		res.timedOut()
	default:
		res.end(l.startError(path, err))
	}
}

// The reasons for which Converge ends a command.

func (res *result) tooLarge() {
	res.end(runtimes.CodeOutputTooLarge, fmt.Errorf("%s printed more than %d KiB", res.argv[0], MaxDocument>>10))
}

func (res *result) interrupted(ctx context.Context) {
	if errors.Is(ctx.Err(), context.Canceled) {
		res.end("", fmt.Errorf("%s interrupted: %w", res.argv[0], context.Canceled))
		return
	}
	res.end(runtimes.CodeTimeout, fmt.Errorf("%s did not finish in time and was ended%s", res.argv[0], res.lastOutput())) // the caller's deadline, not ours
}

func (res *result) timedOut() {
	res.end(runtimes.CodeTimeout, fmt.Errorf("%s did not finish within %s and was ended%s", res.argv[0], res.timeout, res.lastOutput()))
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
	sweep          bool          // end the rest of the group afterwards, even after a success
}

// exit is the end of a process. ended is false if it never started or if Converge ended it.
type exit struct {
	ended  bool
	code   int
	signal string
}

// run starts the process and returns when it has ended. When ctx ends first, the whole group gets SIGTERM, then after the grace
// SIGKILL, and the error is that of ctx. The grace is short if another worker is about to take over. It is the rest of the time if
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

	started, done := make(chan error, 1), make(chan end, 1)
	go func() {
		// Linux sends the parent-death signal (which ownGroup requests) when the *thread* that started the child ends, so that
		// thread must not end before the child does.
		goruntime.LockOSThread()
		defer goruntime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			err = cmd.Wait()
			done <- endOf(cmd.ProcessState, err)
		}
	}()
	if err := <-started; err != nil {
		return exit{code: -1}, err
	}

	defer theWatchdog.watch(ctx, cmd.Process.Pid)()
	select {
	case end := <-done:
		if p.sweep {
			signalGroup(cmd.Process.Pid, syscall.SIGKILL)
		}
		return end.exit, end.err
	case <-ctx.Done():
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, runtimes.ErrCutOff):
		p.grace = min(p.grace, runtimes.CutGrace)
	case errors.Is(cause, runtimes.ErrAsked):
		if until, bounded := ctx.Deadline(); bounded {
			p.grace = max(p.grace, time.Until(until))
		}
	}
	p.endGroup(cmd.Process.Pid, done, runtimes.LifelineOf(ctx))
	return exit{code: -1}, ctx.Err()
}

// endGroup ends every process of the group. The leader may end at SIGTERM while one of its children still cleans up: the grace is
// for all of them, and ends with the lifeline.
func (p process) endGroup(group int, done <-chan end, life runtimes.Lifeline) {
	deadline := time.NewTimer(p.grace)
	defer deadline.Stop()
	again := time.NewTicker(10 * time.Millisecond) // the end of a process that is not our child causes no notification
	defer again.Stop()

	signalGroup(group, syscall.SIGTERM)
	leader := done
	for waiting := true; waiting && (leader != nil || groupAlive(group)); {
		select {
		case <-leader:
			leader = nil
		case <-deadline.C:
			waiting = false
		case <-again.C:
			waiting = !life.Over()
		}
	}
	signalGroup(group, syscall.SIGKILL)
	if leader != nil {
		<-leader
	}
}

// end is the result of waiting for the process.
type end struct {
	exit exit
	err  error // waiting for it, or reading its output, failed
}

func endOf(state *os.ProcessState, err error) end {
	var failed *exec.ExitError
	if err == nil || errors.Is(err, exec.ErrWaitDelay) || errors.As(err, &failed) {
		// ErrWaitDelay: the command succeeded, and another process kept its output open.
		return end{exit: exit{ended: true, code: state.ExitCode(), signal: signalOf(state)}}
	}
	return end{exit: exit{code: -1}, err: err}
}
