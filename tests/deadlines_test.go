package tests

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shortestDeadline is how long a test waits at least for what must happen: a busy machine delays it, and a test that gives
// up earlier fails for no fault.
const shortestDeadline = time.Minute

// deadlineTested is the comment on a line whose deadline is short because it is what the test is about.
const deadlineTested = "// the deadline is what is tested"

// nothingDepends is the comment on a line that gives up early on something that no test depends on.
const nothingDepends = "// no test depends on it"

// No test gives up on what must happen before a minute is over.
func TestDeadlinesAreLong(t *testing.T) {
	t.Parallel()
	files := 0
	require.NoError(t, filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != repository && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata") {
			return fs.SkipDir
		}
		if !isTestCode(filepath.ToSlash(path)) {
			return nil
		}
		files++
		for _, found := range shortDeadlines(t, path, nil) {
			t.Error(found)
		}
		return nil
	}))
	require.Greater(t, files, 300)
}

// isTestCode is true for tests and for the packages that only tests import.
func isTestCode(path string) bool {
	return strings.HasSuffix(path, "_test.go") ||
		strings.HasSuffix(path, ".go") && (strings.Contains(path, "test/") || strings.Contains(path, "tests/internal/"))
}

// The check finds what it is for.
func TestShortDeadlinesAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source string
		want   []string
	}{
		"eventually": {`func f() { require.Eventually(t, g, 10*time.Second, time.Millisecond) }`, []string{"x.go:1: waits for 10s only"}},
		"wait for":   {`func f() { temporaltest.WaitFor(t, 59*time.Second, g) }`, []string{"x.go:1: waits for 59s only"}},
		"long":       {`func f() { require.Eventually(t, g, time.Minute, time.Millisecond); temporaltest.WaitFor(t, 2*time.Minute, g) }`, nil},
		"constant":   {"const soon = 20 * time.Second\nfunc f() { assert.Eventually(t, g, soon, 1) }", []string{"x.go:2: waits for 20s only"}},
		"select":     {"func f() {\n select {\n case <-done:\n case <-time.After(20 * time.Second):\n }\n}", []string{"x.go:4: waits for 20s only"}},
		"tick":       {"func f() {\n select {\n case <-done:\n case <-time.After(20 * time.Millisecond):\n }\n}", nil},
		"context":    {`func f() { ctx, stop := context.WithTimeout(t.Context(), 5*time.Second) }`, []string{"x.go:1: waits for 5s only"}},
		"on purpose": {`func f() { ctx, stop := context.WithTimeout(t.Context(), 5*time.Second) } ` + deadlineTested, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, shortDeadlines(t, "x.go", "package x; "+c.source))
		})
	}
}

// shortDeadlines names the places of a file that give up too early.
func shortDeadlines(t *testing.T, path string, source any) (found []string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	onPurpose := map[int]bool{}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, deadlineTested) || strings.HasPrefix(c.Text, nothingDepends) {
				onPurpose[set.Position(c.Pos()).Line] = true
			}
		}
	}
	constants := durations(file)
	report := func(e ast.Expr, least time.Duration) {
		d, known := durationOf(e, constants)
		line := set.Position(e.Pos()).Line
		if known && d >= least && d < shortestDeadline && !onPurpose[line] {
			found = append(found, fmt.Sprintf("%s:%d: waits for %s only; wait %s at least, or say on the line: %s", path, line, d, shortestDeadline, deadlineTested))
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CommClause:
			if call := received(n); call != nil && called(call) == "After" {
				report(call.Args[0], 2*time.Second) // what is shorter is a pause between two looks
			}
		case *ast.CallExpr:
			if at, ok := map[string]int{"Eventually": 2, "EventuallyWithT": 2, "WaitFor": 1, "WithTimeout": 1}[called(n)]; ok && at < len(n.Args) {
				report(n.Args[at], 0)
			}
		}
		return true
	})
	for i, text := range found {
		found[i] = strings.TrimPrefix(text, repository+"/")
		if source != nil { // the test compares the beginning
			found[i], _, _ = strings.Cut(found[i], ";")
		}
	}
	return found
}

// received is the call whose channel a case of a select receives from.
func received(c *ast.CommClause) *ast.CallExpr {
	statement, ok := c.Comm.(*ast.ExprStmt)
	if !ok {
		return nil
	}
	receive, ok := statement.X.(*ast.UnaryExpr)
	if !ok {
		return nil
	}
	call, _ := receive.X.(*ast.CallExpr)
	return call
}

func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	}
	return ""
}

// durations are the constants of a file that are durations.
func durations(file *ast.File) map[string]time.Duration {
	all := map[string]time.Duration{}
	for _, d := range file.Decls {
		general, ok := d.(*ast.GenDecl)
		if !ok || general.Tok != token.CONST {
			continue
		}
		for _, spec := range general.Specs {
			values := spec.(*ast.ValueSpec)
			for i, name := range values.Names {
				if i < len(values.Values) {
					if v, ok := durationOf(values.Values[i], all); ok {
						all[name.Name] = v
					}
				}
			}
		}
	}
	return all
}

var units = map[string]time.Duration{
	"Nanosecond": time.Nanosecond, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second,
	"Minute": time.Minute, "Hour": time.Hour,
}

// durationOf evaluates what a duration is usually written as.
func durationOf(e ast.Expr, constants map[string]time.Duration) (time.Duration, bool) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return durationOf(e.X, constants)
	case *ast.Ident:
		d, ok := constants[e.Name]
		return d, ok
	case *ast.SelectorExpr:
		x, ok := e.X.(*ast.Ident)
		unit, known := units[e.Sel.Name]
		return unit, ok && known && x.Name == "time"
	case *ast.BinaryExpr:
		if e.Op != token.MUL {
			return 0, false
		}
		factor, ok := e.X.(*ast.BasicLit)
		if !ok {
			return 0, false
		}
		n, err := strconv.Atoi(factor.Value)
		unit, known := durationOf(e.Y, constants)
		return time.Duration(n) * unit, known && err == nil
	}
	return 0, false
}

func TestDurationsAreEvaluated(t *testing.T) {
	t.Parallel()
	e, err := parser.ParseExpr("(3 * (20 * time.Second))")
	require.NoError(t, err)
	d, ok := durationOf(e, nil)
	require.True(t, ok)
	require.Equal(t, shortestDeadline, d)
}
