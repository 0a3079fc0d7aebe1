// Command bench measures Converge on this machine: how long a decision takes, what a release and an
// idle service cost, how fast the core decides and the command line starts. Each number stands beside
// a reference from the same run, since a time alone says more about the machine than about the
// program. docs/benchmarks.md explains the rows.
//
// The Temporal server runs in a process of its own, which is this program again, so that its CPU is
// distinguished from the worker's. Nothing outlives the run, and a slow machine fails nothing: what
// misses its goal is printed as such. It is no part of the tests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/converge-engine/converge/tests/bench/report"
)

// row is one benchmark: it adds lines to a report, working in a directory of its own.
type row struct {
	name  string
	about string
	limit time.Duration // what takes longer is given up
	run   func(context.Context, *bench) error
}

// rows in the order in which they run and print.
var rows = [...]row{
	{"latency", "a release signal to the start of apply, against a bare workflow", 3 * time.Minute, measureLatency},
	{"cpu", "CPU of a release, the server's included", 3 * time.Minute, measureCPU},
	{"history", "events and bytes of history of a release", time.Minute, measureHistory},
	{"gates", "what gates add to a release, and what they cost at rest and while they hold", 5 * time.Minute, measureGates},
	{"idle", "what many idle, converged services cost", 15 * time.Minute, measureIdle},
	{"scale", "many services in many applications, at rest and through a change of all", 2 * time.Hour, measureScale},
	{"hung", "a release beside many services on a runtime that hangs", 10 * time.Minute, measureHung},
	{"burst", "a release while all services of another application change", 10 * time.Minute, measureBurst},
	{"decision", "the pure decision over 30,000 instances, and through 500 channels", 3 * time.Minute, measureDecision},
	{"watch", "a change by hand on Kubernetes to its repair, watching against polling", 10 * time.Minute, measureWatch},
	{"outage", "an API server that goes away and comes back, with watches in 500 namespaces", 15 * time.Minute, measureOutage},
	{"rollout", "a release through a fleet in steps, against the least that its policy allows", 10 * time.Minute, measureRollout},
	{"plan", "a plan of services that need each other, against its critical path and strict phases", 15 * time.Minute, measurePlan},
	{"fleet", "a release of many Deployments, and what they cost at rest", 25 * time.Minute, measureFleet},
	{"peers", "the same change of many services, with Converge, Argo Rollouts and Flux", 2 * time.Hour, measurePeers},
	{"ecs", "calls of Amazon ECS for a release, and at rest", 10 * time.Minute, measureECS},
	{"store", "what the store has after many releases, and after it was collected", 3 * time.Hour, measureStore},
	{"dev", "what converge dev takes while many services rest", 10 * time.Minute, measureDev},
	{"board", "pages, acts and browsers of converge serve, with as many services as -services says", time.Hour, measureBoard},
	{"startup", "how long converge takes to start", 5 * time.Minute, measureStartup},
}

// bench is what a row needs to know.
type bench struct {
	*report.Report
	options
	row string
	dir string // empty at first, removed afterwards
	log io.Writer
}

type options struct {
	run         string
	json        string
	rounds      int
	services    int
	scale       int
	window      time.Duration
	deployments int
	changed     int
	instances   int
	releases    int
	rest        time.Duration
	kubelab     string
	profile     string
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == serverRole {
		os.Exit(serve(os.Args[2]))
	}
	o, chosen, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = runAll(ctx, o, chosen)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, []row, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&o.run, "run", "", "only these `rows`, with commas between: "+names(", "))
	f.StringVar(&o.json, "json", "", "also write the result to this `file`, as JSON")
	f.IntVar(&o.rounds, "rounds", 100, "rounds of latency and of cpu; a fifth as many of watch, and starts of each program")
	f.IntVar(&o.services, "services", 1000, "services that idle and board hold, and of the largest plan")
	f.IntVar(&o.scale, "scale", 1000, "services that scale holds, with three instances each")
	f.DurationVar(&o.window, "window", 30*time.Second, "how long idle watches them: four readings for each")
	f.IntVar(&o.instances, "instances", largestFleet, "instances of the fleet that rollout goes through")
	f.IntVar(&o.deployments, "deployments", 1000, "Deployments that fleet releases")
	f.IntVar(&o.changed, "changed", 100, "services that peers changes with each of them")
	f.IntVar(&o.releases, "releases", 1000, "releases that store makes")
	f.DurationVar(&o.rest, "rest", time.Minute, "how long watch, fleet, peers, dev and board rest")
	f.StringVar(&o.kubelab, "kubelab", "", "the `program` of the Kubernetes control plane, in place of the one that make kube-build builds")
	f.StringVar(&o.profile, "profile", "", "write a CPU profile of the worker during the last release of fleet to this `file`")
	f.Usage = func() {
		fmt.Fprintf(f.Output(), "Measure Converge on this machine. The exit status says whether everything could be\nmeasured, never how fast it was.\n\n")
		for _, r := range rows {
			fmt.Fprintf(f.Output(), "  %-9s %s\n", r.name, r.about)
		}
		fmt.Fprintln(f.Output())
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return o, nil, err
	}
	if f.NArg() > 0 {
		return o, nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if min(o.rounds, o.services, o.scale, o.deployments, o.changed, o.releases) < 1 || min(o.window, o.rest) < time.Second {
		return o, nil, errors.New("-rounds, -services, -scale, -deployments, -changed and -releases must be at least 1, -window and -rest at least 1s")
	}
	chosen, err := choose(o.run)
	return o, chosen, err
}

