package tests

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// namesKinds are the functions of the shell, the core and the compiler that may tell kinds of runtimes apart: what only one
// kind has is said here, and all else goes by runtimes.Runtime. A new one belongs to a runtime, or into this list with a reason.
var namesKinds = []string{
	// What a kind is made of, by its digest and its bundle.
	"entities/payload.go Bundled", "entities/payload.go SamePlace", "entities/payload.go Fill",
	"intent/incarnation/incarnation.go bundle", "intent/incarnation/diff.go payloadPaths", "intent/incarnation/render.go payload", "intent/incarnation/render.go fixedInChart",
	// Commands need not be observable or removable, and start in a directory.
	"intent/incarnation/specs.go runtimeSpec", "intent/incarnation/specs.go CanRemove",
	"activities/activities.go observable", "activities/roots.go needsDir",
	"client/preview/items.go flat",
}

// kindsAtHome are where each kind is written down by name: what people write, how it is checked, and what an import writes for them.
var kindsAtHome = []string{"intent/config/", "intent/compile/", "intent/sources/", "client/importer/"}

func TestKindsOfRuntimesAreNamedInFewPlaces(t *testing.T) {
	var found []string
	for _, folder := range []string{"entities", "activities", "workflows", "client", "intent"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name := strings.TrimPrefix(filepath.ToSlash(path), "../")
			if slices.ContainsFunc(kindsAtHome, func(home string) bool { return strings.HasPrefix(name, home) }) {
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, declared := range file.Decls {
				if f, ok := declared.(*ast.FuncDecl); ok && namesKind(f) {
					found = append(found, fmt.Sprintf("%s %s", name, f.Name.Name))
				}
			}
			return nil
		}))
	}
	require.ElementsMatch(t, namesKinds, found)
}

// namesKind reports whether a function looks at what only one kind of runtime has, or at the kind itself.
func namesKind(f *ast.FuncDecl) (names bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			switch s.Sel.Name {
			case "Kubernetes", "ECS", "Custom", "RuntimeKubernetes", "RuntimeECS", "RuntimeCustom":
				names = true
			}
		}
		return !names
	})
	return names
}
