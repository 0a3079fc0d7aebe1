package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// A second try is for tests that wait for real programs, and that a busy machine can delay. Where a failure that comes
// and goes is what a test looks for, there is none.

// mostSecondTries is how many failed tests of a run may be tried again.
const mostSecondTries = 10

// onceOnly lists what gets no second try. Packages are folders of this module, with all below them; tests is a pattern,
// and empty means all.
var onceOnly = []struct{ folder, tests, why string }{
	{"tests/security", "", "a gate that lets something pass once is open"},
	{"tests/gates", "", "a gate that lets something pass once is open"},
	{"tests/operators", "", "what operators do to a workflow happens once"},
	{"tests/chaos", "", "chaos finds what comes and goes"},
	{"tests/internal/histories", "", "a replay depends on no clock"},
	{"tests", `Replay|Histor`, "a replay depends on no clock"},
	{"workflows", `Replay`, "a replay depends on no clock"},
	{"entities", "", "the core depends on no clock"},
	{"intent", "", "compiling depends on no clock"},
}

// neverAgain are words in the output of a failure that no second try takes back.
var neverAgain = []struct{ words, why string }{
	{"WARNING: DATA RACE", "the race detector reported a race"},
	{"panic: ", "it panicked"},
	{"fatal error: ", "its program crashed"},
	{"[rapid] failed", "a property has a counterexample"},
}

// decideSecondTries says of each failure whether it is tried again.
func decideSecondTries(failures []failure, known map[string]string) {
	for i := range failures {
		f := &failures[i]
		f.noSecondTry = whyNoSecondTry(*f, known)
		if f.noSecondTry == "" && len(failures) > mostSecondTries {
			f.noSecondTry = fmt.Sprintf("%d tests failed, more than %d are no coincidence", len(failures), mostSecondTries)
		}
	}
}

// whyNoSecondTry says why a failure counts at once; empty: it is tried again.
func whyNoSecondTry(f failure, known map[string]string) string {
	if f.test == "" {
		return "it failed outside of its tests"
	}
	if cause, ok := known[short(f.pkg)+" "+f.test]; ok {
		return fmt.Sprintf("it is in %s: %s", flakyFile, cause)
	}
	for _, rule := range onceOnly {
		folder := short(f.pkg)
		if folder != rule.folder && (rule.tests != "" || !strings.HasPrefix(folder, rule.folder+"/")) {
			continue
		}
		if rule.tests == "" || regexp.MustCompile(rule.tests).MatchString(f.test) {
			return rule.why
		}
	}
	for _, rule := range neverAgain {
		if strings.Contains(f.first+f.beside, rule.words) {
			return rule.why
		}
	}
	return ""
}

// mostFlaky is how many names the file may have: whoever finds one more mends one first.
const mostFlaky = 5

// readFlaky reads which tests fail now and then, and of which cause: a line is `PACKAGE TEST CAUSE`, such as
// `tests/seen TestMetrics the scrape may come before the first poll`. Lines that begin with # are comments.
func readFlaky(path string) (map[string]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	known := map[string]string{}
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if len(words) < 3 {
			return nil, fmt.Errorf("%s:%d: %q; expected PACKAGE TEST and the suspected cause", path, n, line)
		}
		known[words[0]+" "+words[1]] = strings.Join(words[2:], " ")
	}
	if len(known) > mostFlaky {
		return nil, fmt.Errorf("%s has %d names; at most %d are allowed: mend one of them first", path, len(known), mostFlaky)
	}
	return known, lines.Err()
}
