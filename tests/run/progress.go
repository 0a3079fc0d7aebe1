package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// progress says how far a run is: a line for each package that has ended, and one every so often while none does.
type progress struct {
	out   io.Writer
	all   int // packages
	began time.Time

	mu   sync.Mutex
	done int
	said time.Time
}

// quiet is how long nothing is said.
const quiet = 20 * time.Second

func newProgress(out io.Writer, all int) *progress {
	return &progress{out: out, all: all, began: time.Now(), said: time.Now()}
}

// start says every so often what is under way, until stop is called.
func (p *progress) start(r *results) (stop func()) {
	ended, gone := make(chan struct{}), make(chan struct{})
	fmt.Fprintf(p.out, "%d packages have tests; compiling and running them\n", p.all)
	go func() {
		defer close(gone)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				p.tick(r)
			}
		}
	}()
	return func() { close(ended); <-gone }
}

func (p *progress) tick(r *results) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.said) < quiet {
		return
	}
	p.said = time.Now()
	fmt.Fprintf(p.out, "%s  %s\n", p.place(), underWay(r))
}

// place is how far it is: [packages done/all time].
func (p *progress) place() string {
	return fmt.Sprintf("[%*d/%d %5s]", len(fmt.Sprint(p.all)), p.done, p.all, clock(time.Since(p.began)))
}

func clock(d time.Duration) string {
	s := int(d.Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// underWay names the packages whose tests run.
func underWay(r *results) string {
	n := r.count(passed)
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for pkg, p := range r.packages {
		if !p.ended && len(p.tests) > 0 {
			names = append(names, cmp.Or(short(pkg), "."))
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return fmt.Sprintf("%d tests passed; compiling and linking the next", n)
	}
	return fmt.Sprintf("%d tests passed; running %s", n, strings.Join(names, ", "))
}

// packageDone says how a package went.
func (p *progress) packageDone(pkg string, r *packageResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	p.said = time.Now()
	word, took := "ok  ", fmt.Sprintf("%.1f s", r.took.Seconds())
	switch {
	case !r.passed:
		word = "FAIL"
	case r.cached:
		took = "(cached)"
	}
	fmt.Fprintf(p.out, "%s  %s  %-40s %s\n", p.place(), word, cmp.Or(short(pkg), "."), took)
	for _, name := range slices.Sorted(maps.Keys(r.tests)) {
		if o := r.tests[name].outcome; o == failed || o == running {
			fmt.Fprintf(p.out, "        %s: %s\n", map[outcome]string{failed: "failed", running: "did not end"}[o], name)
		}
	}
}
