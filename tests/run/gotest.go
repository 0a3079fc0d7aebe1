package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// target is what to run of a package.
type target struct {
	pkg   string
	dir   string
	tests []string // none: all
	alone bool     // one at a time, whatever they say of themselves
}

// longAtOnce is how many packages run their long tests at the same time: these wait for minutes, and compute little.
const longAtOnce = 4

// timeout of the tests of one package.
const timeout = 30 * time.Minute

func (o options) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = o.dir, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	return cmd
}

// list finds the packages that have tests, and with -long the tests that have a long form.
func (o options) list(ctx context.Context) ([]target, error) {
	const format = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}"
	var tags []string
	for _, flag := range o.flags {
		if strings.HasPrefix(flag, "-tags=") {
			tags = append(tags, flag)
		}
	}
	out, err := o.goCommand(ctx, slices.Concat([]string{"list", "-f", format}, tags, o.packages)...).Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages %s: %w", strings.Join(o.packages, " "), err)
	}
	var all []target
	for line := range strings.Lines(string(out)) {
		pkg, dir, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok {
			continue
		}
		t := target{pkg: pkg, dir: dir}
		if o.long {
			if t.tests, err = longTests(dir); err != nil {
				return nil, err
			}
			if len(t.tests) == 0 {
				continue
			}
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no tests in %s", strings.Join(o.packages, " "))
	}
	return all, nil
}

// goTest runs tests and reads what go test says of them.
func goTest(ctx context.Context, o options, targets []target, p *progress) (*results, error) {
	args := []string{"test", "-json", "-timeout=" + timeout.String()}
	if o.long {
		args = append(args, "-p="+strconv.Itoa(longAtOnce))
	} else {
		args = append(args, "-short")
	}
	args = append(args, o.flags...)
	var tests, packages []string
	for _, t := range targets {
		packages = append(packages, t.pkg)
		tests = append(tests, t.tests...)
		if t.alone {
			args = append(args, "-count=1", "-parallel=1")
		}
	}
	if len(tests) > 0 {
		slices.Sort(tests)
		args = append(args, "-run="+exactly(slices.Compact(tests)))
	}
	cmd := o.goCommand(ctx, append(args, packages...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := newResults()
	stop := p.start(r)
	readErr := r.read(out, p.packageDone)
	stop()
	err = cmd.Wait()
	if ctx.Err() != nil {
		return nil, errors.New("interrupted")
	}
	if readErr != nil {
		return nil, readErr
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && r.failed(): // which is a result
	case err != nil:
		return nil, fmt.Errorf("go test: %w", err)
	}
	if missing := r.missing(targets); len(missing) > 0 {
		return nil, fmt.Errorf("go test ended before the tests of %s", strings.Join(missing, ", "))
	}
	return r, nil
}

// exactly is the pattern of -run that these names match and no other.
func exactly(tests []string) string {
	quoted := make([]string, len(tests))
	for i, t := range tests {
		quoted[i] = regexp.QuoteMeta(t)
	}
	return "^(" + strings.Join(quoted, "|") + ")$"
}

// event is a line of go test -json; `go doc cmd/test2json` has its meaning.
type event struct {
	Action, Package, ImportPath, Test, Output, FailedBuild string
	Elapsed                                                float64 // seconds
}

func (r *results) read(in io.Reader, done func(string, *packageResult)) error {
	for decoder := json.NewDecoder(in); ; {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			rest, _ := io.ReadAll(io.MultiReader(decoder.Buffered(), in))
			return fmt.Errorf("read what go test says: %w: %s", err, bytes.TrimSpace(rest[:min(len(rest), 400)]))
		}
		var e event
		if err := json.Unmarshal(raw, &e); err != nil {
			return fmt.Errorf("read what go test says: %w: %s", err, raw)
		}
		if p := r.add(e); p != nil {
			done(e.Package, p)
		}
	}
}

// short leaves out of a package's path what is the same for all.
func short(pkg string) string {
	return strings.TrimPrefix(strings.TrimPrefix(pkg, "github.com/converge-engine/converge"), "/")
}
