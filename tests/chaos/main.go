// Command chaos lets everything go wrong at random under a stream of every verb, and judges Converge from the outside: it
// kills, freezes and cuts off two workers, a Temporal server and a store, all processes of their own, while people
// release, approve, pause, pin, roll back and publish. What it judges is the log that the applies wrote themselves, the
// answers that people got, and what `converge history` and `converge status` say (package record). Nothing in it knows
// how Converge works inside.
//
// A run is drawn from a seed alone; what of it meets what is a matter of time. `make chaos` is the long form,
// TestShortStorm the short one.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/converge-engine/converge/tests/chaos/record"
)

func main() {
	if code, played := play(os.Args); played {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context) error {
	s := size{long: true}
	seed := flag.Uint64("seed", 0, "draws the plan; 0: another one each time")
	flag.IntVar(&s.releases, "releases", 1000, "how many releases are made")
	flag.IntVar(&s.kills, "kills", 100, "how many processes are killed")
	flag.IntVar(&s.freezes, "freezes", -1, "how many are stopped for a while; -1: a third of the kills")
	flag.IntVar(&s.cuts, "cuts", -1, "how many connections are cut or stalled; -1: a third of the kills")
	flag.IntVar(&s.services, "services", 6, "how many services there are")
	flag.IntVar(&s.signals, "signals", 20, "percent of releases that come by a signal")
	flag.IntVar(&s.attacks, "attacks", -1, "how many messages a hostile client sends; -1: two for each release")
	keep := flag.Bool("keep", false, "keep the directory with logs, database and store, also of a run without violations")
	show := flag.Bool("plan", false, "print the plan and do nothing")
	plans := flag.Bool("plans", false, "have plans of services run that need each other instead, and kill meanwhile")
	judge := flag.String("judge", "", "judge the record of an earlier run in this directory instead")
	flag.Parse()
	if *judge != "" {
		return again(*judge)
	}
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000) + 1
	}
	if *plans {
		return performPlans(ctx, planChaos{*seed, s.services, s.kills}, *keep)
	}
	if s.freezes < 0 {
		s.freezes = s.kills / 3
	}
	if s.cuts < 0 {
		s.cuts = s.kills / 3
	}
	if s.attacks < 0 {
		s.attacks = 2 * s.releases
	}
	if s.services < 1 || s.releases < s.services {
		return errors.New("there has to be a service, and a release for each")
	}
	p := draw(*seed, s)
	if *show {
		fmt.Print(p)
		return nil
	}
	fmt.Printf("seed %d: %d releases, %d kills, %d freezes, %d cuts\n", *seed, s.releases, s.kills, s.freezes, s.cuts)
	return perform(ctx, p, *keep)
}

// perform runs a plan in a directory of its own, which stays when anything was found.
func perform(ctx context.Context, p plan, keep bool) error {
	dir, err := os.MkdirTemp("", "converge-chaos-")
	if err != nil {
		return err
	}
	began := time.Now()
	r, err := run(ctx, p, dir, os.Stdout)
	if r != nil { // it may be there though something was wrong in the end
		r.Took = time.Since(began)
		err = errors.Join(err, save(r, dir), report(os.Stdout, r))
	}
	if err == nil && !keep {
		return os.RemoveAll(dir)
	}
	fmt.Println("logs, record, database and store are in", dir)
	return err
}

// performPlans does that for plans.
func performPlans(ctx context.Context, c planChaos, keep bool) error {
	dir, err := os.MkdirTemp("", "converge-chaos-")
	if err != nil {
		return err
	}
	fmt.Printf("seed %d: plans of %d services, %d kills\n", c.seed, c.services, c.kills)
	if err = c.run(ctx, dir, os.Stdout); err == nil && !keep {
		return os.RemoveAll(dir)
	}
	fmt.Println("logs, database and store are in", dir)
	return err
}

// recordFile has all that was judged.
const recordFile = "record.json"

// again judges an earlier run once more.
func again(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return err
	}
	r := new(record.Record)
	if err := json.Unmarshal(data, r); err != nil {
		return err
	}
	return report(os.Stdout, r)
}

func save(r *record.Record, dir string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, recordFile), data, 0o600)
}
