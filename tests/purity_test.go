package tests

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Decisions are functions of values: the same code runs in a workflow, in a property test and in a simulation that
// plays a week in milliseconds. So nothing in entities may ask the world. What its packages reach is checked in
// layers_test.go; here it is what their files say, since the standard library holds the world too.

// impurePackages are refused with everything below them, but for purePackages.
var (
	impurePackages = []string{
		"crypto/rand", "database", "embed", "io/fs", "io/ioutil", "log", "math/rand", "net", "os", "path/filepath", "plugin", "runtime", "sync", "syscall", "testing", "unsafe",
	}
	purePackages = []string{"net/netip", "net/url"}
)

// impureFunctions are refused from packages that are otherwise allowed.
var impureFunctions = map[string][]string{
	"context": {"AfterFunc", "WithDeadline", "WithDeadlineCause", "WithTimeout", "WithTimeoutCause"},
	"fmt":     {"Fscan", "Fscanf", "Fscanln", "Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
	"time":    {"After", "AfterFunc", "LoadLocation", "Local", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},
}

func TestEntitiesArePure(t *testing.T) {
	t.Parallel()
	all, files := listPackages(t), 0
	for _, p := range all {
		if !in(p.ImportPath, ours("entities")) {
			continue
		}
		for _, name := range p.GoFiles {
			files++
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, impurity := range impurities(set, file) {
				t.Error(impurity)
			}
		}
	}
	require.NotZero(t, files)
}

// impurities returns a line for each thing in the file that makes its result depend on more than its arguments.
func impurities(set *token.FileSet, file *ast.File) []string {
	var found []string
	report := func(node ast.Node, what string) {
		position := set.Position(node.Pos())
		found = append(found, fmt.Sprintf("%s:%d: %s", position.Filename, position.Line, what))
	}
	imported := map[string]string{} // name in this file → path
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		if reason := refuseImport(spec, path); reason != "" {
			report(spec, reason)
		}
		name := filepath.Base(path)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imported[name] = path
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.GoStmt:
			report(n, "starts a goroutine")
		case *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
			report(n, "uses a channel")
		case *ast.SelectorExpr:
			if name, ok := n.X.(*ast.Ident); ok && slices.Contains(impureFunctions[imported[name.Name]], n.Sel.Name) {
				report(n, "uses "+imported[name.Name]+"."+n.Sel.Name)
			}
		}
		return true
	})
	return found
}

func refuseImport(spec *ast.ImportSpec, path string) string {
	below := func(root string) bool { return in(path, root) }
	switch {
	case slices.ContainsFunc(impurePackages, below) && !slices.ContainsFunc(purePackages, below):
		return "imports " + path
	case spec.Name != nil && spec.Name.Name == "." && impureFunctions[path] != nil:
		return "imports " + path + " without a name, which hides what it calls"
	case path == "C":
		return "imports C"
	}
	return ""
}

// TestPurityRulesCanFail breaks each rule in a small made-up file.
func TestPurityRulesCanFail(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, source string
		want         []string
	}{
		{"as it should be", `import ("fmt"; "net/url"; "time"; "strings")
			func f(now time.Time) string { return fmt.Sprint(now.Add(time.Hour), strings.ToUpper("x"), url.PathEscape("x")) }`, nil},
		{"a variable that is called like a package", `type clock struct{}; func (clock) Now() int { return 0 }; func f(time clock) int { return time.Now() }`, nil},
		{"clock", `import "time"; var now = time.Now()`, []string{"x.go:1: uses time.Now"}},
		{"clock under another name", `import clock "time"; func f(t clock.Time) clock.Duration { return clock.Since(t) }`, []string{"x.go:1: uses time.Since"}},
		{"clock without a name", `import . "time"; var now = Now()`, []string{"x.go:1: imports time without a name, which hides what it calls"}},
		{"clock as a value", `import "time"; var clock = time.Now`, []string{"x.go:1: uses time.Now"}},
		{"waiting", `import "time"; func f() { time.Sleep(1); <-time.After(1) }`, []string{"x.go:1: uses time.Sleep", "x.go:1: uses time.After"}},
		{"deadline", `import "context"; var _, _ = context.WithTimeout(nil, 1)`, []string{"x.go:1: uses context.WithTimeout"}},
		{"the zone of this machine", `import "time"; var zone = time.Local`, []string{"x.go:1: uses time.Local"}},
		{"goroutine", `func f() { go f() }`, []string{"x.go:1: starts a goroutine"}},
		{"channel", `func f(c chan int) { c <- 1; select {} }`, []string{"x.go:1: uses a channel", "x.go:1: uses a channel", "x.go:1: uses a channel"}},
		{"randomness", `import ("math/rand"; "math/rand/v2"; "crypto/rand")`, []string{"x.go:1: imports math/rand", "x.go:1: imports math/rand/v2", "x.go:1: imports crypto/rand"}},
		{"network", `import ("net"; "net/http")`, []string{"x.go:1: imports net", "x.go:1: imports net/http"}},
		{"logging", `import ("log"; "log/slog")`, []string{"x.go:1: imports log", "x.go:1: imports log/slog"}},
		{"printing", `import "fmt"; func f() { fmt.Println() }`, []string{"x.go:1: uses fmt.Println"}},
		{"operating system", `import ("os"; "os/exec"; "syscall")`, []string{"x.go:1: imports os", "x.go:1: imports os/exec", "x.go:1: imports syscall"}},
		{"locks", `import "sync/atomic"`, []string{"x.go:1: imports sync/atomic"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, "x.go", "package x; "+row.source, parser.SkipObjectResolution)
			require.NoError(t, err)
			require.Equal(t, row.want, impurities(set, file))
		})
	}
}
