package substitute

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// FitLiteral converts a value from YAML or JSON to a parameter's type: string, int64, float64, bool or entities.Value. It only converts
// numbers to equal numbers.
func FitLiteral(v any, kind entities.ParamType) (any, *strict.Fault) {
	plain := PlainValue(v)
	if fit, ok := fits(plain, kind); ok {
		return fit, nil
	}
	if f, ok := plain.(float64); ok && kind == entities.ParamInt && math.Abs(f) > config.MaxInt {
		return nil, &strict.Fault{Code: "bad-value", Message: "this number is too large", Expected: "at most 2^53 - 1"}
	}
	return nil, &strict.Fault{Code: "wrong-type", Message: "this is " + Describe(plain), Expected: DescribeKind(kind, plain)}
}

// PlainValue normalizes the types of values from JSON and from Go callers.
func PlainValue(v any) any {
	switch x := v.(type) {
	case int:
		return int64(x)
	case map[string]any:
		if ref, ok := config.SecretRefOf(x); ok {
			return ref
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
		if kind == entities.ParamInt && x == math.Trunc(x) && math.Abs(x) <= config.MaxInt {
			return int64(x), true
		}
		return x, kind == entities.ParamFloat
	}
	return nil, false
}

// FitText is FitLiteral that also parses numbers and booleans from text.
func FitText(v any, kind entities.ParamType) (any, *strict.Fault) {
	if text, ok := v.(string); ok {
		if value, ok := readText(text, kind); ok {
			return value, nil
		}
	}
	return FitLiteral(v, kind)
}

func readText(text string, kind entities.ParamType) (any, bool) {
	switch kind {
	case entities.ParamInt:
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil && n <= config.MaxInt && n >= -config.MaxInt
	case entities.ParamFloat:
		f, err := strconv.ParseFloat(text, 64)
		return f, err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) && !strict.LosesDigits(text)
	case entities.ParamBool:
		return text == "true", text == "true" || text == "false"
	}
	return nil, false
}

// FitResult converts the result of a substitution to a parameter's type.
func FitResult(result Value, kind entities.ParamType) (Value, *ScopedFault) {
	widened := result.Kind == kind || result.Kind == entities.ParamInt && kind == entities.ParamFloat
	switch {
	case result.Kind == entities.ParamSecret || kind == entities.ParamSecret:
		return Value{}, &ScopedFault{Fault: strict.Fault{
			Code: "wrong-type", Message: "a secret cannot be substituted, and cannot be part of another parameter",
			Expected: "{workerEnv: NAME} here, or the secret alone in the value of an environment variable",
		}}
	case result.symbolic && (widened || kind == entities.ParamString || KindText[result.Kind] == ""):
		return Value{V: result.V, Kind: kind, symbolic: true}, nil
	case result.symbolic:
		return Value{}, &ScopedFault{Fault: strict.Fault{Code: "wrong-type", Message: "the release gives " + KindText[result.Kind], Expected: DescribeKind(kind, nil)}}
	case kind == entities.ParamString:
		return Value{V: AsText(result.V), Kind: kind}, nil
	}
	fit, fault := FitText(result.V, kind)
	if fault != nil {
		return Value{}, &ScopedFault{Fault: *fault, InChannel: true}
	}
	return Value{V: fit, Kind: kind}, nil
}

// AsText formats a value for use in text.
func AsText(v any) string {
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

// KindText describes the values of a parameter type.
var KindText = map[entities.ParamType]string{
	entities.ParamString: "text",
	entities.ParamInt:    "a whole number",
	entities.ParamFloat:  "a number",
	entities.ParamBool:   "true or false",
	entities.ParamSecret: "a reference to a secret: {workerEnv: NAME}",
}

// DescribeKind describes the values of a parameter, and how to quote a value that must be text.
func DescribeKind(kind entities.ParamType, v any) string {
	text := KindText[kind]
	if kind == entities.ParamString && v != nil && AsText(v) != "" {
		text += fmt.Sprintf(" (put it in quotes: %q)", AsText(v))
	}
	return text
}

// Describe describes a value that does not fit.
func Describe(v any) string {
	switch x := v.(type) {
	case string:
		return fmt.Sprintf("the text %q", strict.Clip(x))
	case int64, uint64, float64:
		return "the number " + AsText(x)
	case bool:
		return "the boolean " + AsText(x)
	case entities.Value:
		return "a reference to a secret"
	case nil:
		return "empty"
	case []any:
		return "a list"
	}
	return "a mapping"
}
