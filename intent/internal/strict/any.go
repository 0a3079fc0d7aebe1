package strict

import (
	"fmt"
	"math"

	"go.yaml.in/yaml/v3"
)

// Any decodes what has no type of its own: mappings become map[string]any, lists []any, scalars
// string, int64, uint64, float64 or bool, and nothing nil. Unquoted yes, no, on and off are truth
// values, as Kubernetes reads YAML, and dates are text.
func (d *Decoder) Any(path string, node *yaml.Node) any {
	node, ok := d.enter(path, node)
	if !ok {
		return nil
	}
	switch node.Kind {
	case yaml.MappingNode:
		return d.anyMapping(path, node)
	case yaml.SequenceNode:
		return d.anyList(path, node)
	}
	if empty(node) {
		return nil
	}
	v, ok := plainScalar(node)
	if !ok {
		d.Fail(path, node, Fault{Code: "wrong-type", Message: "this is " + Describe(node), Expected: "text, a number, true or false"})
	}
	return v
}

func (d *Decoder) anyMapping(path string, node *yaml.Node) any {
	if d.inside(path, node) {
		return nil
	}
	defer delete(d.within, node)
	all := map[string]any{}
	for _, p := range d.pairs(path, node) {
		all[p.name] = d.Any(Key(path, p.name), p.value)
	}
	return all
}

func (d *Decoder) anyList(path string, node *yaml.Node) any {
	if d.inside(path, node) {
		return nil
	}
	defer delete(d.within, node)
	all := make([]any, 0, len(node.Content))
	for i, item := range node.Content {
		if d.full() {
			break
		}
		all = append(all, d.Any(Index(path, i), item))
	}
	return all
}

// inside notes that a node is being decoded, and refuses one that holds itself.
func (d *Decoder) inside(path string, node *yaml.Node) bool {
	if d.within[node] {
		d.Fail(path, node, Fault{Code: "alias-cycle", Message: "this value holds itself"})
		return true
	}
	if d.within == nil {
		d.within = map[*yaml.Node]bool{}
	}
	d.within[node] = true
	return false
}

func plainScalar(node *yaml.Node) (any, bool) {
	if node.Style == 0 && node.ShortTag() == "!!str" {
		switch node.Value {
		case "yes", "Yes", "YES", "on", "On", "ON":
			return true, true
		case "no", "No", "NO", "off", "Off", "OFF":
			return false, true
		}
	}
	switch node.ShortTag() {
	case "!!timestamp":
		return node.Value, true
	case "!!int":
		var large uint64
		if v, ok := Scalar(node); ok {
			return v, true
		}
		if node.Decode(&large) == nil {
			return large, true
		}
		var f float64
		err := node.Decode(&f)
		return f, err == nil && !math.IsInf(f, 0)
	}
	return Scalar(node)
}

// Shown is a path as problems name it: with the subject of the document before it, where it has one.
func (d *Decoder) Shown(path string) string {
	if d.Subject == "" || path == "" {
		return d.Subject + path
	}
	return fmt.Sprintf("%s %s", d.Subject, path)
}
