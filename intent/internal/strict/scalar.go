package strict

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

func (d *Decoder) scalar(path string, node *yaml.Node, to reflect.Value) {
	if node.Kind != yaml.ScalarNode || !set(node, to) {
		d.wrongType(path, node, to.Type())
		if last := &d.Problems[len(d.Problems)-1]; last.Expected == "text" {
			last.Expected += quoteHint(node)
		}
		return
	}
	d.check(path, node, to)
}

// check calls the type's own check of the value.
func (d *Decoder) check(path string, node *yaml.Node, to reflect.Value) {
	switch v := to.Interface().(type) {
	case Enum:
		values := v.Values()
		if !slices.Contains(values, to.String()) {
			d.Fail(path, node, Fault{
				Code: "bad-value", Message: fmt.Sprintf("%q is not possible here", to.String()),
				Expected: OneOf(values), Suggestion: Nearest(to.String(), values),
			})
		}
	case Checker:
		if fault := v.Check(); fault != nil {
			d.Fail(path, node, *fault)
		}
	}
}

// set assigns a scalar to a Go value of the same type, and reports success. It does not convert: 1.10 is not text, and "3" is not a
// number.
func set(node *yaml.Node, to reflect.Value) bool {
	if to.Kind() == reflect.String {
		to.SetString(node.Value)
		return node.ShortTag() == "!!str"
	}
	value, ok := Scalar(node)
	if !ok {
		return false
	}
	switch v := value.(type) {
	case int64:
		if to.Kind() == reflect.Float64 {
			to.SetFloat(float64(v))
			return true
		}
		if !to.CanInt() || to.OverflowInt(v) {
			return false
		}
		to.SetInt(v)
		return true
	case float64:
		if to.Kind() != reflect.Float64 {
			return false
		}
		to.SetFloat(v)
		return true
	case bool:
		if to.Kind() != reflect.Bool {
			return false
		}
		to.SetBool(v)
		return true
	}
	return false
}

// Scalar returns a scalar node's value: string, int64, float64 or bool. It returns false for everything else, including infinities and
// numbers out of range.
func Scalar(node *yaml.Node) (any, bool) {
	if node.Kind != yaml.ScalarNode {
		return nil, false
	}
	switch node.ShortTag() {
	case "!!str":
		return node.Value, true
	case "!!int":
		var v int64
		err := node.Decode(&v)
		return v, err == nil
	case "!!float":
		var v float64
		err := node.Decode(&v)
		return v, err == nil && !math.IsInf(v, 0) && !math.IsNaN(v)
	case "!!bool":
		var v bool
		err := node.Decode(&v)
		return v, err == nil
	}
	return nil, false
}

// Describe describes a node: `the number 1.10`, `a mapping`.
func Describe(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	text := node.Value
	if len(text) > 40 {
		text = text[:40] + "…"
	}
	switch node.ShortTag() {
	case "!!int", "!!float":
		return "the number " + text
	case "!!bool":
		return "the boolean " + text
	case "!!null":
		return "empty"
	case "!!timestamp":
		return "the date " + text
	case "!!str":
		return "the text " + strconv.Quote(text)
	}
	return fmt.Sprintf("of the type %s", node.ShortTag())
}

// wanted describes the values of a Go type.
func wanted(t reflect.Type) string {
	if named, ok := reflect.Zero(t).Interface().(interface{ Wanted() string }); ok {
		return named.Wanted()
	}
	if enum, ok := reflect.Zero(t).Interface().(Enum); ok {
		return OneOf(enum.Values())
	}
	switch t.Kind() {
	case reflect.Pointer:
		return wanted(t.Elem())
	case reflect.Struct, reflect.Map:
		return "a mapping"
	case reflect.Slice:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "text"
	}
	return "a whole number"
}

// quoteHint explains how to quote a scalar that YAML does not read as text.
func quoteHint(node *yaml.Node) string {
	if node.Kind != yaml.ScalarNode || node.Value == "" || len(node.Value) > 40 {
		return ""
	}
	return fmt.Sprintf(" (put it in quotes: %q)", node.Value)
}

func empty(node *yaml.Node) bool {
	return node.Kind == 0 || node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null"
}
