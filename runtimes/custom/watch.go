package custom

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/converge-engine/converge/runtimes"
)

const (
	watchPassInterval   = 100 * time.Millisecond // between passes over the reported lines
	minWatchPause       = time.Second            // before the restart of an ended watch; doubles up to maxWatchPause
	maxWatchPause       = time.Minute
	maxLineLength       = 1 << 10 // bytes; a longer line means everything
	maxPendingLines     = 1000    // lines in a pass; more mean everything
	watchLogTail        = 1 << 10
	minWatchIdleTimeout = 15 * time.Minute // how long at least a watch continues without observations
)

// Watch implements runtimes.Watcher by the watch command, which runs as long as this worker uses the runtime. Each line that it
// prints says where a change may have happened: "web", "web prod", "shop/web prod eu" for the service, the release channel and the
// instance. An omitted word means all. An empty line means everything. A command that ends is started again.
//
// It gets the runtime's environment, and nothing of a service. Its stderr is for people; its end is logged when the command ends.
// The command runs only while there are observations: an unused definition has no process.
func (r *Runtime) Watch(hint func(runtimes.Owner)) (stop func()) {
	commands, isLocal := r.runner.(*localRunner)
	if r.def.Custom.Watch == nil || !isLocal {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	pending := &pendingLines{changed: make(chan struct{}, 1)}
	done.Go(func() { r.superviseWatch(ctx, commands, pending) })
	done.Go(func() { pending.passOn(ctx, func(line string) { r.observed.hintMatching(line, hint) }) })
	return func() { cancel(); done.Wait() }
}

// superviseWatch runs the command again and again while there are observations, with longer pauses if it ends at once.
func (r *Runtime) superviseWatch(ctx context.Context, commands *localRunner, pending *pendingLines) {
	pause := minWatchPause
	for r.observed.awaitAny(ctx) {
		began := time.Now()
		wanted, cancel := context.WithCancel(ctx)
		go r.observed.awaitNone(wanted, r.watchIdleTimeout, cancel)
		err := r.runWatch(wanted, commands, pending)
		ended := wanted.Err() == nil
		cancel()
		if !ended {
			continue // there are no observations, or no watchers, any more
		}
		if time.Since(began) > maxWatchPause {
			pause = minWatchPause
		}
		slog.Warn("a watch command ended; until it restarts, only readings find changes", "runtime", r.def.Name, "again", pause, "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, maxWatchPause)
		pending.add("") // changes may have happened in the meantime
	}
}

// runWatch runs the command once, until it ends or ctx does.
func (r *Runtime) runWatch(ctx context.Context, commands *localRunner, pending *pendingLines) error {
	env, secrets, err := resolve(ctx, r.def.Custom.Env, runtimes.Request{}, r.secrets)
	if err != nil {
		return err
	}
	argv := r.def.Custom.Watch.Argv
	path, environ, err := commands.prepare(argv, command{env: env, secrets: secrets}, "")
	if err != nil {
		return err
	}
	redact := newRedactor(slices.Sorted(maps.Values(secrets)))
	stderr := redact.tail(watchLogTail)
	exit, err := process{
		path: path, argv: argv, dir: commands.dir, env: environ, stdout: &lineWriter{onLine: pending.add}, stderr: stderr,
		grace: commands.grace, drain: commands.drain, killLeftovers: true,
	}.run(ctx)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s exited %d: %s", redact.text(argv[0]), exit.code, strings.TrimSpace(stderr.String()))
}

// lineWriter passes on its input line by line. A line that is too long is passed on as an empty one.
type lineWriter struct {
	onLine  func(string)
	pending bytes.Buffer
	tooLong bool
}

// Write never fails.
func (l *lineWriter) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		line, after, complete := bytes.Cut(rest, []byte("\n"))
		l.tooLong = l.tooLong || l.pending.Len()+len(line) > maxLineLength
		if !l.tooLong {
			l.pending.Write(line)
		}
		if complete {
			text := l.pending.String()
			if l.tooLong {
				text = ""
			}
			l.onLine(text)
			l.pending.Reset()
			l.tooLong = false
		}
		rest = after
	}
	return len(b), nil
}

// pendingLines collects lines until they are passed on, each once.
type pendingLines struct {
	mu      sync.Mutex
	lines   map[string]bool
	changed chan struct{} // holds one value if there are lines
}

func (n *pendingLines) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lines == nil {
		n.lines = map[string]bool{}
	}
	if len(n.lines) >= maxPendingLines {
		line = ""
	}
	n.lines[strings.TrimSpace(line)] = true
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

func (n *pendingLines) take() map[string]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	taken := n.lines
	n.lines = nil
	return taken
}

// passOn passes lines on until ctx ends, with a pause after each pass: a flood of lines is not processed more often.
func (n *pendingLines) passOn(ctx context.Context, handle func(string)) {
	for {
		select {
		case <-n.changed:
		case <-ctx.Done():
			return
		}
		taken := n.take()
		if taken[""] {
			taken = map[string]bool{"": true}
		}
		for line := range taken {
			handle(line)
		}
		select {
		case <-time.After(watchPassInterval):
		case <-ctx.Done():
			return
		}
	}
}

// observedOwners are the instances that are observed here, each with the time of its last observation.
type observedOwners struct {
	mu    sync.Mutex
	all   map[runtimes.Owner]time.Time
	first chan struct{} // closed when there is one
}

func (o *observedOwners) add(owner runtimes.Owner) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.init()
	if len(o.all) == 0 {
		close(o.first)
	}
	o.all[owner] = time.Now()
}

// init initialises owners at the first use; o.mu is held.
func (o *observedOwners) init() {
	if o.all == nil {
		o.all, o.first = map[runtimes.Owner]time.Time{}, make(chan struct{})
	}
}

// awaitAny waits until an instance is observed. It returns false if ctx ends first.
func (o *observedOwners) awaitAny(ctx context.Context) bool {
	o.mu.Lock()
	o.init()
	first := o.first
	o.mu.Unlock()
	select {
	case <-first:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// awaitNone calls onNone after a period without observations. It forgets instances that were not observed.
func (o *observedOwners) awaitNone(ctx context.Context, idleTimeout time.Duration, onNone func()) {
	for {
		select {
		case <-time.After(idleTimeout / 2):
		case <-ctx.Done():
			return
		}
		o.mu.Lock()
		for owner, at := range o.all {
			if time.Since(at) > idleTimeout {
				delete(o.all, owner)
			}
		}
		remaining := len(o.all)
		if remaining == 0 {
			o.first = make(chan struct{})
		}
		o.mu.Unlock()
		if remaining == 0 {
			onNone()
			return
		}
	}
}

// hintMatching calls hint for the owners that match a line.
func (o *observedOwners) hintMatching(line string, hint func(runtimes.Owner)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	words := strings.Fields(line)
	for owner := range o.all {
		if matchesOwner(words, owner) {
			hint(owner)
		}
	}
}

// matchesOwner reports whether the words of a line match an instance.
func matchesOwner(words []string, owner runtimes.Owner) bool {
	names := [][]string{{owner.Service, owner.Application + "/" + owner.Service}, {owner.ID.Channel}, {owner.ID.Name}}
	for i, word := range words[:min(len(words), len(names))] {
		if !slices.Contains(names[i], word) {
			return false
		}
	}
	return true
}
