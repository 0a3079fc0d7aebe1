package sources

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
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
	a, err := render(order{Chart: c.files, Release: &r})
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

// render is Render, here.
func (c *Chart) render(r Release) ([]Text, error) {
	first, err := c.once(r, doubles{})
	if err != nil {
		return nil, err
	}
	swap := strings.NewReplacer(Version, other(Version), FullVersion, other(FullVersion)).Replace
	again := r
	again.Values, _ = replaceTexts(r.Values, swap).(map[string]any)
	second, err := c.once(again, doubles{second: true})
	if err != nil {
		return nil, err
	}
	if slices.EqualFunc(first, second, func(a, b Text) bool {
		return a.Name == b.Name && Reopen(string(a.Data)) == reopenOther(string(b.Data))
	}) {
		return first, nil
	}
	// Which of the two it is: with the same tokens, only the clock and chance are left.
	third, err := c.once(r, doubles{second: true})
	if err != nil {
		return nil, err
	}
	if err := compared(first, third, same); err != nil {
		return nil, &Refusal{err.Error() + " depends on the time or on chance", "a value for it in the configuration"}
	}
	if err := compared(first, second, reopened); err != nil {
		return nil, &Refusal{err.Error() + " holds a version in another form", "the version as it is: neither cut nor encoded nor in other letters"}
	}
	return first, nil
}

// Refusal is what a chart or kustomization does that has no place when compiling.
type Refusal struct{ Text, Expected string }

// Error says both.
func (r *Refusal) Error() string { return r.Text + "; expected " + r.Expected }

func same(a, b Text) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) }

func reopened(a, b Text) bool {
	return a.Name == b.Name && differs(string(a.Data), string(b.Data)) == ""
}

// compared names the first template whose two renderings are not equal.
func compared(first, second []Text, equal func(a, b Text) bool) error {
	for i, text := range first {
		switch {
		case i >= len(second):
			return errors.New(text.Name)
		case equal(text, second[i]):
			continue
		case text.Name != second[i].Name:
			return errors.New(text.Name)
		}
		line := differs(string(text.Data), string(second[i].Data))
		if bytes.Equal(text.Data, second[i].Data) || line == "" {
			line = "a checksum"
		}
		return errors.New(text.Name + ": " + line)
	}
	if len(second) > len(first) {
		return errors.New(second[len(first)].Name)
	}
	return nil
}

// once renders once.
func (c *Chart) once(r Release, d doubles) ([]Text, error) {
	loaded, err := c.load()
	if err != nil {
		return nil, err
	}
	capabilities, err := r.capabilities(loaded)
	if err != nil {
		return nil, err
	}
	given, _ := replaceTexts(r.Values, func(text string) string { return text }).(map[string]any)
	if given == nil {
		given = map[string]any{}
	}
	if err := chartutil.ProcessDependencies(loaded, given); err != nil {
		return nil, errors.New(oneLine(err.Error()))
	}
	options := common.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: true}
	values, err := util.ToRenderValuesWithSchemaValidation(loaded, given, options, capabilities, true)
	if err != nil {
		return nil, errors.New(oneLine(Reopen(err.Error())))
	}
	all, err := values.Table("Values")
	if err == nil {
		err = validate(loaded, all)
	}
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Engine{CustomTemplateFuncs: d.functions()}.Render(loaded, values)
	if err != nil {
		return nil, errors.New(oneLine(Reopen(err.Error())))
	}
	return collect(loaded, rendered, r.CRDs), nil
}

func (r Release) capabilities(c *chart.Chart) (*common.Capabilities, error) {
	here := cmp.Or(r.KubeVersion, KubeVersion)
	version, err := common.ParseKubeVersion(here)
	if err != nil {
		return nil, err
	}
	if needed := c.Metadata.KubeVersion; needed != "" && !chartutil.IsCompatibleRange(needed, version.Version) {
		return nil, &Refusal{
			fmt.Sprintf("chart %s is for Kubernetes %s, and is rendered for %s", c.Name(), needed, here), "the cluster's own version as kubernetes.kubeVersion of its runtime, or what \"converge lock --capabilities\" writes",
		}
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	if r.AllAPIs {
		capabilities.APIVersions = nil
	}
	capabilities.APIVersions = append(capabilities.APIVersions, r.APIVersions...)
	return capabilities, nil
}

// collect puts the texts in order and leaves out notes and what is empty.
func collect(c *chart.Chart, rendered map[string]string, crds bool) []Text {
	var all []Text
	if crds {
		for _, crd := range c.CRDObjects() {
			all = append(all, Text{Name: crd.Filename, Data: crd.File.Data})
		}
	}
	var names []string
	for name, text := range rendered {
		if path.Base(name) != "NOTES.txt" && strings.TrimSpace(text) != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		all = append(all, Text{Name: name, Data: []byte(separator.ReplaceAllString(rendered[name], "\n---\n"))})
	}
	return all
}

// separator is what stands between objects for Helm, which is more than YAML has: charts that others wrote begin the next object
// in the same line.
var separator = regexp.MustCompile(`(?:^|\s*\n)---\s*`)

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

const letters = "ghijklmnopqrstuvwxyz"

// other is a token of the second rendering: it differs in every letter, so that whatever becomes of
// a token, cut or encoded, differs too.
func other(token string) string {
	return strings.Map(func(r rune) rune { return rune(letters[(strings.IndexRune(letters, r)+7)%len(letters)]) }, token)
}

func opener(of func(string) string) *strings.Replacer {
	return strings.NewReplacer(of(Version), "${{ version }}", of(FullVersion), "${{ fullVersion }}")
}

// Reopen puts substitutions back in the place of tokens.
func Reopen(text string) string {
	return opener(func(token string) string { return token }).Replace(text)
}

func reopenOther(text string) string { return opener(other).Replace(text) }

var checksum = regexp.MustCompile(`[0-9a-f]{8,128}`)

// differs returns the first line in which the two renderings of a template differ although their
// tokens are put back; "" when there is none. Checksums of texts with a version may differ: every
// version rolls the pods anyway.
func differs(first, second string) string {
	one := strings.Split(Reopen(first), "\n")
	two := strings.Split(reopenOther(second), "\n")
	for i, line := range one {
		if i >= len(two) || checksum.ReplaceAllString(line, "#") != checksum.ReplaceAllString(two[i], "#") {
			return orBlank(line)
		}
	}
	if len(two) > len(one) {
		return orBlank(two[len(one)])
	}
	return ""
}

// orBlank shows of a line what comes before its value, which may be a secret.
func orBlank(line string) string {
	key, _, found := strings.Cut(strings.TrimSpace(line), ":")
	if found {
		return strings.TrimSpace(key)
	}
	return "a line of text"
}

// replaceTexts is a copy of values with every text replaced.
func replaceTexts(v any, replace func(string) string) any {
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