func choose(list string) ([]row, error) {
	if list == "" {
		return rows[:], nil
	}
	wanted := strings.Split(list, ",")
	var out []row
	for _, r := range rows {
		if i := slices.Index(wanted, r.name); i >= 0 {
			out = append(out, r)
			wanted = slices.Delete(wanted, i, i+1)
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("no row %q; expected some of %s", wanted[0], names(", "))
	}
	return out, nil
}

func names(sep string) string {
	var out []string
	for _, r := range rows {
		out = append(out, r.name)
	}
	return strings.Join(out, sep)
}

// runAll measures the chosen rows, prints the table, and says which rows could not be measured.
func runAll(ctx context.Context, o options, chosen []row) error {
	dir, err := os.MkdirTemp("", "converge-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // at the end: while many files were removed a moment ago, a file system makes new ones slowly
	r := &report.Report{Lines: []report.Line{}, Machine: fmt.Sprintf("%s, %s/%s, %s", cores(), runtime.GOOS, runtime.GOARCH, runtime.Version())}
	for _, row := range chosen {
		if ctx.Err() != nil {
			break
		}
		began := time.Now()
		fmt.Fprintf(os.Stderr, "%s: %s ... ", row.name, row.about)
		err := runOne(ctx, row, &bench{Report: r, options: o, row: row.name, log: os.Stderr, dir: filepath.Join(dir, row.name)})
		var left notMeasured
		switch {
		case errors.As(err, &left):
			r.Skip(row.name, left)
			fmt.Fprintf(os.Stderr, "%v, ", left)
		case err != nil:
			r.Fail(row.name, err)
			fmt.Fprintf(os.Stderr, "%v, ", err)
		}
		fmt.Fprintf(os.Stderr, "%s\n", time.Since(began).Round(time.Second))
	}
	fmt.Printf("\n%s\n\n%s", r.Machine, r.Table())
	if o.json != "" {
		if err := writeJSON(o.json, r); err != nil {
			return err
		}
	}
	if len(r.Failed) > 0 {
		return fmt.Errorf("%d of %d rows could not be measured", len(r.Failed), len(chosen))
	}
	return context.Cause(ctx)
}

func runOne(ctx context.Context, row row, b *bench) error {
	ctx, cancel := context.WithTimeoutCause(ctx, row.limit, fmt.Errorf("given up after %s", row.limit))
	defer cancel()
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return err
	}
	debug.FreeOSMemory() // what the row before left behind is none of this one's
	if err := row.run(ctx, b); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	return nil
}

func writeJSON(file string, r *report.Report) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(r.WriteJSON(f), f.Close())
}

// cores says how many there are, and what else they had to do, which matters for every time below.
func cores() string {
	words := map[int]string{1: "one core", 2: "two cores", 4: "four cores", 8: "eight cores"}
	text, ok := words[runtime.NumCPU()]
	if !ok {
		text = fmt.Sprintf("%d cores", runtime.NumCPU())
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		text += fmt.Sprintf(" (load %s at the start)", strings.Fields(string(load))[0])
	}
	return text
}
