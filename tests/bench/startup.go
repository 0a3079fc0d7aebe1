package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/converge-engine/converge/tests/bench/report"
)

// trivial is the least that a Go program can do.
const trivial = "package main\n\nfunc main() { println(\"trivial\") }\n"

// manyShown is how many services one status shows at most (I5).
const manyShown = 300

// started is one command line, and how long it took each time.
type started struct {
	what    string
	command []string
	goal    time.Duration // 0: none
	wall    []time.Duration
	cpu     []time.Duration
}

// measureStartup starts programs in turns: with the CLI, whoever waits is a person.
func measureStartup(ctx context.Context, b *bench) (err error) {
	fmt.Fprint(b.log, "building ... ")
	bin, err := buildAll(ctx, b.dir)
	if err != nil {
		return err
	}
	w, err := newWorld(ctx, b.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	one := application{name: "startup", channels: 2, services: []string{"web"}, version: "v1", steady: time.Hour}
	many := application{name: "many", channels: 2, services: serviceNames(manyShown), version: "v1", steady: time.Hour}
	for _, a := range []application{one, many} {
		if err := w.publish(ctx, a); err != nil {
			return err
		}
		for _, service := range a.services {
			if err := until(ctx, 10*breath, func() (bool, error) { return w.converged(ctx, a, service, "v1") }); err != nil {
				return err
			}
		}
	}
	converge := filepath.Join(bin, "converge")
	programs := []*started{
		{what: "a Go program that prints a word", command: []string{filepath.Join(bin, "trivial")}},
		{what: "converge --help", command: []string{converge, "--help"}},
		{what: "converge status, one service", command: []string{converge, "status", one.name, "--address", w.server.address}},
		{
			what:    fmt.Sprintf("converge status, %d services", manyShown),
			command: []string{converge, "status", many.name, "--address", w.server.address}, goal: time.Second,
		},
		{what: "converge-dev --help (links the server)", command: []string{filepath.Join(bin, "converge-dev"), "--help"}},
	}
	for n := range b.rounds/5 + 2 {
		for _, p := range programs {
			if err := p.start(ctx, b.dir, n >= 2); err != nil {
				return err
			}
		}
	}
	return reportStartup(b, bin, programs)
}

// buildAll builds the programs as `make build` does, and the trivial one.
func buildAll(ctx context.Context, dir string) (bin string, err error) {
	bin = filepath.Join(dir, "bin")
	source := filepath.Join(dir, "trivial")
	if err := errors.Join(os.MkdirAll(bin, 0o755), os.MkdirAll(source, 0o755)); err != nil {
		return "", err
	}
	for name, text := range map[string]string{"main.go": trivial, "go.mod": "module trivial\n"} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	for _, build := range []struct{ in, out, pkg string }{
		{source, bin + "/trivial", "."},
		{root, bin + "/", "./cmd/converge"},
		{root, bin + "/", "./cmd/converge-dev"},
	} {
		cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", build.out, build.pkg)
		cmd.Dir = build.in
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build %s: %w\n%s", build.pkg, err, out)
		}
	}
	return bin, nil
}

// moduleRoot is the directory of this repository.
func moduleRoot(ctx context.Context) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("run this inside the repository: %w", err)
	}
	return strings.TrimSpace(string(root)), nil
}

// start runs the program once, outside any application's directory.
func (p *started) start(ctx context.Context, dir string, counts bool) error {
	cmd := exec.CommandContext(ctx, p.command[0], p.command[1:]...)
	cmd.Dir = dir
	began := time.Now()
	out, err := cmd.CombinedOutput()
	wall := time.Since(began)
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", p.what, err, out)
	}
	if counts {
		p.wall = append(p.wall, wall)
		p.cpu = append(p.cpu, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	}
	return nil
}

func reportStartup(b *bench, bin string, programs []*started) error {
	least := report.Dur(report.Median(programs[0].wall))
	for _, p := range programs[1:] {
		l := report.Line{
			Row: b.row, What: p.what, Measured: report.Dur(report.Median(p.wall)),
			Spread:    fmt.Sprintf("p95 %s, CPU %s", report.Dur(report.Quantile(p.wall, 0.95)), report.Dur(report.Median(p.cpu))),
			Reference: &least, Against: "trivial Go program",
		}
		if p.goal > 0 {
			l.Goal = report.Ref(report.Dur(p.goal))
		}
		b.Add(l)
	}
	var sizes []string
	for _, name := range []string{"trivial", "converge", "converge-dev"} {
		info, err := os.Stat(filepath.Join(bin, name))
		if err != nil {
			return err
		}
		sizes = append(sizes, fmt.Sprintf("%s %s", name, report.Of(float64(info.Size()), report.Bytes)))
	}
	b.Note(b.row, "%d starts of each, in turns; sizes: %s", len(programs[0].wall), strings.Join(sizes, ", "))
	return nil
}
