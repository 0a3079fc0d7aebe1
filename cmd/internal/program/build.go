package program

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"
)

// checkout returns the checkout that this program was compiled from, if it is at or above the working directory. It does not build
// another directory that looks like a checkout: another person may have written that configuration, and building it would run its code.
func (l *launcher) checkout() (string, bool) {
	dir, err := l.workDir()
	if err != nil {
		return "", false
	}
	for {
		if l.isModuleRoot(dir) && sameDirectory(dir, l.source) {
			return dir, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}

func sameDirectory(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// sourceRoot returns the checkout that this program was compiled from, or "" if it is unknown, as with -trimpath.
func sourceRoot() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return ""
	}
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

var moduleLine = regexp.MustCompile(`(?m)^module\s+"?` + regexp.QuoteMeta(module) + `"?\s*(//.*)?$`)

func (l *launcher) isModuleRoot(dir string) bool {
	content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil || !moduleLine.Match(content) {
		return false
	}
	info, err := os.Stat(filepath.Join(dir, l.mainPackage()))
	return err == nil && info.IsDir()
}

// build writes the program to the user's cache directory, one per checkout. So the go command detects whether it is up to date, and
// links it only after a change.
func (l *launcher) build(ctx context.Context, goCommand, checkout string) (string, error) {
	cache, err := l.cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "converge")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(checkout))
	program := filepath.Join(dir, l.Name+"-"+hex.EncodeToString(sum[:6]))
	_, statErr := os.Stat(program)

	// Without debugging information, linking takes half the time; stack traces keep their names and lines. Without a version control
	// stamp, an edited example does not cause a new link.
	command := exec.CommandContext(ctx, goCommand, "build", "-v", "-buildvcs=false", "-tags="+l.tags, "-ldflags=-s -w", "-o", program, "./"+l.mainPackage())
	command.Dir = checkout
	// The linker writes to the target's file system, and the program is moved: a copy would fail while the old program is running.
	command.Env = append(os.Environ(), "GOTMPDIR="+dir)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second

	output := &buildOutput{}
	command.Stdout, command.Stderr = output, output
	message := "checking whether " + l.Name + " is up to date"
	if statErr != nil {
		message = "building " + l.Name + ", which " + l.about
	}
	stop := l.progress.start(message, output.count)
	err = command.Run()
	stop(err == nil)
	if ctx.Err() != nil {
		return "", fmt.Errorf("build it from %s: %w", checkout, context.Cause(ctx))
	}
	if err != nil {
		return "", fmt.Errorf("build it from %s: %w\n%s", checkout, err, output.messages())
	}
	return program, nil
}

// buildOutput counts the modules and packages that `go build -v` lists, one per line, as they are downloaded and compiled. It keeps the
// other lines for the case that the build fails.
type buildOutput struct {
	mu      sync.Mutex
	partial []byte
	counted counts
	rest    []string
}

// counts are the numbers of a build so far.
type counts struct{ modules, packages int }

func (c counts) String() string {
	if c.packages == 0 && c.modules > 0 {
		return fmt.Sprintf("%d modules downloaded", c.modules)
	}
	return fmt.Sprintf("%d packages compiled", c.packages)
}

var packageName = regexp.MustCompile(`^[\w.~/-]+$`)

func (o *buildOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.partial = append(o.partial, p...)
	for {
		line, after, found := bytes.Cut(o.partial, []byte("\n"))
		if !found {
			return len(p), nil
		}
		o.partial = after
		switch {
		case packageName.Match(line):
			o.counted.packages++
		case bytes.HasPrefix(line, []byte("go: downloading ")):
			o.counted.modules++
		default:
			o.rest = append(o.rest, string(line))
		}
	}
}

func (o *buildOutput) count() counts {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.counted
}

// messages returns the last lines of the compiler's output.
func (o *buildOutput) messages() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	const most = 30
	lines := o.rest
	if len(o.partial) > 0 {
		lines = append(lines, string(o.partial))
	}
	if len(lines) > most {
		lines = append([]string{"…"}, lines[len(lines)-most:]...)
	}
	return strings.Join(lines, "\n")
}

// progress shows a waiting user the progress of a build: on a terminal a line that is rewritten every second, elsewhere a line every
// ten seconds. A build that ends within the patience prints nothing.
type progress struct {
	out      io.Writer
	terminal bool
	delay    time.Duration
}

// start returns the function to call when the build has ended.
func (p progress) start(message string, count func() counts) (stop func(done bool)) {
	ended, reported := make(chan bool), make(chan struct{})
	go func() {
		defer close(reported)
		p.report(message, count, ended)
	}()
	return func(done bool) {
		ended <- done
		<-reported
	}
}

func (p progress) report(message string, count func() counts, ended <-chan bool) {
	began := time.Now()
	if p.delay > 0 {
		select {
		case <-ended:
			return
		case <-time.After(p.delay):
		}
	}
	fmt.Fprintln(p.out, message)

	interval := 10 * time.Second
	if p.terminal {
		interval = time.Second
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case done := <-ended:
			if done {
				p.line(fmt.Sprintf("ready after %s", elapsed(began)))
			}
			if p.terminal {
				fmt.Fprintln(p.out)
			}
			return
		case <-ticker.C:
			p.line(fmt.Sprintf("%s, %s", elapsed(began), count()))
		}
	}
}

func (p progress) line(text string) {
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K  %s", text)
		return
	}
	fmt.Fprintf(p.out, "  %s\n", text)
}

func elapsed(since time.Time) time.Duration { return time.Since(since).Round(time.Second) }
