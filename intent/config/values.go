package config

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// MaxInt is the largest whole number that JSON carries unchanged.
const MaxInt = 1<<53 - 1

// EnvValue is the value of an environment variable: text, or {workerEnv: NAME}, the name of a
// variable of the worker that holds a secret.
type EnvValue entities.Value

// Literal is a value of a parameter: text, a number, a truth value, or {workerEnv: NAME}.
type Literal struct {
	V any // string, int64, float64, bool or entities.Value
}

// secretRef is the long form of both.
type secretRef struct {
	WorkerEnv WorkerEnvName `json:"workerEnv"`
}

// Planned names the kinds of references that later versions accept.
func (secretRef) Planned() []string { return []string{"kubernetesSecret", "awsSecret", "key"} }

// Wanted words what may stand in the file.
func (EnvValue) Wanted() string { return "text, or {workerEnv: NAME}" }

// Wanted words what may stand in the file.
func (Literal) Wanted() string { return "text, a number, true, false or {workerEnv: NAME}" }

// DecodeStrict reads either form.
func (v *EnvValue) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	if node.Kind == yaml.MappingNode {
		v.WorkerEnv = decodeSecret(d, path, node)
		return
	}
	var text string
	d.Value(path, node, &text)
	v.Literal = text
}

// DecodeStrict reads any of the forms.
func (l *Literal) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	if node.Kind == yaml.MappingNode {
		l.V = entities.Value{WorkerEnv: decodeSecret(d, path, node)}
		return
	}
	value, ok := strict.Scalar(node)
	if !ok {
		d.Fail(path, node, Fault{Code: "wrong-type", Message: "this is " + strict.Describe(node), Expected: l.Wanted()})
		return
	}
	if i, isInt := value.(int64); isInt && (i > MaxInt || i < -MaxInt) {
		d.Fail(path, node, Fault{Code: "bad-value", Message: "this is too large a number", Expected: "at most 2^53 - 1"})
		return
	}
	l.V = value
}

func decodeSecret(d *strict.Decoder, path string, node *yaml.Node) string {
	var ref secretRef
	d.Value(path, node, &ref)
	return string(ref.WorkerEnv)
}

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
