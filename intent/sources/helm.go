package sources

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// KubeVersion is the Kubernetes version for templates if a runtime sets none. It is fixed, so that the same sources produce the same
// objects.
const KubeVersion = "v1.36.0"

// Release is the input of a chart rendering. Values may contain the tokens Version and FullVersion.
type Release struct {
	Name, Namespace string
	Values          map[string]any
	CRDs            bool // whether to include those in crds/
	// KubeVersion and APIVersions describe the cluster to templates. APIVersions are additional to the built-in APIs. Empty: the
	// constant KubeVersion, and no additional APIs.
	KubeVersion string   `json:",omitempty"`
	APIVersions []string `json:",omitempty"`
	// AllAPIs: APIVersions are all APIs of the cluster and not only the additional ones.
	AllAPIs bool `json:",omitempty"`
}

// Render renders the chart as `helm template` would for a first installation, without a cluster. It returns the texts of crds/, then
// those of the templates by name. Tokens of the values remain in them. It renders twice, with different tokens and different results of
// clocks and random sources. It rejects differences other than the tokens.
func (c *Chart) Render(r Release) ([]Text, error) {
	a, err := render(Order{Chart: c.files, Release: &r})
	return a.Texts, err
}

// MarshalJSON encodes numbers of the values so that integers and floats remain distinct.
func (r Release) MarshalJSON() ([]byte, error) {
	type plain Release
	r.Values, _ = replaced(r.Values, func(v any) any {
		if f, ok := v.(float64); ok && f == math.Trunc(f) {
			return json.RawMessage(strconv.FormatFloat(f, 'e', -1, 64))
		}
		return v
	}).(map[string]any)
	return json.Marshal(plain(r))
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (r *Release) UnmarshalJSON(data []byte) error {
	type plain Release
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode((*plain)(r)); err != nil {
		return err
	}
	r.Values, _ = replaced(r.Values, number).(map[string]any)
	return nil
}

// number converts a number to int64, uint64 or float64.
func number(v any) any {
	n, ok := v.(json.Number)
	if !ok {
		return v
	}
	if i, err := n.Int64(); err == nil {
		return i
	}
	if u, err := strconv.ParseUint(n.String(), 10, 64); err == nil {
		return u
	}
	f, _ := n.Float64()
	return f
}

// Refusal is an operation of a chart or kustomization that is not allowed during compilation.
type Refusal struct{ Text, Expected string }

// Error contains both fields.
func (r *Refusal) Error() string { return r.Text + "; expected " + r.Expected }

// restoreNode replaces the tokens of a rendered chart by substitutions.
func restoreNode(node *yaml.Node, seen map[*yaml.Node]bool) {
	if node == nil || seen[node] {
		return
	}
	seen[node] = true
	if node.Kind == yaml.ScalarNode {
		node.Value = RestoreSubstitutions(node.Value)
	}
	for _, inner := range node.Content {
		restoreNode(inner, seen)
	}
}

// Tokens replace open values when a chart is rendered. They consist of lower-case letters, so that they are valid as a tag, a label or a
// part of a DNS name. They contain no hexadecimal digit, so that no part of one looks like a checksum.
const (
	Version     = "qzvrsxnwkpjmhtylug"
	FullVersion = "kwullvrsxnzqpjmhty"
)

// RestoreSubstitutions replaces tokens by substitutions.
func RestoreSubstitutions(text string) string {
	return strings.NewReplacer(Version, "${{ version }}", FullVersion, "${{ fullVersion }}").Replace(text)
}

// ReplaceTexts returns a copy of values with every text replaced.
func ReplaceTexts(v any, replace func(string) string) any {
	return replaced(v, func(v any) any {
		if text, ok := v.(string); ok {
			return replace(text)
		}
		return v
	})
}

// replaced returns a copy of values with every scalar replaced.
func replaced(v any, replace func(any) any) any {
	switch x := v.(type) {
	case map[string]any:
		all := make(map[string]any, len(x))
		for key, item := range x {
			all[key] = replaced(item, replace)
		}
		return all
	case []any:
		all := make([]any, 0, len(x))
		for _, item := range x {
			all = append(all, replaced(item, replace))
		}
		return all
	}
	return replace(v)
}
