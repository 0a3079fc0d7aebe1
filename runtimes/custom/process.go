package custom

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	goruntime "runtime"
	"syscall"
	"time"
)

// process is one command in a process group of its own.
type process struct {
	path           string
	argv, env      []string
	dir            string
	stdout, stderr io.Writer
	grace          time.Duration // between SIGTERM and SIGKILL, when ctx ends
	drain          time.Duration // for whoever still holds the pipes after the command ended
	sweep          bool          // end what is left of the group afterwards, even when all went well
}

// exit is how a process ended. ended is false when it never started or when we ended it.
type exit struct {
	ended  bool
	code   int
	signal string
}

// run starts the process and returns when it has ended. When ctx ends first, the whole group gets
// SIGTERM, then after the grace SIGKILL, and the error is that of ctx. Whatever a grandchild does,
// run returns: the pipes it holds are closed after the drain.
func (p process) run(ctx context.Context) (exit, error) {
	if err := ctx.Err(); err != nil {
		return exit{code: -1}, err
	}
	cmd := exec.Command(p.path) // not CommandContext: that would end the leader and leave its group
	cmd.Args, cmd.Env, cmd.Dir = p.argv, p.env, p.dir
	cmd.Stdout, cmd.Stderr = p.stdout, p.stderr
	cmd.WaitDelay = p.drain
	ownGroup(cmd)

	started, done := make(chan error, 1), make(chan end, 1)
	go func() {
		// Linux sends the signal of a dying parent when the *thread* that started the child ends
		// (ownGroup asks for it), so that thread must not end before the child does.
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

	select {
	case end := <-done:
		if p.sweep {
			signalGroup(cmd.Process.Pid, syscall.SIGKILL)
		}
		return end.exit, end.err
	case <-ctx.Done():
	}
	p.endGroup(cmd.Process.Pid, done)
	return exit{code: -1}, ctx.Err()
}

// endGroup ends every process of the group. The leader may go at SIGTERM while a child of it still
// cleans up: the grace is for all of them.
func (p process) endGroup(group int, done <-chan end) {
	deadline := time.NewTimer(p.grace)
	defer deadline.Stop()
	look := time.NewTicker(10 * time.Millisecond) // nobody tells of the end of a process that is not our child
	defer look.Stop()

	signalGroup(group, syscall.SIGTERM)
	leader := done
	for waiting := true; waiting && (leader != nil || groupAlive(group)); {
		select {
		case <-leader:
			leader = nil
		case <-deadline.C:
			waiting = false
		case <-look.C:
		}
	}
	signalGroup(group, syscall.SIGKILL)
	if leader != nil {
		<-leader
	}
}

// end is what waiting for the process gave.
type end struct {
	exit exit
	err  error // it could not be waited for, or its output not be read
}

func endOf(state *os.ProcessState, err error) end {
	var failed *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay), errors.As(err, &failed):
		// ErrWaitDelay: the command ended well, somebody else kept its output open.
		return end{exit: exit{ended: true, code: state.ExitCode(), signal: signalOf(state)}}
	}
	return end{exit: exit{code: -1}, err: err}
}
