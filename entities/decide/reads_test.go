package decide

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/state"
)

const statePath = "github.com/converge-engine/converge/entities/state"

// readOnlyMethods lists the methods of State that a decision may call: they write nothing. (Bypass returns an effect, which another package
// carries out.)
var readOnlyMethods = namesOf(
	(*state.State).Barred, (*state.State).TargetRuntime, (*state.State).AsideIn, (*state.State).TargetRelease, (*state.State).HasValuesOnTop,
	(*state.State).RollbackTargetBelow, (*state.State).Bypass, (*state.State).CheckBypass, (*state.State).Declared, (*state.State).Evaluation,
	(*state.State).FindOpen, (*state.State).RollbackOf, (*state.State).InstancesIn, (*state.State).IsRemoved, (*state.State).HeldByFloor,
	(*state.State).WithKnownResult, (*state.State).HasPlacementsToRemove, (*state.State).MergedVersion, (*state.State).HasUnfinishedAspect, (*state.State).PauseIn,
	(*state.State).PauseOf, (*state.State).FloorBypassCommand, (*state.State).PauseOn, (*state.State).PinOf, (*state.State).ReleaseByID,
	(*state.State).CanRemove, (*state.State).WillRemove, (*state.State).RemovesPlacement, (*state.State).TakedownOf, (*state.State).HasWiderPause,
	(*state.State).IsReportOnly, (*state.State).DrainOf, (*state.State).MissedTarget, (*state.State).PauseBesidesDrain, (*state.State).RemainingInstances,
	(*state.State).ResumeCommand, (*state.State).RollbackTarget, (*state.State).Runtime, (*state.State).Strategy, (*state.State).RuntimeNamed,
	(*state.State).FormatApprovers, (*state.State).ApprovalText, (*state.State).EligibleApprovers, (*state.State).EligibleForApplies, (*state.State).Title,
)

// namesOf are the names of methods, given as method expressions.
func namesOf(methods ...any) (names []string) {
	for _, m := range methods {
		name := runtime.FuncForPC(reflect.ValueOf(m).Pointer()).Name()
		names = append(names, name[strings.LastIndex(name, ".")+1:])
	}
	return names
}

// This package writes nothing into a state: it assigns no field of its types, changes none of their maps or lists, and calls only reading
// methods of State.
func TestDecideWritesNothing(t *testing.T) {
	fset := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		require.NoError(t, err)
		files = append(files, f)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Selections: map[*ast.SelectorExpr]*types.Selection{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	_, err = conf.Check("decide", fset, files, info)
	require.NoError(t, err)
	called := map[string]bool{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			for _, target := range writtenExprs(n) {
				if why := stateField(info, target); why != "" {
					t.Errorf("%s writes %s", fset.Position(n.Pos()), why)
				}
			}
			if name := stateMethod(info, n); name != "" {
				called[name] = true
				if !slices.Contains(readOnlyMethods, name) {
					t.Errorf("%s calls State.%s, which is not listed as read-only", fset.Position(n.Pos()), name)
				}
			}
			return true
		})
	}
	for _, name := range readOnlyMethods {
		require.True(t, called[name], "%s is listed but not called", name)
	}
}

// writtenExprs are the expressions that a node writes to.
func writtenExprs(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			return nil
		}
		return n.Lhs
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear") {
			return n.Args[:1]
		}
	}
	return nil
}

// decisionTypes are the types of a decision: values of its own, declared in the package of the state that applies them.
var decisionTypes = typesOf(
	state.Change{}, state.Move{}, state.Work{}, state.ApplyOp{}, state.QueryOp{}, state.RenderOp{}, state.PreflightOp{}, state.ExtensionOp{}, state.LeaseOp{}, state.RemoveOp{}, state.NeededChecks{},
)

// typesOf are the names of the types of values.
func typesOf(values ...any) (names []string) {
	for _, v := range values {
		names = append(names, reflect.TypeOf(v).Name())
	}
	return names
}

// stateField is the field of a type of the state that an expression is in, or "".
func stateField(info *types.Info, e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.IndexExpr:
			e = x.X
			continue
		case *ast.StarExpr:
			e = x.X
			continue
		case *ast.ParenExpr:
			e = x.X
			continue
		case *ast.SelectorExpr:
			if s := info.Selections[x]; s != nil {
				if name := owner(s); name != "" && !slices.Contains(decisionTypes, name) {
					return name + "." + x.Sel.Name
				}
			}
			e = x.X
			continue
		}
		return ""
	}
}

// owner is the type of the state that a field belongs to, including embedded ones, or "".
func owner(s *types.Selection) string {
	t := s.Recv()
	for _, n := range s.Index() {
		if p, ok := t.Underlying().(*types.Pointer); ok {
			t = p.Elem()
		}
		named, _ := t.(*types.Named)
		fields, ok := t.Underlying().(*types.Struct)
		if !ok {
			return ""
		}
		if named != nil && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == statePath {
			return named.Obj().Name()
		}
		if n >= fields.NumFields() {
			return ""
		}
		t = fields.Field(n).Type()
	}
	return ""
}

// stateMethod is the method of *state.State that a node calls, or "".
func stateMethod(info *types.Info, n ast.Node) string {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return ""
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	s := info.Selections[sel]
	if s == nil || s.Kind() != types.MethodVal {
		return ""
	}
	f, _ := s.Obj().(*types.Func)
	if f == nil || f.Pkg() == nil || f.Pkg().Path() != statePath || !strings.HasSuffix(f.Type().(*types.Signature).Recv().Type().String(), ".State") {
		return ""
	}
	return f.Name()
}
