package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// module is a module of its own in a directory that go test can run: files by their path.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module github.com/converge-engine/converge\n\ngo 1.26\n"
	for path, text := range files {
		path = filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

// once is a test that fails the first time, and passes from then on.
const once = `
func TestOnce(t *testing.T) {
	if _, err := os.Stat("been-here"); err == nil {
		t.Log("now it is there")
		return
	}
	if err := os.WriteFile("been-here", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("part", func(t *testing.T) { t.Error("it was not there") })
}
`

func onceIn(pkg string) string {
	return "package " + pkg + "\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n" + once
}

type outcomes struct {
	ok             bool
	out, kept, dir string
}

func runSuite(t *testing.T, files map[string]string, flaky string, args ...string) outcomes {
	t.Helper()
	dir := module(t, files)
	names := filepath.Join(t.TempDir(), "flaky.txt")
	require.NoError(t, os.WriteFile(names, []byte(flaky), 0o600))
	kept := filepath.Join(t.TempDir(), "deeper", "report.txt")
	var out bytes.Buffer
	ok, err := suite{flaky: names, report: kept, out: &out}.run(t.Context(), append([]string{"-C", dir}, args...))
	require.NoError(t, err)
	text, err := os.ReadFile(kept)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return outcomes{ok, out.String(), string(text), dir}
}

func TestTestThatFailsOnceIsFlaky(t *testing.T) {
	t.Parallel()
	r := runSuite(t, map[string]string{"tests/seen/x_test.go": onceIn("seen")}, "")
	require.True(t, r.ok, r.out)
	for _, want := range []string{
		"FLAKY tests/seen TestOnce: it failed, and passed by itself", "it was not there", "now it is there",
		"--- first try", "--- second try, by itself", "0 failed, 1 flaky",
		"A flaky test passes when it runs alone. Contributors write it into tests/flaky.txt (CONTRIBUTING.md).",
	} {
		require.Contains(t, r.out, want)
	}
	require.Contains(t, r.kept, "FLAKY tests/seen TestOnce")
	require.Contains(t, r.kept, "it was not there")
	require.Contains(t, r.kept, "now it is there")
}

func TestTestThatFailsTwiceFailsTheRun(t *testing.T) {
	t.Parallel()
	r := runSuite(t, map[string]string{"tests/seen/x_test.go": `package seen

import "testing"

func TestBad(t *testing.T)  { t.Error("it is broken") }
func TestGood(t *testing.T) {}
`}, "")
	require.False(t, r.ok)
	require.Equal(t, 2, strings.Count(r.out, "it is broken"), r.out)
	require.Contains(t, r.out, "1 tests passed, 1 failed, 0 flaky, 0 skipped")
	require.Empty(t, r.kept)
}

// A test that is flaky is said to be so beside one that is broken.
func TestFlakyTestBesideABrokenOne(t *testing.T) {
	t.Parallel()
	r := runSuite(t, map[string]string{"tests/seen/x_test.go": onceIn("seen") + "\nfunc TestBad(t *testing.T) { t.Error(\"it is broken\") }\n"}, "")
	require.False(t, r.ok)
	require.Contains(t, r.out, "FAIL tests/seen TestBad")
	require.Contains(t, r.out, "FLAKY tests/seen TestOnce")
	require.Contains(t, r.out, "0 tests passed, 1 failed, 1 flaky, 0 skipped")
}

// What comes and goes is a fault there, whatever it does the second time.
func TestNoSecondTry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ path, text, flaky, why string }{
		"gates":         {"tests/gates/x_test.go", onceIn("gates"), "", "a gate that lets something pass once is open"},
		"security":      {"tests/security/x_test.go", onceIn("security"), "", "a gate that lets something pass once is open"},
		"operators":     {"tests/operators/x_test.go", onceIn("operators"), "", "what operators do to a workflow happens once"},
		"chaos":         {"tests/chaos/record/x_test.go", onceIn("record"), "", "chaos finds what comes and goes"},
		"core":          {"entities/loop/x_test.go", onceIn("loop"), "", "the core depends on no clock"},
		"replay":        {"tests/x_test.go", strings.ReplaceAll(onceIn("tests"), "TestOnce", "TestReplayOfOne"), "", "a replay depends on no clock"},
		"known":         {"tests/seen/x_test.go", onceIn("seen"), "tests/seen TestOnce it waits too short", "it waits too short"},
		"race":          {"tests/seen/x_test.go", strings.ReplaceAll(onceIn("seen"), "it was not there", "WARNING: DATA RACE"), "", "reported a race"},
		"property":      {"tests/seen/x_test.go", strings.ReplaceAll(onceIn("seen"), "it was not there", "[rapid] failed after 3 tests"), "", "counterexample"},
		"panic":         {"tests/seen/x_test.go", strings.ReplaceAll(onceIn("seen"), `t.Error("it was not there")`, `panic("it was not there")`), "", "it panicked"},
		"not a test":    {"tests/seen/x_test.go", "package seen\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestMain(m *testing.M) { m.Run(); os.Exit(3) }\nfunc TestFine(t *testing.T) {}\n", "", "outside of its tests"},
		"not a program": {"tests/seen/x_test.go", "package seen\n\nvar x int = \"no number\"\n", "", "outside of its tests"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runSuite(t, map[string]string{c.path: c.text}, c.flaky)
			require.False(t, r.ok, r.out)
			require.Contains(t, r.out, "no second try: ")
			require.Contains(t, r.out, c.why)
			require.NotContains(t, r.out, "FLAKY")
			require.NotContains(t, r.out, "second try, by itself")
			if name == "not a program" {
				require.Contains(t, r.out, `cannot use "no number"`, "what the compiler says is shown")
			}
		})
	}
}

