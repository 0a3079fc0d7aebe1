package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// slowestShown is how many packages and tests are listed at the end, by the time that they took.
const slowestShown = 10

// report prints what was skipped, what took longest, and what failed.
func report(out io.Writer, r *results, failures []failure) {
	printSkipped(out, r)
	printSlowest(out, r)
	for _, f := range failures {
		if !f.passedThen {
			printFailure(out, f)
		}
	}
}

// summary prints the counts, and says whether nothing failed in the end.
func summary(out io.Writer, r *results, failures []failure) bool {
	flaky := 0
	for _, f := range failures {
		if f.passedThen {
			flaky++
		}
	}
	fmt.Fprintf(out, "\n%d tests passed, %d failed, %d flaky, %d skipped\n",
		r.count(passed), len(failures)-flaky, flaky, r.count(skipped))
	return flaky == len(failures)
}

func appendTo(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

func printFailure(out io.Writer, f failure) {
	fmt.Fprintf(out, "\nFAIL %s %s\n", short(f.pkg), f.test)
	if f.noSecondTry != "" {
		fmt.Fprintf(out, "no second try: %s\n%s", f.noSecondTry, f.first)
		if f.test != "" && f.beside != "" {
			fmt.Fprintf(out, "--- beside it, the package printed\n%s", f.beside)
		}
		return
	}
	fmt.Fprintf(out, "--- first try\n%s--- second try, by itself\n%s", f.first, f.second.output.String())
}

// flakyText is what is said of the tests that passed in their second try.
func flakyText(failures []failure) string {
	var b strings.Builder
	for _, f := range failures {
		if f.passedThen {
			fmt.Fprintf(&b, "\nFLAKY %s %s: it failed, and passed by itself\n--- first try\n%s--- second try, by itself\n%s",
				short(f.pkg), f.test, f.first, f.second.output.String())
		}
	}
	if b.Len() > 0 {
		fmt.Fprintf(&b, "\nA flaky test passes when it runs alone. Contributors write it into %s (CONTRIBUTING.md).\n", flakyFile)
	}
	return b.String()
}

// skipLine is where testing prints why a test is skipped: the line before the last of its output.
var skipLine = regexp.MustCompile(`(?m)^\s*\S+\.go:\d+: (.*)\n--- SKIP`)

// printSkipped lists the reasons for which tests were skipped.
func printSkipped(out io.Writer, r *results) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reasons := map[string]int{}
	for _, p := range r.packages {
		for _, t := range p.tests {
			if t.outcome == skipped {
				why := "no reason given"
				if m := skipLine.FindStringSubmatch(t.output.String()); m != nil {
					why = m[1]
				}
				reasons[why]++
			}
		}
	}
	if len(reasons) > 0 {
		fmt.Fprintln(out, "\nskipped:")
	}
	for _, why := range slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		if d := reasons[b] - reasons[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	}) {
		fmt.Fprintf(out, "%6d  %s\n", reasons[why], why)
	}
}

func printSlowest(out io.Writer, r *results) {
	packages, tests := r.slowest(slowestShown)
	fmt.Fprintln(out, "\nslowest packages, and tests:")
	for _, all := range [][]timed{packages, tests} {
		for _, t := range all {
			fmt.Fprintf(out, "%6s  %s\n", t.took.Round(time.Second), t.name)
		}
	}
}
