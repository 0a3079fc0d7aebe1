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
	watchGap     = 100 * time.Millisecond // between passes over the reported lines
	watchAgain   = time.Second            // before the restart of an ended watch; doubles up to watchSeldom
	watchSeldom  = time.Minute
	longestLine  = 1 << 10 // bytes; a longer line means everything
	mostNoticed  = 1000    // lines in a pass; more mean everything
	watchLogTail = 1 << 10
	unobserved   = 15 * time.Minute // how long at least a watch continues without observations
)

// Watch implements runtimes.Watcher by the watch command, which runs as long as this worker uses the runtime. Each line that it
// prints says where a change may have happened: "web", "web prod", "shop/web prod eu" for the service, the release channel and the
// instance. An omitted word means all. An empty line means everything. A command that ends is started again.
//
// It gets the runtime's environment, and nothing of a service. Its stderr is for people; its end is logged when the command ends.
// The command runs only while there are observations: an unused definition has no process.
func (r *Runtime) Watch(hint func(runtimes.Owner)) (stop func()) {
	commands, local := r.runner.(*local)
	if r.def.Custom.Watch == nil || !local {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	noticed := &notices{changed: make(chan struct{}, 1)}
	done.Go(func() { r.keepWatching(ctx, commands, noticed) })
	done.Go(func() { noticed.pass(ctx, func(line string) { r.known.each(line, hint) }) })
	return func() { cancel(); done.Wait() }
}

// keepWatching runs the command again and again while there are observations, with longer pauses if it ends at once.
func (r *Runtime) keepWatching(ctx context.Context, commands *local, noticed *notices) {
	pause := watchAgain
	for r.known.await(ctx) {
		began := time.Now()
		wanted, cancel := context.WithCancel(ctx)
		go r.known.awaitNone(wanted, r.unobserved, cancel)
		err := r.watch(wanted, commands, noticed)
		ended := wanted.Err() == nil
		cancel()
		if !ended {
			continue // there are no observations, or no watchers, any more
		}
		if time.Since(began) > watchSeldom {
			pause = watchAgain
		}
		slog.Warn("a watch command ended; until it restarts, only readings find changes", "runtime", r.def.Name, "again", pause, "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, watchSeldom)
		noticed.add("") // changes may have happened in the meantime
	}
}

// watch runs the command once, until it ends or ctx does.
func (r *Runtime) watch(ctx context.Context, commands *local, noticed *notices) error {
	env, secrets, err := resolve(ctx, r.def.Custom.Env, runtimes.Instance{}, r.secrets)
	if err != nil {
		return err
	}
	argv := r.def.Custom.Watch.Argv
	path, environ, err := commands.prepare(argv, work{env: env, secrets: secrets}, "")
	if err != nil {
		return err
	}
	redact := newRedactor(slices.Sorted(maps.Values(secrets)))
	stderr := redact.tail(watchLogTail)
	exit, err := process{
		path: path, argv: argv, dir: commands.dir, env: environ, stdout: &lines{each: noticed.add}, stderr: stderr,
		grace: commands.grace, drain: commands.drain, sweep: true,
	}.run(ctx)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s exited %d: %s", redact.text(argv[0]), exit.code, strings.TrimSpace(stderr.String()))
}

// lines passes on its input line by line. A line that is too long is passed on as an empty one.
type lines struct {
	each    func(string)
	pending bytes.Buffer
	tooLong bool
}

// Write never fails.
func (l *lines) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		l.tooLong = l.tooLong || l.pending.Len()+len(line) > longestLine
		if !l.tooLong {
			l.pending.Write(line)
		}
		if whole {
			text := l.pending.String()
			if l.tooLong {
				text = ""
			}
			l.each(text)
			l.pending.Reset()
			l.tooLong = false
		}
		rest = after
	}
	return len(b), nil
}

// notices collects lines until they are passed on, each once.
type notices struct {
	mu      sync.Mutex
	lines   map[string]bool
	changed chan struct{} // holds one value if there are lines
}

func (n *notices) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lines == nil {
		n.lines = map[string]bool{}
	}
	if len(n.lines) >= mostNoticed {
		line = ""
	}
	n.lines[strings.TrimSpace(line)] = true
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

func (n *notices) take() map[string]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	taken := n.lines
	n.lines = nil
	return taken
}

// pass passes lines on until ctx ends, with a pause after each pass: a flood of lines is not processed more often.
func (n *notices) pass(ctx context.Context, each func(string)) {
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
			each(line)
		}
		select {
		case <-time.After(watchGap):
		case <-ctx.Done():
			return
		}
	}
}

// owners are the instances that are observed here, each with the time of its last observation.
type owners struct {
	mu    sync.Mutex
	all   map[runtimes.Owner]time.Time
	first chan struct{} // closed when there is one
}

func (o *owners) add(owner runtimes.Owner) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.make()
	if len(o.all) == 0 {
		close(o.first)
	}
	o.all[owner] = time.Now()
}

// make initialises owners at the first use; o.mu is held.
func (o *owners) make() {
	if o.all == nil {
		o.all, o.first = map[runtimes.Owner]time.Time{}, make(chan struct{})
	}
}

// await waits until an instance is observed. It returns false if ctx ends first.
func (o *owners) await(ctx context.Context) bool {
	o.mu.Lock()
	o.make()
	first := o.first
	o.mu.Unlock()
	select {
	case <-first:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// awaitNone calls none after a period without observations. It forgets instances that were not observed.
func (o *owners) awaitNone(ctx context.Context, patience time.Duration, none func()) {
	for {
		select {
		case <-time.After(patience / 2):
		case <-ctx.Done():
			return
		}
		o.mu.Lock()
		for owner, at := range o.all {
			if time.Since(at) > patience {
				delete(o.all, owner)
			}
		}
		left := len(o.all)
		if left == 0 {
			o.first = make(chan struct{})
		}
		o.mu.Unlock()
		if left == 0 {
			none()
			return
		}
	}
}

// each calls hint for the owners that match a line.
func (o *owners) each(line string, hint func(runtimes.Owner)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	words := strings.Fields(line)
	for owner := range o.all {
		if means(words, owner) {
			hint(owner)
		}
	}
}

// means reports whether the words of a line match an instance.
func means(words []string, owner runtimes.Owner) bool {
	is := [][]string{{owner.Service, owner.Application + "/" + owner.Service}, {owner.ID.Channel}, {owner.ID.Name}}
	for i, word := range words[:min(len(words), len(is))] {
		if !slices.Contains(is[i], word) {
			return false
		}
	}
	return true
}
