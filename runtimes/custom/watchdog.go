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

// The watchdog ends the commands of a worker that stands still (SIGSTOP, a debugger, a hung disk): another worker takes
// over from it, and two applies of one instance must not run beside each other. It is a process of its own, this very
// program started once more, and is told each second until when each command may go on without being heard of.
//
// What stands still together with it, as a machine does that is suspended, goes on together with it too.

// watchdogName is what the watchdog's process is called.
const watchdogName = "converge-watchdog"

// renewal is how often the watchdog is told that a command may go on.
const renewal = time.Second

// RunWatchdog is the first thing that the main function calls of a program whose workers run commands: where the program
// was started as the watchdog, it does that and never returns. Without it commands run unwatched.
func RunWatchdog() {
	if os.Args[0] == watchdogName {
		watchGroups(os.Stdin)
		os.Exit(0)
	}
	if path, err := self(); err == nil {
		theWatchdog.program = path
	}
}

// theWatchdog is one for all commands of the process.
var theWatchdog watchdog

type watchdog struct {
	program string // "": there is none

	mu sync.Mutex
	in *os.File // of the one that runs, or nil
}

// watch has a process group ended when the lifeline of ctx is cut, by the watchdog too, and returns what ends the watch.
func (w *watchdog) watch(ctx context.Context, group int) (done func()) {
	until := runtimes.LifelineOf(ctx)
	if until == nil || w.program == "" {
		return func() {}
	}
	renew := func() { w.tell(fmt.Sprintf("%d %d\n", group, time.Until(until()).Milliseconds())) }
	renew()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(renewal)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				renew()
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		w.tell(fmt.Sprintf("%d over\n", group))
	}
}

// tell writes a line to the watchdog. One that is gone is started anew, and hears of each command again with its next
// renewal; where that cannot be, commands run unwatched.
func (w *watchdog) tell(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range 2 {
		if w.in == nil && w.start() != nil {
			return
		}
		_ = w.in.SetWriteDeadline(time.Now().Add(renewal)) // one that does not read is given up
		if _, err := io.WriteString(w.in, line); err == nil {
			return
		}
		_ = w.in.Close()
		w.in = nil
	}
}

// start starts the process. It ends, and what it watches with it, when this one does.
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
	go func() { _ = cmd.Wait() }() // nobody asks how it ended
	w.in = write
	return nil
}

// watchGroups is the watchdog: it reads until when each group may go on, and ends those that nobody speaks for in time;
// all that are left, when nobody can speak any more.
func watchGroups(in io.Reader) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- s.Text()
		}
	}()
	groups := watched{}
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
			groups.hear(line, time.Now())
		case <-timer.C:
			groups.end(time.Now())
		}
		timer.Stop()
	}
}

// watched is until when process groups may go on.
type watched map[int]deadline

type deadline struct {
	at   time.Time
	told bool // to end: it is not taken back
}

// hear takes in one line: a group, and for how many milliseconds it may go on, or that it is over.
func (w watched) hear(line string, now time.Time) {
	name, rest, _ := strings.Cut(line, " ")
	group, err := strconv.Atoi(name)
	if err != nil || group <= 1 {
		return
	}
	left, err := strconv.ParseInt(rest, 10, 64)
	switch {
	case err != nil:
		delete(w, group)
	case !w[group].told:
		w[group] = deadline{at: now.Add(time.Duration(left) * time.Millisecond)}
	}
}

// end tells the groups to end whose time is over, and kills those that were told.
func (w watched) end(now time.Time) {
	for group, d := range maps.All(w) {
		switch {
		case now.Before(d.at):
		case d.told:
			signalGroup(group, syscall.SIGKILL)
			delete(w, group)
		default:
			signalGroup(group, syscall.SIGTERM)
			w[group] = deadline{at: now.Add(runtimes.CutGrace), told: true}
		}
	}
}

// next is how long nothing is due.
func (w watched) next() time.Duration {
	wait := time.Hour
	for _, d := range w {
		wait = min(wait, time.Until(d.at))
	}
	return max(wait, 0)
}
