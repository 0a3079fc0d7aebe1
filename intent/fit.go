package intent

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// fitLiteral turns a value as it comes from YAML or JSON into one of a parameter's type: string,
// int64, float64, bool or entities.Value. Nothing is converted but numbers to numbers that are
// equal.
func fitLiteral(v any, kind entities.ParamType) (any, *Fault) {
	plain := plainValue(v)
	if fit, ok := fits(plain, kind); ok {
		return fit, nil
	}
	if f, ok := plain.(float64); ok && kind == entities.ParamInt && math.Abs(f) > maxInt {
		return nil, &Fault{Code: "bad-value", Message: "this is too large a number", Expected: "at most 2^53 - 1"}
	}
	return nil, &Fault{Code: "wrong-type", Message: "this is " + describe(plain), Expected: describeKind(kind, plain)}
}

// plainValue brings the forms in which JSON and Go callers give a value to one.
func plainValue(v any) any {
	switch x := v.(type) {
	case int:
		return int64(x)
	case map[string]any:
		if name, ok := x["workerEnv"].(string); ok && len(x) == 1 && WorkerEnvName(name).Check() == nil {
			return entities.Value{WorkerEnv: name}
		}
	}
	return v
}

func fits(v any, kind entities.ParamType) (any, bool) {
	switch x := v.(type) {
	case string:
		return x, kind == entities.ParamString && !strings.ContainsRune(x, 0)
	case bool:
		return x, kind == entities.ParamBool
	case entities.Value:
		return x, kind == entities.ParamSecret
	case int64:
		if kind == entities.ParamFloat {
			return float64(x), true
		}
		return x, kind == entities.ParamInt
	case float64:
		if kind == entities.ParamInt && x == math.Trunc(x) && math.Abs(x) <= maxInt {
			return int64(x), true
		}
		return x, kind == entities.ParamFloat
	}
	return nil, false
}

// fitText is fitLiteral that also reads numbers and truth values from text.
func fitText(v any, kind entities.ParamType) (any, *Fault) {
	if text, ok := v.(string); ok {
		if read, ok := readText(text, kind); ok {
			return read, nil
		}
	}
	return fitLiteral(v, kind)
}

func readText(text string, kind entities.ParamType) (any, bool) {
	switch kind {
	case entities.ParamInt:
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil && n <= maxInt && n >= -maxInt
	case entities.ParamFloat:
		f, err := strconv.ParseFloat(text, 64)
		return f, err == nil && !math.IsInf(f, 0) && !math.IsNaN(f)
	case entities.ParamBool:
		return text == "true", text == "true" || text == "false"
	}
	return nil, false
}

// fitResult turns the result of a substitution into a value of a parameter's type.
func fitResult(result value, kind entities.ParamType) (value, *trouble) {
	widened := result.kind == kind || result.kind == entities.ParamInt && kind == entities.ParamFloat
	switch {
	case result.kind == entities.ParamSecret || kind == entities.ParamSecret:
		return value{}, &trouble{Fault: Fault{
			Code: "wrong-type", Message: "a secret cannot be made by substitution, nor be part of another parameter",
			Expected: "{workerEnv: NAME} here, or the secret alone in the value of an environment variable",
		}}
	case result.symbolic && (widened || kind == entities.ParamString || kindText[result.kind] == ""):
		return value{v: result.v, kind: kind, symbolic: true}, nil
	case result.symbolic:
		return value{}, &trouble{Fault: Fault{Code: "wrong-type", Message: "what a release gives here is " + kindText[result.kind], Expected: describeKind(kind, nil)}}
	case kind == entities.ParamString:
		return value{v: asText(result.v), kind: kind}, nil
	}
	fit, fault := fitText(result.v, kind)
	if fault != nil {
		return value{}, &trouble{Fault: *fault, inChannel: true}
	}
	return value{v: fit, kind: kind}, nil
}

// asText writes a value as it stands in text.
func asText(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case int64:
		return strconv.FormatInt(x, 10)
	case uint64:
		return strconv.FormatUint(x, 10)
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	case bool:
		return strconv.FormatBool(x)
	}
	return ""
}

var kindText = map[entities.ParamType]string{
	entities.ParamString: "text",
	entities.ParamInt:    "a whole number",
	entities.ParamFloat:  "a number",
	entities.ParamBool:   "true or false",
	entities.ParamSecret: "a reference to a secret: {workerEnv: NAME}",
}

// describeKind words what a parameter takes, and how to make text of a value that is not.
func describeKind(kind entities.ParamType, v any) string {
	text := kindText[kind]
	if kind == entities.ParamString && v != nil && asText(v) != "" {
		text += fmt.Sprintf(" (put it in quotes: %q)", asText(v))
	}
	return text
}

func describe(v any) string {
	switch x := v.(type) {
	case string:
		return fmt.Sprintf("the text %q", strict.Clip(x))
	case int64, uint64, float64:
		return "the number " + asText(x)
	case bool:
		return "the truth value " + asText(x)
	case entities.Value:
		return "a reference to a secret"
	case nil:
		return "empty"
	case []any:
		return "a list"
	}
	return "a mapping"
}
