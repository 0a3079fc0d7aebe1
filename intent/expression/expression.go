// Package expression judges by expressions in CEL (A20): Check tells whether one makes sense, Judge what it says. An expression is
// about an entities.CheckInput, whose fields it knows with their types. It asks nobody, changes nothing and knows no time, and
// what it may cost is bounded.
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

// The bounds of an expression. Cost is in CEL's own unit, roughly an access, a comparison, or ten characters that are read.
const (
	longest   = 8 << 10 // bytes
	deepest   = 50      // levels of parentheses and calls
	costLimit = 1_000_000
	looks     = 100 // steps of a loop between looks at whether time is over
)

// environment is what expressions know. Making it takes a millisecond.
var environment = sync.OnceValues(newEnvironment)

// newEnvironment knows the fields of a CheckInput. Expressions may be compiled in it by many at once: cel-go 0.33 makes its list of
// names when an expression first mentions one that it does not know, and scopes of other expressions read it then without a lock.
// So one such expression is compiled here, alone.
func newEnvironment() (*cel.Env, error) {
	input := entities.CheckInput{}
	options := []cel.EnvOption{
		ext.NativeTypes(reflect.TypeOf(input), ext.ParseStructTag("json")),
		cel.ParserRecursionLimit(deepest), cel.ParserExpressionSizeLimit(longest), cel.DefaultUTCTimeZone(true),
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

// known is a variable of expressions.
type known struct {
	kind  *cel.Type
	value any
}

// variables are the fields of the input, by their names in JSON.
func variables(in entities.CheckInput) map[string]known {
	of := func(t any) *cel.Type { return cel.ObjectType(reflect.TypeOf(t).String()) }
	return map[string]known{
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

// addons are as their JSON is: what they say has no type that is known here.
func addons(in entities.CheckInput) map[string]any {
	all := map[string]any{}
	for name, a := range in.Addons {
		all[name] = map[string]any{"type": a.Type, "value": a.Value}
	}
	return all
}

// Check says what is wrong with an expression, and where in it. It yields true or false.
func Check(text string) error {
	_, err := compiled(text)
	return err
}

// Judge says what an expression yields about the input. An error is that it yields nothing: a field of an object that is not there,
// say, or too much work.
func Judge(ctx context.Context, text string, in entities.CheckInput) (bool, error) {
	program, err := compiled(text)
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

func compiled(text string) (cel.Program, error) {
	env, err := environment()
	if err != nil {
		return nil, err
	}
	return compiledIn(env, text)
}

func compiledIn(env *cel.Env, text string) (cel.Program, error) {
	if len(text) > longest {
		return nil, fmt.Errorf("it has %d bytes; at most %d are read", len(text), longest)
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
		return nil, fmt.Errorf("it yields %s, and neither true nor false", ast.OutputType())
	}
	return env.Program(ast, cel.CostLimit(costLimit), cel.InterruptCheckFrequency(looks))
}
