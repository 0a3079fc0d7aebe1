package expression

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"cel.dev/cel-go/cel"
	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/ext"

	"github.com/converge-engine/converge/entities"
)

// This file evaluates the health of Kubernetes objects by expressions on their fields (H3), like Flux's healthCheckExprs.

// Verdict is the health of an object.
type Verdict string

// The verdicts.
const (
	HealthSuspended  Verdict = "suspended"
	HealthInProgress Verdict = "inProgress"
	HealthFailed     Verdict = "failed"
	HealthCurrent    Verdict = "current"
)

// healthOrder: the first expression that is true counts. If none is true, the object is in progress.
var healthOrder = [...]Verdict{HealthSuspended, HealthInProgress, HealthFailed, HealthCurrent}

// Health contains the compiled expressions of one kind. It is safe for concurrent use.
type Health struct {
	kind     string
	programs map[Verdict]cel.Program
	status   bool // an expression reads the object's status
}

// healthFields are the fields of an object that expressions can use.
var healthFields = [...]string{"metadata", "spec", "status", "data"}

var healthEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{
		cel.Variable("apiVersion", cel.StringType), cel.Variable("kind", cel.StringType), cel.Variable("object", cel.DynType),
		cel.ParserRecursionLimit(maxNesting), cel.ParserExpressionSizeLimit(maxLength), cel.DefaultUTCTimeZone(true),
		cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true), ext.Strings(),
	}
	for _, field := range healthFields {
		options = append(options, cel.Variable(field, cel.DynType))
	}
	env, err := cel.NewEnv(options...)
	if err == nil {
		env.Compile("unknown.name") // see newEnvironment
	}
	return env, err
})

// NewHealth compiles the expressions of a kind. The errors are by field, and contain the position.
func NewHealth(rule entities.HealthRule) (*Health, map[string]error) {
	h := &Health{kind: rule.Kind, programs: map[Verdict]cel.Program{}}
	faults := map[string]error{}
	for verdict, text := range map[Verdict]string{
		HealthSuspended: rule.Suspended, HealthInProgress: rule.InProgress, HealthFailed: rule.Failed, HealthCurrent: rule.Current,
	} {
		if text == "" {
			continue
		}
		if err := h.compile(verdict, text); err != nil {
			faults[string(verdict)] = err
		}
	}
	return h, faults
}

func (h *Health) compile(verdict Verdict, text string) error {
	env, err := healthEnvironment()
	if err != nil {
		return err
	}
	program, err := compileIn(env, text)
	if err != nil {
		return err
	}
	h.programs[verdict] = program
	parsed, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return err
	}
	celast.PreOrderVisit(celast.NavigateAST(parsed.NativeRep()), celast.NewExprVisitor(func(e celast.Expr) {
		h.status = h.status || e.Kind() == celast.IdentKind && e.AsIdent() == "status"
	}))
	return nil
}

// Of evaluates the health of an object. An error names the kind and the failing expression. If an expression reads the status, an object
// without a status is in progress, independent of the expressions.
func (h *Health) Of(ctx context.Context, object map[string]any) (Verdict, error) {
	if reported, _ := object["status"].(map[string]any); h.status && len(reported) == 0 {
		return HealthInProgress, nil
	}
	values := map[string]any{"object": object}
	maps.Copy(values, map[string]any{"apiVersion": object["apiVersion"], "kind": object["kind"]})
	for _, field := range healthFields {
		values[field] = object[field]
		if object[field] == nil {
			values[field] = map[string]any{}
		}
	}
	for _, verdict := range healthOrder {
		program := h.programs[verdict]
		if program == nil {
			continue
		}
		out, _, err := program.ContextEval(ctx, values)
		if err != nil {
			return "", fmt.Errorf("health of %s, expression %q: %w", h.kind, verdict, err)
		}
		if out == types.True {
			return verdict, nil
		}
	}
	return HealthInProgress, nil
}
