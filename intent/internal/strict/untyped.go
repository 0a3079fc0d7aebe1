package strict

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Any decodes a value without a type: mappings become map[string]any, lists []any, scalars string, int64, uint64, float64 or bool, and
// null nil. It reads scalars and merge keys as kubectl and Helm do: y, n, yes, no, on and off are booleans unless they are quoted, dates
// are text, and of an entry and a merge key (`<<`) the later counts. A whole number that no such type holds exactly is a problem.
func (d *Decoder) Any(path string, node *yaml.Node) any { return untyped{Decoder: d}.value(path, node) }

// HelmValues is Any for values of a chart: keys that are numbers or booleans become text, as Helm reads them (8080 is "8080", on is
// "true").
func (d *Decoder) HelmValues(path string, node *yaml.Node) any {
	return untyped{Decoder: d, convertKeys: true}.value(path, node)
}

// DecodeHelmValues is HelmValues for a document. False means that the expanded document exceeds the limit.
func (d *Decoder) DecodeHelmValues(node *yaml.Node) (any, bool) {
	v := d.HelmValues("", node)
	return v, d.checkLimit(node)
}

// untyped decodes values without a type.
type untyped struct {
	*Decoder
	convertKeys bool // keys that are numbers or booleans are allowed
}

func (u untyped) value(path string, node *yaml.Node) any {
	node, ok := u.enter(path, node)
	if !ok {
		return nil
	}
	switch node.Kind {
	case yaml.MappingNode:
		return u.mapping(path, node)
	case yaml.SequenceNode:
		return u.list(path, node)
	}
	if empty(node) {
		return nil
	}
	v, ok := plainScalar(node)
	if !ok {
		u.Fail(path, node, Fault{Code: "wrong-type", Message: "this is " + Describe(node), Expected: "text, a number, true or false" + quoteHint(node)})
		return nil // an infinite number has no JSON
	}
	if _, isFloat := v.(float64); isFloat && LosesDigits(node.Value) {
		u.Fail(path, node, Fault{Code: "bad-value", Message: "this number would lose digits", Expected: "a whole number of at most 64 bits, or text" + quoteHint(node)})
	}
	return v
}

// QuoteHint is FORM (put it in quotes: "1.10"), if the document has a number or a boolean at path; otherwise FORM.
func (d *Decoder) QuoteHint(form, path string) string {
	if _, hint, isText, ok := d.Written(path); ok && !isText {
		return form + hint
	}
	return form
}

func (u untyped) mapping(path string, node *yaml.Node) any {
	if u.rejectCycle(&u.within, path, node, "this value contains itself") {
		return nil
	}
	defer delete(u.within, node)
	all := map[string]any{}
	u.entries(path, node, all)
	return all
}

// entries adds the entries of a mapping in their order, so that a merge key overrides the entries before it and none after it.
func (u untyped) entries(path string, node *yaml.Node, into map[string]any) {
	if u.rejectCycle(&u.merging, path, node, "this mapping merges itself") {
		return
	}
	defer delete(u.merging, node)
	first := map[string]int{}
	for i := 0; i+1 < len(node.Content) && !u.limitReached(); i += 2 {
		key := resolve(node.Content[i])
		if key.ShortTag() == "!!merge" {
			u.merge(path, node.Content[i+1], into)
			continue
		}
		name, ok := u.keyOf(key)
		switch line, twice := first[name]; {
		case !ok:
			u.Fail(path, node.Content[i], Fault{Code: "wrong-type", Message: "this key is " + Describe(key), Expected: "text" + quoteHint(key)})
		case twice:
			u.Fail(Key(path, name), key, Fault{Code: "duplicate-key", Message: fmt.Sprintf("%q is given twice, first on line %d", name, line)})
		default:
			first[name] = key.Line
			into[name] = u.value(Key(path, name), node.Content[i+1])
		}
	}
}

// merge adds the entries of a merge key: of a mapping, or of a list of mappings, of which the earlier takes precedence.
func (u untyped) merge(path string, value *yaml.Node, into map[string]any) {
	value = resolve(value)
	if u.values += len(value.Content); u.limitReached() {
		return
	}
	parts := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		parts = value.Content
	}
	for i := len(parts) - 1; i >= 0; i-- {
		part := resolve(parts[i])
		if part.Kind != yaml.MappingNode {
			u.Fail(path, part, Fault{Code: "wrong-type", Message: "the merge key << is given " + Describe(part), Expected: "a mapping, or a list of mappings"})
			return
		}
		u.entries(path, part, into)
	}
}

// keyOf returns the text of a key, and false if it is none.
func (u untyped) keyOf(key *yaml.Node) (string, bool) {
	if key.Kind != yaml.ScalarNode || empty(key) {
		return "", false
	}
	if !u.convertKeys {
		return key.Value, key.ShortTag() == "!!str"
	}
	switch v, _ := plainScalar(key); v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 32), true // as sigs.k8s.io/yaml does
	}
	return "", false
}

func (u untyped) list(path string, node *yaml.Node) any {
	if u.rejectCycle(&u.within, path, node, "this value contains itself") {
		return nil
	}
	defer delete(u.within, node)
	all := make([]any, 0, len(node.Content))
	for i, item := range node.Content {
		if u.limitReached() {
			break
		}
		all = append(all, u.value(Index(path, i), item))
	}
	return all
}

// booleans11 are the booleans of YAML 1.1 that YAML 1.2 reads as text.
var booleans11 = map[string]bool{
	"y": true, "Y": true, "yes": true, "Yes": true, "YES": true, "on": true, "On": true, "ON": true,
	"n": false, "N": false, "no": false, "No": false, "NO": false, "off": false, "Off": false, "OFF": false,
}

// plainScalar returns the value of a scalar: string, int64, uint64, float64 or bool.
func plainScalar(node *yaml.Node) (any, bool) {
	switch node.ShortTag() {
	case "!!str":
		if v, ok := booleans11[node.Value]; ok && node.Style == 0 {
			return v, true
		}
	case "!!timestamp", "!!merge":
		return node.Value, true
	case "!!int":
		if v, ok := Scalar(node); ok {
			return v, true
		}
		var large uint64
		err := node.Decode(&large)
		return large, err == nil
	}
	return Scalar(node)
}

// LosesDigits reports whether a text is a whole number that a float64 does not hold exactly.
func LosesDigits(text string) bool {
	if strings.Trim(text, "+-_0123456789") != "" {
		return false
	}
	written, ok := new(big.Int).SetString(strings.ReplaceAll(text, "_", ""), 10)
	if !ok {
		return false
	}
	_, accuracy := new(big.Float).SetInt(written).Float64()
	return accuracy != big.Exact
}
