package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

type outcome string

const (
	running outcome = "running"
	passed  outcome = "pass"
	skipped outcome = "skip"
	failed  outcome = "fail"
)

// testResult is how a top-level test went, with all that its parts printed.
type testResult struct {
	outcome outcome
	took    time.Duration
	output  strings.Builder
}

// packageResult is how the tests of a package went. What belongs to no test is in its own output.
type packageResult struct {
	ended, passed, cached bool
	took                  time.Duration
	output                strings.Builder
	tests                 map[string]*testResult
}

// results are those of a run. Its methods may be called from any goroutine.
type results struct {
	mu       sync.Mutex
	packages map[string]*packageResult
	builds   map[string]*strings.Builder // what the compiler printed, by the import path that it named
}

func newResults() *results {
	return &results{packages: map[string]*packageResult{}, builds: map[string]*strings.Builder{}}
}

// add takes an event in, and returns the package that it ended, if any.
func (r *results) add(e event) (ended *packageResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Action == "build-output" {
		if r.builds[e.ImportPath] == nil {
			r.builds[e.ImportPath] = &strings.Builder{}
		}
		r.builds[e.ImportPath].WriteString(e.Output)
		return nil
	}
	if e.Package == "" {
		return nil
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &packageResult{tests: map[string]*testResult{}}
		r.packages[e.Package] = p
	}
	if e.Test == "" {
		return p.add(e, r.builds)
	}
	name, sub, _ := strings.Cut(e.Test, "/")
	t := p.tests[name]
	if t == nil {
		t = &testResult{outcome: running}
		p.tests[name] = t
	}
	t.output.WriteString(e.Output)
	if o := outcome(e.Action); sub == "" && (o == passed || o == skipped || o == failed) {
		t.outcome, t.took = o, seconds(e.Elapsed)
	}
	return nil
}

// add takes in what is said of the package itself.
func (p *packageResult) add(e event, builds map[string]*strings.Builder) (ended *packageResult) {
	p.output.WriteString(e.Output)
	p.cached = p.cached || e.Action == "output" && strings.HasSuffix(strings.TrimSpace(e.Output), "(cached)")
	switch o := outcome(e.Action); o {
	case passed, skipped, failed:
		p.ended, p.passed, p.took = true, o != failed, seconds(e.Elapsed)
		if b := builds[e.FailedBuild]; b != nil {
			p.output.WriteString(b.String())
		}
		return p
	}
	return nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// missing are the packages of which no end is known: go test was killed, and what failed before says nothing of them.
func (r *results) missing(targets []target) (packages []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range targets {
		if p := r.packages[t.pkg]; p == nil || !p.ended {
			packages = append(packages, cmp.Or(short(t.pkg), "."))
		}
	}
	return packages
}

// failed says whether anything did.
func (r *results) failed() bool { return len(r.failures()) > 0 }

// of is how a test went; nil outcome fields say that it did not run.
func (r *results) of(pkg, test string) *testResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.packages[pkg]; p != nil && p.tests[test] != nil {
		return p.tests[test]
	}
	return &testResult{}
}

// failedOutside says whether a package failed, and no test of it did.
func (r *results) failedOutside(pkg string) bool {
	for _, f := range r.failures() {
		if f.pkg == pkg && f.test == "" {
			return true
		}
	}
	return false
}

// failure is a test that failed, or a package that failed outside of its tests.
type failure struct {
	pkg, test  string // test is empty where the package failed by itself
	first      string // what was printed
	beside     string // what the package printed outside of its tests
	passedThen bool
	second     *testResult
	// noSecondTry says why there is none; empty: there is one.
	noSecondTry string
}

// failures in the order of their names. A test that was running when its program ended has failed.
func (r *results) failures() []failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []failure
	for _, pkg := range slices.Sorted(maps.Keys(r.packages)) {
		p := r.packages[pkg]
		if p.ended && p.passed {
			continue
		}
		before := len(all)
		for _, name := range slices.Sorted(maps.Keys(p.tests)) {
			if t := p.tests[name]; t.outcome == failed || t.outcome == running {
				all = append(all, failure{pkg: pkg, test: name, first: t.output.String(), beside: p.output.String()})
			}
		}
		if len(all) == before {
			all = append(all, failure{pkg: pkg, first: p.output.String(), beside: p.output.String()})
		}
	}
	return all
}

func packagesOf(failures []failure) []string {
	var all []string
	for _, f := range failures {
		all = append(all, f.pkg)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// testsIn are the tests of a package that get a second try.
func testsIn(failures []failure, pkg string) []string {
	var all []string
	for _, f := range failures {
		if f.pkg == pkg && f.noSecondTry == "" {
			all = append(all, f.test)
		}
	}
	return all
}

// count is how many tests went so.
func (r *results) count(o outcome) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.packages {
		for _, t := range p.tests {
			if t.outcome == o {
				n++
			}
		}
	}
	return n
}

// timed names something and how long it took.
type timed struct {
	name string
	took time.Duration
}

// slowest are the packages and the tests that took longest.
func (r *results) slowest(n int) (packages, tests []timed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pkg, p := range r.packages {
		packages = append(packages, timed{cmp.Or(short(pkg), "."), p.took})
		for name, t := range p.tests {
			tests = append(tests, timed{short(pkg) + " " + name, t.took})
		}
	}
	for _, all := range []*[]timed{&packages, &tests} {
		slices.SortFunc(*all, func(a, b timed) int {
			return cmp.Or(cmp.Compare(b.took, a.took), strings.Compare(a.name, b.name))
		})
		*all = (*all)[:min(n, len(*all))]
	}
	return packages, tests
}
