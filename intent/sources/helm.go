package sources

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// KubeVersion is the version of Kubernetes that templates see where a runtime says no other. It is fixed, so that the same
// sources give the same objects.
const KubeVersion = "v1.36.0"

// Release is what a chart is rendered with. Values may hold the tokens Version and FullVersion.
type Release struct {
	Name, Namespace string
	Values          map[string]any
	CRDs            bool // whether those in crds/ are part of it
	// What templates see of the cluster, beside the built-in APIs; empty: KubeVersion, and nothing else.
	KubeVersion string   `json:",omitempty"`
	APIVersions []string `json:",omitempty"`
	// AllAPIs: APIVersions are all that the cluster has, and not those beside the built-in ones.
	AllAPIs bool `json:",omitempty"`
}

// Render renders the chart as `helm template` would for a first installation, without a cluster: the
// texts of crds/, then those of the templates by name. Tokens stand in them as they stood in the
// values. It renders twice, with other tokens and other answers of clocks and random sources, and
// refuses what differs in more than the tokens.
func (c *Chart) Render(r Release) ([]Text, error) {
	a, err := render(Order{Chart: c.files, Release: &r})
	return a.Texts, err
}

// MarshalJSON writes numbers of the values so that those that are whole can be told from those that are not.
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

// UnmarshalJSON reads what MarshalJSON wrote.
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

// number is the int64, uint64 or float64 of a number.
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

// Refusal is what a chart or kustomization does that has no place when compiling.
type Refusal struct{ Text, Expected string }

// Error says both.
func (r *Refusal) Error() string { return r.Text + "; expected " + r.Expected }

// reopen puts substitutions back for the tokens that a chart was rendered with.
func reopen(node *yaml.Node, seen map[*yaml.Node]bool) {
	if node == nil || seen[node] {
		return
	}
	seen[node] = true
	if node.Kind == yaml.ScalarNode {
		node.Value = Reopen(node.Value)
	}
	for _, inner := range node.Content {
		reopen(inner, seen)
	}
}

// Tokens stand for what is open when a chart is rendered. They are lower-case letters, so that they
// pass for a tag, a label or a part of a DNS name, and hold no hexadecimal digit, so that no part of
// one looks like a checksum.
const (
	Version     = "qzvrsxnwkpjmhtylug"
	FullVersion = "kwullvrsxnzqpjmhty"
)

// Reopen puts substitutions back in the place of tokens.
func Reopen(text string) string {
	return strings.NewReplacer(Version, "${{ version }}", FullVersion, "${{ fullVersion }}").Replace(text)
}

// ReplaceTexts is a copy of values with every text replaced.
func ReplaceTexts(v any, replace func(string) string) any {
	return replaced(v, func(v any) any {
		if text, ok := v.(string); ok {
			return replace(text)
		}
		return v
	})
}

// replaced is a copy of values with all that is no mapping and no list replaced.
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
