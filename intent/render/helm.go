package render

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"

	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/sources"
)

// files are the files of a chart, which is never modified.
type files []*archive.BufferedFile

// checkLoads rejects a chart that cannot be rendered with any values.
func (f files) checkLoads() error {
	loaded, err := f.load()
	if err == nil && loaded.Metadata.Type == "library" {
		err = fmt.Errorf("%s is a library, which has no objects of its own", loaded.Name())
	}
	return err
}

// load returns a modifiable copy of the chart, because rendering merges the values of its subcharts into it.
func (f files) load() (*chart.Chart, error) {
	copies := make([]*archive.BufferedFile, 0, len(f))
	for _, one := range f {
		own := *one
		copies = append(copies, &own)
	}
	loaded, err := loader.LoadFiles(copies)
	if err != nil {
		return nil, errors.New(strict.OneLine(err.Error()))
	}
	return loaded, checkSubcharts(loaded)
}

// checkSubcharts rejects a chart with missing subcharts.
func checkSubcharts(c *chart.Chart) error {
	for _, needed := range c.Metadata.Dependencies {
		if !slices.ContainsFunc(c.Dependencies(), func(d *chart.Chart) bool { return d.Name() == needed.Name }) {
			return fmt.Errorf("chart %s needs %s, which is not in its charts directory", c.Name(), needed.Name)
		}
	}
	for _, part := range c.Dependencies() {
		if err := checkSubcharts(part); err != nil {
			return err
		}
	}
	return nil
}

// render renders the chart as `helm template` would for a first installation, without a cluster. It renders twice, with different tokens
// and different results of clocks and random sources. It rejects differences other than the tokens.
func (f files) render(r sources.Release) ([]sources.Text, error) {
	first, err := f.renderOnce(r, doubles{})
	if err != nil {
		return nil, err
	}
	swapped := strings.NewReplacer(sources.Version, secondToken(sources.Version), sources.FullVersion, secondToken(sources.FullVersion)).Replace
	repeated := r
	repeated.Values, _ = sources.ReplaceTexts(r.Values, swapped).(map[string]any)
	second, err := f.renderOnce(repeated, doubles{second: true})
	if err != nil {
		return nil, err
	}
	if slices.EqualFunc(first, second, func(a, b sources.Text) bool {
		return a.Name == b.Name && sources.RestoreSubstitutions(string(a.Data)) == restoreSecond(string(b.Data))
	}) {
		return first, nil
	}
	// The third rendering has the same tokens as the first, so a difference is caused by the clock or a random source.
	third, err := f.renderOnce(r, doubles{second: true})
	if err != nil {
		return nil, err
	}
	if err := compareRenderings(first, third, equalText); err != nil {
		return nil, &sources.Refusal{Text: err.Error() + " depends on the time or on random values", Expected: "a value for it in the configuration"}
	}
	if err := compareRenderings(first, second, equalRestored); err != nil {
		return nil, &sources.Refusal{Text: err.Error() + " contains a version in another form", Expected: "the unchanged version: not truncated, encoded or in other letters"}
	}
	return first, nil
}

func equalText(a, b sources.Text) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) }

func equalRestored(a, b sources.Text) bool {
	return a.Name == b.Name && firstDifference(string(a.Data), string(b.Data)) == ""
}

// compareRenderings returns an error for the first template whose two renderings differ.
func compareRenderings(first, second []sources.Text, eq func(a, b sources.Text) bool) error {
	for i, text := range first {
		switch {
		case i >= len(second):
			return errors.New(text.Name)
		case eq(text, second[i]):
			continue
		case text.Name != second[i].Name:
			return errors.New(text.Name)
		}
		line := firstDifference(string(text.Data), string(second[i].Data))
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

// renderOnce renders the chart once.
func (f files) renderOnce(r sources.Release, d doubles) ([]sources.Text, error) {
	loaded, err := f.load()
	if err != nil {
		return nil, err
	}
	capabilities, err := capabilitiesFor(r, loaded)
	if err != nil {
		return nil, err
	}
	given, _ := sources.ReplaceTexts(r.Values, func(text string) string { return text }).(map[string]any)
	if given == nil {
		given = map[string]any{}
	}
	if err := chartutil.ProcessDependencies(loaded, given); err != nil {
		return nil, errors.New(strict.OneLine(err.Error()))
	}
	options := common.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: true}
	values, err := util.ToRenderValuesWithSchemaValidation(loaded, given, options, capabilities, true)
	if err != nil {
		return nil, errors.New(strict.OneLine(sources.RestoreSubstitutions(err.Error())))
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
		return nil, errors.New(strict.OneLine(sources.RestoreSubstitutions(err.Error())))
	}
	return collect(loaded, rendered, r.CRDs), nil
}

func capabilitiesFor(r sources.Release, c *chart.Chart) (*common.Capabilities, error) {
	here := cmp.Or(r.KubeVersion, sources.KubeVersion)
	version, err := common.ParseKubeVersion(here)
	if err != nil {
		return nil, err
	}
	if needed := c.Metadata.KubeVersion; needed != "" && !chartutil.IsCompatibleRange(needed, version.Version) {
		return nil, &sources.Refusal{
			Text:     fmt.Sprintf("chart %s is for Kubernetes %s, and is rendered for %s", c.Name(), needed, here),
			Expected: "the cluster's own version as kubernetes.kubeVersion of its runtime, or an entry written by \"converge config lock --capabilities\"",
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

// collect sorts the texts and omits notes, empty texts and hooks that never run in a release: their names are often random.
func collect(c *chart.Chart, rendered map[string]string, crds bool) []sources.Text {
	var all []sources.Text
	if crds {
		for _, crd := range c.CRDObjects() {
			all = append(all, sources.Text{Name: crd.Filename, Data: crd.File.Data})
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
		all = append(all, sources.Text{Name: name, Data: []byte(withoutOtherHooks(separator.ReplaceAllString(rendered[name], documentSeparator)))})
	}
	return all
}

// separator matches Helm's object separator. It accepts more than YAML, because some charts begin the next object on the same line.
var separator = regexp.MustCompile(`(?:^|\s*\n)---\s*`)

const documentSeparator = "\n---\n"

// withoutOtherHooks replaces the objects that are hooks of tests only by as many empty lines.
func withoutOtherHooks(text string) string {
	if !strings.Contains(text, sources.HelmHook) {
		return text
	}
	documents := strings.Split(text, documentSeparator)
	for i, document := range documents {
		var object struct {
			Metadata struct{ Annotations map[string]any }
		}
		if yaml.Unmarshal([]byte(document), &object) == nil && !sources.IsDeployed(object.Metadata.Annotations) {
			documents[i] = strings.Repeat("\n", strings.Count(document, "\n"))
		}
	}
	return strings.Join(documents, documentSeparator)
}

// validate checks values against the schemas of a chart and its subcharts.
func validate(c *chart.Chart, values map[string]any) error {
	if c.Schema != nil {
		if err := sources.CheckValues(c.Schema, values); err != nil {
			return fmt.Errorf("values don't meet the specifications of the schema of chart %s: %w", c.Name(), err)
		}
	}
	for _, part := range c.Dependencies() {
		given, found := values[part.Name()]
		if !found || given == nil {
			continue
		}
		of, ok := given.(map[string]any)
		if !ok {
			return fmt.Errorf("the values of %s are not a mapping", part.Name())
		}
		if err := validate(part, of); err != nil {
			return err
		}
	}
	return nil
}