// A test beside that has a name like those of replays is tried again.
func TestWordsOfRulesAreOfTheirPackage(t *testing.T) {
	t.Parallel()
	require.Empty(t, whyNoSecondTry(failure{pkg: "github.com/converge-engine/converge/tests/seen", test: "TestHistory"}, nil))
	require.Empty(t, whyNoSecondTry(failure{pkg: "github.com/converge-engine/converge/runtimes/custom", test: "TestReplay"}, nil))
	require.NotEmpty(t, whyNoSecondTry(failure{pkg: "github.com/converge-engine/converge/tests", test: "TestRecordedHistoriesReplay"}, nil))
}

func TestManyFailuresGetNoSecondTry(t *testing.T) {
	t.Parallel()
	many := make([]failure, mostSecondTries+1)
	for i := range many {
		many[i] = failure{pkg: "p", test: "TestX"}
	}
	decideSecondTries(many, nil)
	require.Contains(t, many[0].noSecondTry, "11 tests failed")
	few := many[:mostSecondTries]
	for i := range few {
		few[i].noSecondTry = ""
	}
	decideSecondTries(few, nil)
	require.Empty(t, few[0].noSecondTry)
}

// The long form runs what asks testing.Short, itself or by a function, and without -short.
func TestLongForm(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"tests/seen/x_test.go": `package seen

import "testing"

func times() int {
	if testing.Short() {
		return 1
	}
	return 100
}

func TestLong(t *testing.T)  { t.Log("times", times()) }
func TestOther(t *testing.T) { t.Log("other") }
`,
		"tests/gates/x_test.go": "package gates\n\nimport \"testing\"\n\nfunc TestOther(t *testing.T) {}\n",
	}
	r := runSuite(t, files, "", "-long", "-v")
	require.True(t, r.ok, r.out)
	require.Contains(t, r.out, "1 tests passed")
	require.Contains(t, r.out, "1 packages have tests")
	r = runSuite(t, files, "")
	require.True(t, r.ok, r.out)
	require.Contains(t, r.out, "3 tests passed")
}

func TestReasonsOfSkipsAreShown(t *testing.T) {
	t.Parallel()
	r := runSuite(t, map[string]string{"tests/seen/x_test.go": `package seen

import "testing"

func TestA(t *testing.T) { t.Skip("no cluster: run make kube-build") }
func TestB(t *testing.T) { t.Skip("no cluster: run make kube-build") }
func TestC(t *testing.T) { t.SkipNow() }
`}, "")
	require.True(t, r.ok)
	require.Contains(t, r.out, "     2  no cluster: run make kube-build\n     1  no reason given\n")
}

func TestMistakesOfTheCommandLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-C"}, "-C: expected the directory of a module"},
		{[]string{"-run", "TestX"}, "-run: write it as -run=VALUE"},
		{[]string{"--help"}, "usage: go run ./tests/run"},
	} {
		_, err := parse(c.args)
		require.ErrorContains(t, err, c.want)
	}
}

// The list of flaky tests is short, each line has a cause, and each names a test that there is.
func TestFlakyTests(t *testing.T) {
	t.Parallel()
	known, err := readFlaky(filepath.Join("..", "..", flakyFile))
	require.NoError(t, err)
	for name := range known {
		folder, test, _ := strings.Cut(name, " ")
		files, err := filepath.Glob(filepath.Join("..", "..", folder, "*_test.go"))
		require.NoError(t, err)
		found := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			found = found || strings.Contains(string(text), "\nfunc "+test+"(")
		}
		require.True(t, found, "%s names %s, which is not there", flakyFile, name)
	}
}

func TestFlakyFileIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"no cause": {"tests/seen TestX\n", `flaky.txt:1: "tests/seen TestX"; expected PACKAGE TEST and the suspected cause`},
		"too many": {strings.Repeat("tests/seen TestA b\n", 1) + "p T1 c\np T2 c\np T3 c\np T4 c\np T5 c\n", "has 6 names; at most 5 are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "flaky.txt")
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			_, err := readFlaky(path)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// A program that is killed in a test has failed in it, and says so.
func TestTestThatDoesNotEndHasFailed(t *testing.T) {
	t.Parallel()
	r := runSuite(t, map[string]string{"tests/seen/x_test.go": `package seen

import (
	"os"
	"testing"
)

func TestGone(t *testing.T) { os.Exit(1) }
`}, "")
	require.False(t, r.ok)
	require.Contains(t, r.out, "FAIL tests/seen TestGone")
}

// A run that was cut off is no result, however its first failures go in a second try.
func TestPackagesWithoutAnEndAreMissing(t *testing.T) {
	t.Parallel()
	r := newResults()
	r.add(event{Action: "fail", Package: "a", Test: "TestX"})
	r.add(event{Action: "fail", Package: "a"})
	r.add(event{Action: "run", Package: "b", Test: "TestY"})
	require.Equal(t, []string{"b", "c"}, r.missing([]target{{pkg: "a"}, {pkg: "b"}, {pkg: "c"}}))
}

func TestPlaceInTheRun(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := newProgress(&out, 12)
	p.packageDone("github.com/converge-engine/converge/tests/gates", &packageResult{passed: true, cached: true})
	require.Contains(t, out.String(), "[ 1/12  0:00]  ok    tests/gates")
	require.Contains(t, out.String(), "(cached)")
}
