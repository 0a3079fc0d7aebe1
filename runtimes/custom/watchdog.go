package custom

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/converge-engine/converge/runtimes"
)

// The watchdog ends the commands of a frozen worker (SIGSTOP, a debugger, a hung disk). Another worker takes over from that worker,
// and two applies of one instance must not run at the same time. The watchdog is a separate process of this same program. The worker
// sends it a deadline for each command every second.
//
// When the whole machine is suspended, the watchdog and the commands stop and resume together.

// watchdogName is the name of the watchdog's process.
const watchdogName = "converge-watchdog"

// The interval at which the worker renews the deadline of a command.
const (
	renewInterval    = time.Second
	minRenewInterval = 50 * time.Millisecond // shortly before the deadline
)

// RunWatchdog must be the first call in the main function of a program whose workers run commands. If the program was started as the
// watchdog, it runs it and never returns. Without this call commands run without a watchdog.
func RunWatchdog() {
	if os.Args[0] == watchdogName {
		monitorGroups(os.Stdin)
		os.Exit(0)
	}
	if path, err := self(); err == nil {
		sharedWatchdog.program = path
	}
}

// sharedWatchdog is shared by all commands of the process.
var sharedWatchdog watchdog

type watchdog struct {
	program string // "": there is none

	mu sync.Mutex
	in *os.File // of the running one, or nil
}

// enforceLifeline ends a process group when the lifeline of ctx expires, also by the watchdog. It returns a function that ends the
// watch, and reports whether the lifeline had expired before, as far as the watchdog knows: then it has ended the group.
func (w *watchdog) enforceLifeline(ctx context.Context, group int) (done func() bool) {
	until := runtimes.LifelineOf(ctx)
	if until == nil || w.program == "" {
		return func() bool { return false }
	}
	var expired bool
	deadline := until()
	late := func() bool { return !time.Now().Before(deadline) }
	renew := func() {
		expired = expired || late()
		deadline = until()
		remaining := time.Until(deadline) + time.Millisecond - 1 // rounded up: when the watchdog ends the group, late reports it
		w.send(fmt.Sprintf("%d %d\n", group, remaining.Milliseconds()))
	}
	renew()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			// More often before the deadline: the server may answer in the last moment.
			next := time.NewTimer(max(minRenewInterval, min(time.Until(deadline)/2, renewInterval)))
			select {
			case <-stop:
				next.Stop()
				return
			case <-next.C:
				renew()
			}
		}
	}()
	return func() bool {
		close(stop)
		<-stopped
		w.send(fmt.Sprintf("%d over\n", group))
		return expired || late()
	}
}

// send writes a line to the watchdog. It restarts a missing watchdog, which gets each command again with its next renewal. If that
// fails, commands run without a watchdog.
func (w *watchdog) send(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range 2 {
		if w.in == nil && w.start() != nil {
			return
		}
		_ = w.in.SetWriteDeadline(time.Now().Add(renewInterval)) // a watchdog that does not read is given up
		if _, err := io.WriteString(w.in, line); err == nil {
			return
		}
		_ = w.in.Close()
		w.in = nil
	}
}

// start starts the process. It ends, with the processes that it watches, when this process does.
func (w *watchdog) start() error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = read.Close() }()
	cmd := exec.Command(w.program)
	cmd.Args, cmd.Stdin, cmd.Dir = []string{watchdogName}, read, "/"
	apart(cmd)
	if err := cmd.Start(); err != nil {
		return errors.Join(err, write.Close())
	}
	go func() { _ = cmd.Wait() }() // its exit code is not used
	w.in = write
	return nil
}

// monitorGroups is the watchdog. It reads the deadline of each group, and ends the groups whose deadline passes without a renewal.
// When its input ends, it ends all groups that are left.
func monitorGroups(in io.Reader) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- s.Text()
		}
	}()
	groups := groupDeadlines{}
	for {
		timer := time.NewTimer(groups.next())
		select {
		case line, ok := <-lines:
			if !ok {
				for group := range groups {
					signalGroup(group, syscall.SIGKILL)
				}
				return
			}
			groups.update(line, time.Now())
		case <-timer.C:
			groups.endExpired(time.Now())
		}
		timer.Stop()
	}
}

// groupDeadlines are the deadlines of process groups.
type groupDeadlines map[int]deadline

type deadline struct {
	at         time.Time
	terminated bool // SIGTERM was sent: that is final
}

// update processes one line: a group, and for how many milliseconds it may continue, or that it has ended.
func (w groupDeadlines) update(line string, now time.Time) {
	name, rest, _ := strings.Cut(line, " ")
	group, err := strconv.Atoi(name)
	if err != nil || group <= 1 {
		return
	}
	remaining, err := strconv.ParseInt(rest, 10, 64)
	switch {
	case err != nil:
		delete(w, group)
	case !w[group].terminated:
		w[group] = deadline{at: now.Add(time.Duration(remaining) * time.Millisecond)}
	}
}

// endExpired sends SIGTERM to the groups after their deadline, and SIGKILL to those that already got SIGTERM.
func (w groupDeadlines) endExpired(now time.Time) {
	for group, d := range maps.All(w) {
		switch {
		case now.Before(d.at):
		case d.terminated:
			signalGroup(group, syscall.SIGKILL)
			delete(w, group)
		default:
			signalGroup(group, syscall.SIGTERM)
			w[group] = deadline{at: now.Add(runtimes.DisconnectGrace), terminated: true}
		}
	}
}

// next is the time until the next deadline.
func (w groupDeadlines) next() time.Duration {
	wait := time.Hour
	for _, d := range w {
		wait = min(wait, time.Until(d.at))
	}
	return max(wait, 0)
}
