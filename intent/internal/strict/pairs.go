package strict

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// pair is one entry of a mapping.
type pair struct {
	name  string
	key   *yaml.Node
	value *yaml.Node
}

// pairs lists a mapping's entries in order, those of merge keys (`<<`) last and only where the
// mapping itself has no such key. A key given twice is a problem, and its first value counts.
func (d *Decoder) pairs(path string, node *yaml.Node) []pair {
	if d.merging[node] {
		d.Fail(path, node, Fault{Code: "alias-cycle", Message: "this mapping merges itself"})
		return nil
	}
	if d.merging == nil {
		d.merging = map[*yaml.Node]bool{}
	}
	d.merging[node] = true
	defer delete(d.merging, node)

	var own, merged []pair
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := resolve(node.Content[i]), node.Content[i+1]
		switch {
		case key.ShortTag() == "!!merge":
			merged = append(merged, d.merged(path, value)...)
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			d.Fail(path, node.Content[i], Fault{Code: "wrong-type", Message: "this key is " + Describe(key), Expected: "text" + quoteHint(key)})
		case first[key.Value] != nil:
			d.Fail(Key(path, key.Value), key, Fault{
				Code:    "duplicate-key",
				Message: fmt.Sprintf("%q is given twice, first on line %d", key.Value, first[key.Value].Line),
			})
		default:
			first[key.Value] = key
			own = append(own, pair{key.Value, key, value})
		}
	}
	for _, p := range merged {
		if first[p.name] == nil {
			first[p.name] = p.key
			own = append(own, p)
		}
	}
	return own
}

// merged lists the entries that a merge key brings in: of a mapping, or of a list of them, of
// which the earlier wins.
func (d *Decoder) merged(path string, value *yaml.Node) []pair {
	value = resolve(value)
	if d.values += len(value.Content); d.full() {
		return nil
	}
	switch value.Kind {
	case yaml.MappingNode:
		return d.pairs(path, value)
	case yaml.SequenceNode:
		var all []pair
		for _, item := range value.Content {
			if resolve(item).Kind == yaml.SequenceNode {
				break // lists of lists are no merge
			}
			all = append(all, d.merged(path, item)...)
		}
		return all
	}
	d.Fail(path, value, Fault{Code: "wrong-type", Message: "the merge key << is given " + Describe(value), Expected: "a mapping, or a list of mappings"})
	return nil
}

func resolve(node *yaml.Node) *yaml.Node {
	for node.Kind == yaml.AliasNode && node.Alias != nil {
		node = node.Alias
	}
	return node
}
