package strict

import "go.yaml.in/yaml/v3"

// Written describes the scalar at path as its document has it, such as "the number 0123456", and whether YAML reads it as text. The hint
// says how to quote a scalar that is not text; "": it is, or it is too long. ok is false if there is no scalar at path.
func (d *Decoder) Written(path string) (description, hint string, isText, ok bool) {
	if from, path := d.origin(path); from != d {
		return from.Written(path)
	}
	node := d.scalars[path]
	if node == nil {
		return "", "", false, false
	}
	switch {
	case isBoolean(node):
		return "the boolean " + node.Value, quoteHint(node), false, true
	case node.ShortTag() == "!!str":
		return Describe(node), "", true, true
	}
	return Describe(node), quoteHint(node), false, true
}

// isBoolean reports whether an unquoted text is a boolean in YAML 1.1, as Any reads it.
func isBoolean(node *yaml.Node) bool {
	v, _ := plainScalar(node)
	_, is := v.(bool)
	return is
}
