package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// processStarters are the functions of the standard library that start a process, by import path.
var processStarters = map[string][]string{
	"os/exec": {"Command", "CommandContext"},
	"os":      {"StartProcess"},
	"syscall": {"Exec", "ForkExec", "StartProcess"},
}

// Every function of the product that starts a process, and every library in a program that could, has a row in
// docs/threat-model.md (G4).
func TestEveryProcessHasARow_G4(t *testing.T) {
	t.Parallel()
	require.Greater(t, rowsWithTests(t, "threat-model.md", "| process |"), 5)
	data, err := os.ReadFile(filepath.Join(repository, "docs", "threat-model.md"))
	require.NoError(t, err)
	_, rows, found := strings.Cut(string(data), "\n## Processes\n")
	require.True(t, found)

	all, sites := listPackages(t), 0
	libraries := map[string]bool{}
	for _, p := range all {
		if !in(p.ImportPath, ours("cmd")) || p.Name != "main" {
			continue
		}
		for _, path := range append(slices.Clone(p.Deps), p.ImportPath) {
			dep := all[path]
			switch {
			case dep.Standard:
			case !strings.HasPrefix(path, ourModule):
				libraries[path] = slices.Contains(dep.Imports, "os/exec")
			}
		}
	}
	for _, p := range all {
		if !strings.HasPrefix(p.ImportPath, ourModule) || in(p.ImportPath, ours("tests")) {
			continue
		}
		for _, name := range p.GoFiles {
			file := filepath.Join(p.Dir, name)
			relative, err := filepath.Rel(absoluteRepository(t), file)
			require.NoError(t, err)
			for _, function := range startersIn(t, file) {
				sites++
				row := "| `" + filepath.ToSlash(relative) + "` `" + function + "` |"
				require.True(t, strings.Contains(rows, row), "it starts a process, and docs/threat-model.md has no row with %s", row)
			}
		}
	}
	require.Equal(t, strings.Count(rows, ".go` `"), sites, "a row of a function that starts no process any more")
	listed := 0
	for path, starts := range libraries {
		if starts {
			listed++
			require.True(t, strings.Contains(rows, "`"+path+"`"), "%s is part of a program and imports os/exec, and docs/threat-model.md has no row of it", path)
		}
	}
	require.Greater(t, listed, 5)
}

func absoluteRepository(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(repository)
	require.NoError(t, err)
	return path
}

// startersIn lists the functions of a file that start a process, once each.
func startersIn(t *testing.T, path string) (functions []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	imported := map[string]string{} // name in this file → path
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		name := filepath.Base(path)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imported[name] = path
	}
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		starts := false
		ast.Inspect(declaration, func(node ast.Node) bool {
			if literal, ok := node.(*ast.CompositeLit); ok {
				starts = starts || selects(literal.Type, imported, "os/exec", "Cmd")
			}
			for path, names := range processStarters {
				starts = starts || selects(node, imported, path, names...)
			}
			return true
		})
		if starts {
			functions = append(functions, function.Name.Name)
		}
	}
	return functions
}

// selects reports whether a node is one of these names of a package.
func selects(node ast.Node, imported map[string]string, path string, names ...string) bool {
	selector, ok := node.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of, ok := selector.X.(*ast.Ident)
	return ok && imported[of.Name] == path && slices.Contains(names, selector.Sel.Name)
}
