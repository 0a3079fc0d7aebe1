//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/converge-engine/converge/runtimes/kubernetes/job/report"
)

// Exit codes for commands that ended without their own.
const (
	codeTimeout       = 124
	codeNotExecutable = 126
	codeNotFound      = 127
	codeSignal        = 128 // plus the signal's number
)

// outputTimeout is the time for processes that left the process group and still hold the output of a finished command.
const outputTimeout = 2 * time.Second

// command describes the command to run.
type command struct {
	argv        []string
	timeout     time.Duration // 0: none
	deadline    time.Time     // zero: none
	grace       time.Duration
	limit       int // bytes kept of stdout
	stopAtLimit bool
}

// listen begins to receive the signals that are passed on. The first process of a container receives only signals for which it has a
// handler, not even SIGTERM otherwise.
func listen() (signals chan os.Signal, stop func()) {
	signals = make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	return signals, func() { signal.Stop(signals) }
}

// run runs the command to its end and reports the result.
func (c command) run(signals <-chan os.Signal) report.Document {
	doc := report.Document{Command: c.argv, StartedAt: time.Now().UTC()}
	full := make(chan struct{})
	stdout, outErr := collect(c.limit, func() { close(full) })
	stderr, errErr := collect(report.LimitStderr, nil)
	if err := errors.Join(outErr, errErr); err != nil {
		doc.ExitCode, doc.Error = codeWrapperError, err.Error()
		return doc
	}
	pid, err := c.start(stdout.write, stderr.write)
	stdout.closeWriter()
	stderr.closeWriter()
	if err != nil {
		doc.ExitCode, doc.Error = startCode(err), fmt.Sprintf("%s cannot be started: %v", c.argv[0], err)
	} else {
		c.await(pid, &doc, signals, full)
	}
	outputDeadline := time.Now().Add(outputTimeout)
	doc.Stdout, doc.Stderr = stdout.finish(outputDeadline), stderr.finish(outputDeadline)
	doc.Duration = report.Duration(time.Since(doc.StartedAt))
	return doc
}

// start starts the command in its own process group, so that a signal reaches its children, and without stdin.
func (c command) start(stdout, stderr *os.File) (pid int, err error) {
	path, err := exec.LookPath(c.argv[0])
	if err != nil {
		return 0, err
	}
	devNull, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer devNull.Close()
	p, err := os.StartProcess(path, c.argv, &os.ProcAttr{
		Files: []*os.File{devNull, stdout, stderr},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return 0, err
	}
	pid = p.Pid
	return pid, p.Release() // reap waits for it and for all orphans
}

func startCode(err error) int {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EISDIR):
		return codeNotExecutable
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		return codeNotFound
	}
	return codeWrapperError
}

// await waits for the command and passes signals on. It ends the command when its timeout or deadline passes, or when its stdout
// exceeds the limit. It also ends the rest of its process group, because the kernel would kill them together with the first process of
// the container.
func (c command) await(pid int, doc *report.Document, signals <-chan os.Signal, full <-chan struct{}) {
	ended := make(chan syscall.WaitStatus, 1)
	go func() { ended <- reap(pid) }()
	timeout, stopTimeout := c.deadlineTimer()
	defer stopTimeout()
	if !c.stopAtLimit {
		full = nil
	}
	var kill <-chan time.Time
	terminate := func(sig syscall.Signal) {
		_ = syscall.Kill(-pid, sig) // it may have ended already
		if kill == nil {
			kill = time.After(c.grace)
		}
	}
	for {
		select {
		case status := <-ended:
			_ = syscall.Kill(-pid, syscall.SIGKILL)
			reapRest()
			doc.ExitCode = exitCode(status)
			if status.Signaled() {
				doc.Signal = status.Signal().String()
			}
			if doc.TimedOut {
				doc.ExitCode = codeTimeout
			}
			return
		case sig := <-signals:
			switch sig {
			case syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT:
				terminate(sig.(syscall.Signal))
			default:
				_ = syscall.Kill(-pid, sig.(syscall.Signal))
			}
		case <-timeout:
			doc.TimedOut = true
			terminate(syscall.SIGTERM)
		case <-full:
			full = nil
			doc.Error = fmt.Sprintf("%s printed more than %d bytes and was ended", c.argv[0], c.limit)
			terminate(syscall.SIGTERM)
		case <-kill:
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
	}
}

// deadlineTimer returns a channel that closes when the command's time has passed: the earlier of timeout and deadline.
func (c command) deadlineTimer() (<-chan time.Time, func() bool) {
	remaining, bounded := c.timeout, c.timeout > 0
	if !c.deadline.IsZero() {
		if until := time.Until(c.deadline); !bounded || until < remaining {
			remaining, bounded = until, true
		}
	}
	if !bounded {
		return nil, func() bool { return false }
	}
	timer := time.NewTimer(remaining)
	return timer.C, timer.Stop
}

// reap waits for the command, and for every orphan that the kernel reparents to the first process of a container, until the command has
// ended.
func reap(pid int) syscall.WaitStatus {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return syscall.WaitStatus(codeWrapperError << 8) // there is no child: the status is lost
		case got == pid && (status.Exited() || status.Signaled()):
			return status
		}
	}
}

// reapRest reaps all children that have already ended, without waiting.
func reapRest() {
	for {
		got, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if got <= 0 && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return codeSignal + int(status.Signal())
	}
	return status.ExitStatus()
}

// stream keeps the end of a command's output from a pipe. It always reads the pipe to its end, so that no command blocks on its own
// output.
type stream struct {
	read, write *os.File
	limit       int
	onLimit     func() // called once, when the output exceeds the limit
	done        chan struct{}

	tail  []byte // owned by the reading goroutine until done
	total int64
}

func collect(limit int, onLimit func()) (*stream, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s := &stream{read: read, write: write, limit: limit, onLimit: onLimit, done: make(chan struct{})}
	go s.readTail()
	return s, nil
}

func (s *stream) readTail() {
	defer close(s.done)
	buf := make([]byte, 32<<10)
	for {
		n, err := s.read.Read(buf)
		belowLimit := s.total <= int64(s.limit)
		s.total += int64(n)
		s.tail = append(s.tail, buf[:n]...)
		if len(s.tail) > 2*s.limit+len(buf) { // not at every read, because the copy would cost more than the output
			s.trim()
		}
		if belowLimit && s.total > int64(s.limit) && s.onLimit != nil {
			s.onLimit()
		}
		if err != nil {
			return
		}
	}
}

func (s *stream) trim() {
	if excess := len(s.tail) - s.limit; excess > 0 {
		s.tail = append(s.tail[:0], s.tail[excess:]...)
	}
}

// closeWriter closes the write end in this process, once the command has its own copy or could not start.
func (s *stream) closeWriter() { _ = s.write.Close() }

// finish waits until all writers have closed the pipe, at most until over, and returns the kept output.
func (s *stream) finish(deadline time.Time) report.Stream {
	wait := time.NewTimer(time.Until(deadline))
	defer wait.Stop()
	select {
	case <-s.done:
	case <-wait.C:
	}
	_ = s.read.Close() // ends a blocked read
	<-s.done
	s.trim()
	return report.Stream{Data: s.tail, Bytes: s.total}
}
