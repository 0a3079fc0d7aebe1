// Package expression evaluates expressions in CEL (A20): Check validates an expression, Evaluate evaluates it. The input of an expression
// is an entities.CheckInput, with typed fields. Evaluation has no side effects, makes no requests and does not depend on the time, and
// its cost is bounded.
package expression

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/ext"

	"github.com/converge-engine/converge/entities"
)

// The bounds of an expression. Cost is in CEL's own unit: roughly an access, a comparison, or ten characters that are read.
const (
	maxLength         = 8 << 10 // bytes
	maxNesting        = 50      // levels of parentheses and calls
	costLimit         = 1_000_000
	interruptInterval = 100 // loop steps between checks of the timeout
)

// environment is the CEL environment. Creating it takes a millisecond.
var environment = sync.OnceValues(newEnvironment)

// newEnvironment declares the fields of a CheckInput. Expressions may be compiled concurrently in it. cel-go 0.33 builds its list of
// names when an expression first refers to an unknown name, and scopes of other expressions then read the list without a lock. So
// newEnvironment compiles such an expression before concurrent use.
func newEnvironment() (*cel.Env, error) {
	input := entities.CheckInput{}
	options := []cel.EnvOption{
		ext.NativeTypes(reflect.TypeOf(input), ext.ParseStructTag("json")),
		cel.ParserRecursionLimit(maxNesting), cel.ParserExpressionSizeLimit(maxLength), cel.DefaultUTCTimeZone(true),
	}
	for name, v := range variables(input) {
		options = append(options, cel.Variable(name, v.kind))
	}
	env, err := cel.NewEnv(options...)
	if err == nil {
		env.Compile("unknown.name")
	}
	return env, err
}

// variable is a variable of expressions.
type variable struct {
	kind  *cel.Type
	value any
}

// variables returns the fields of the input, by their JSON names.
func variables(in entities.CheckInput) map[string]variable {
	of := func(t any) *cel.Type { return cel.ObjectType(reflect.TypeOf(t).String()) }
	return map[string]variable{
		"schema":      {types.StringType, in.Schema},
		"application": {types.StringType, in.Application},
		"service":     {types.StringType, in.Service},
		"serviceId":   {types.StringType, in.ServiceID},
		"channel":     {types.StringType, in.Channel},
		"release":     {of(in.Release), in.Release},
		"phases":      {cel.MapType(types.StringType, types.StringType), in.Phases},
		"channels":    {cel.ListType(of(entities.CheckChannel{})), in.Channels},
		"objects":     {cel.ListType(of(entities.Object{})), in.Objects},
		"omitted":     {types.IntType, in.Omitted},
		"addons":      {cel.MapType(types.StringType, types.DynType), addons(in)},

		"omittedAddons": {types.IntType, in.OmittedAddons},
	}
}

// addons returns the JSON form of addons, because their types are unknown here.
func addons(in entities.CheckInput) map[string]any {
	all := map[string]any{}
	for name, a := range in.Addons {
		all[name] = map[string]any{"type": a.Type, "value": a.Value}
	}
	return all
}

// Check returns the error of an expression and its position. The result of a valid expression is a boolean.
func Check(text string) error {
	_, err := compileExpression(text)
	return err
}

// Evaluate evaluates an expression on the input. It returns an error if there is no result, for example because an object has no such
// field, or the cost exceeds the bound.
func Evaluate(ctx context.Context, text string, in entities.CheckInput) (bool, error) {
	program, err := compileExpression(text)
	if err != nil {
		return false, err
	}
	values := map[string]any{}
	for name, v := range variables(in) {
		values[name] = v.value
	}
	out, _, err := program.ContextEval(ctx, values)
	if err != nil {
		return false, fmt.Errorf("the expression: %w", err)
	}
	return out == types.True, nil
}

func compileExpression(text string) (cel.Program, error) {
	env, err := environment()
	if err != nil {
		return nil, err
	}
	return compileIn(env, text)
}

func compileIn(env *cel.Env, text string) (cel.Program, error) {
	if len(text) > maxLength {
		return nil, fmt.Errorf("it has %d bytes, and the limit is %d", len(text), maxLength)
	}
	ast, issues := env.Compile(text)
	if problems := issues.Errors(); len(problems) > 0 {
		first := problems[0]
		where := fmt.Sprintf("column %d", first.Location.Column()+1)
		if strings.Contains(strings.TrimSpace(text), "\n") {
			where = fmt.Sprintf("line %d, %s", first.Location.Line(), where)
		}
		return nil, fmt.Errorf("%s: %s", where, strings.Join(strings.Fields(first.Message), " "))
	}
	if ast.OutputType() != types.BoolType {
		return nil, fmt.Errorf("it yields %s, not true or false", ast.OutputType())
	}
	return env.Program(ast, cel.CostLimit(costLimit), cel.InterruptCheckFrequency(interruptInterval))
}
