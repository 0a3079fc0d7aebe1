// Command stress runs the tests of packages again and again while something else keeps all cores busy.
//
//	go run ./tests/stress [-n 10] [-short] [PACKAGE ...]
//
// Each run is kept in .cache/stress/results.jsonl, by the state of the checkout that it is of, and what a failing one
// printed beside it. Started again on the same state it goes on where it was, so that it can be interrupted. Exit codes: 0
// when each run passed, 1 when one failed, 2 when the tests could not be run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o := options{dir: filepath.Join(".cache", "stress"), out: os.Stdout}
	flag.IntVar(&o.times, "n", 10, "how often each package is to have run")
	flag.BoolVar(&o.short, "short", false, "run long tests in their short form")
	flag.StringVar(&o.run, "run", "", "only tests that match, as -run of go test")
	flag.Parse()
	o.packages = flag.Args()
	if len(o.packages) == 0 {
		o.packages = []string{"./tests/..."}
	}
	failed, err := stress(ctx, o)
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "stress: %v\n", err)
		os.Exit(2)
	case failed > 0:
		os.Exit(1)
	}
}

type options struct {
	times    int
	short    bool
	run      string
	packages []string
	module   string // directory; "" is the working directory
	dir      string // of results and programs
	out      io.Writer
}

// stress returns how many of all runs of this state failed, those of before included.
func stress(ctx context.Context, o options) (failed int, err error) {
	state, err := stateOf(ctx, o.module)
	if err != nil {
		return 0, err
	}
	packages, err := list(ctx, o)
	if err != nil {
		return 0, err
	}
	results, err := openResults(filepath.Join(o.dir, "results.jsonl"))
	if err != nil {
		return 0, err
	}
	defer results.close()
	stop := load(runtime.NumCPU())
	defer stop()
	for _, p := range packages {
		key := result{State: state, Package: p.name, Short: o.short, Run: o.run}
		if err := o.stressPackage(ctx, p, key, results); err != nil {
			return 0, err
		}
		all := results.of(key)
		failed += countFailed(all)
		fmt.Fprintln(o.out, line(p.name, all))
	}
	return failed, nil
}

// stressPackage runs the tests of a package as often as is missing.
func (o options) stressPackage(ctx context.Context, p pkg, key result, results *results) error {
	done := len(results.of(key))
	if done >= o.times {
		return nil
	}
	program, err := filepath.Abs(filepath.Join(o.dir, "bin", strings.ReplaceAll(p.name, "/", "_")+".test"))
	if err != nil {
		return err
	}
	if err := o.goCommand(ctx, "test", "-c", "-o", program, p.name).Run(); err != nil {
		return fmt.Errorf("compile the tests of %s: %w", p.name, err)
	}
	defer os.Remove(program)
	for n := done; n < o.times; n++ {
		r := key
		r.N, r.At = n+1, time.Now().UTC()
		output, err := o.once(ctx, program, p.dir)
		if ctx.Err() != nil {
			return errors.New("interrupted; started again on the same state, it goes on from here")
		}
		r.Seconds, r.Passed = time.Since(r.At).Seconds(), err == nil
		if !r.Passed {
			r.Failed = failedTests(output)
			if err := o.keepOutput(&r, output); err != nil {
				return err
			}
		}
		if err := results.add(r); err != nil {
			return err
		}
		fmt.Fprintf(o.out, "%s  %s %d/%d  %s\n", map[bool]string{true: "ok  ", false: "FAIL"}[r.Passed], p.name, r.N, o.times, r)
	}
	return nil
}

// once runs the tests of a package.
func (o options) once(ctx context.Context, program, dir string) (output []byte, err error) {
	args := []string{"-test.timeout=60m"}
	if o.short {
		args = append(args, "-test.short")
	}
	if o.run != "" {
		args = append(args, "-test.run="+o.run)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	return cmd.CombinedOutput()
}

// keepOutput writes what a failing run printed where its result says.
func (o options) keepOutput(r *result, output []byte) error {
	r.Output = filepath.Join(o.dir, r.State, fmt.Sprintf("%s-%d.log", strings.ReplaceAll(r.Package, "/", "_"), r.N))
	if err := os.MkdirAll(filepath.Dir(r.Output), 0o755); err != nil {
		return err
	}
	return os.WriteFile(r.Output, output, 0o644)
}

var failLine = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

func failedTests(output []byte) []string {
	var names []string
	for _, m := range failLine.FindAllSubmatch(output, -1) {
		names = append(names, string(m[1]))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (o options) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = o.module, o.out, os.Stderr
	return cmd
}

type pkg struct{ name, dir string }

// list finds the packages that have tests.
func list(ctx context.Context, o options) ([]pkg, error) {
	const format = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}"
	cmd := o.goCommand(ctx, append([]string{"list", "-f", format}, o.packages...)...)
	cmd.Stdout = nil
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages %s: %w", strings.Join(o.packages, " "), err)
	}
	var all []pkg
	for l := range strings.Lines(string(out)) {
		if name, dir, ok := strings.Cut(strings.TrimSpace(l), "\t"); ok {
			all = append(all, pkg{name, dir})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no tests in %s", strings.Join(o.packages, " "))
	}
	return all, nil
}

// load keeps so many cores busy until stop is called.
func load(cores int) (stop func()) {
	ended := make(chan struct{})
	for range cores {
		go func() {
			for n := uint64(1); ; n = n*6364136223846793005 + 1 {
				if n%(1<<20) == 1 {
					select {
					case <-ended:
						return
					default:
					}
				}
			}
		}()
	}
	return func() { close(ended) }
}
