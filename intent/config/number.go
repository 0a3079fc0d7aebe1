package config

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// Number is a number, or a substitution that stands for one.
type Number struct {
	V    float64
	Text string // not empty: a substitution
}

// Wanted words what may stand in the file.
func (Number) Wanted() string { return "a number, or a substitution of one" }

// DecodeStrict reads either form.
func (n *Number) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	value, _ := strict.Scalar(node)
	switch v := value.(type) {
	case int64:
		n.V = float64(v)
		return
	case float64:
		n.V = v
		return
	case string:
		if HasSubstitution(v) {
			n.Text = v
			return
		}
	}
	d.Fail(path, node, Fault{Code: "wrong-type", Message: "this is " + strict.Describe(node), Expected: n.Wanted()})
}

// HasSubstitution tells whether a text holds, or means to hold, a substitution.
func HasSubstitution(text string) bool { return strings.Contains(text, "${{") }
