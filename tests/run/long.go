package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// asked are the functions by which a test tells its short form from its long one; rapid tries a fifth in the short one.
var asked = map[string]bool{"testing.Short": true, "stage.Long": true, "rapid.Check": true, "rapid.MakeCheck": true}

// longTests are the tests of a folder that have a long form: those that ask, or call a function of their package that does.
func longTests(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	calls := map[string]map[string]bool{} // by function: what it calls
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("look for long tests: %w", err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && f.Recv == nil {
				calls[f.Name.Name] = calledIn(f.Body)
			}
		}
	}
	var long []string
	for name := range calls {
		if strings.HasPrefix(name, "Test") && name != "TestMain" && reaches(calls, name, map[string]bool{}) {
			long = append(long, name)
		}
	}
	slices.Sort(long)
	return long, nil
}

func calledIn(body ast.Node) map[string]bool {
	called := map[string]bool{}
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch f := call.Fun.(type) {
		case *ast.Ident:
			called[f.Name] = true
		case *ast.SelectorExpr:
			if x, ok := f.X.(*ast.Ident); ok {
				called[x.Name+"."+f.Sel.Name] = true
			}
		}
		return true
	})
	return called
}

func reaches(calls map[string]map[string]bool, from string, seen map[string]bool) bool {
	if seen[from] {
		return false
	}
	seen[from] = true
	for callee := range calls[from] {
		if asked[callee] || reaches(calls, callee, seen) {
			return true
		}
	}
	return false
}
