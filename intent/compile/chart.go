package compile

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
	"github.com/converge-engine/converge/intent/sources"
)

// maxReleaseName is Helm's limit, which leaves templates room for suffixes.
const maxReleaseName = 53

// helmDraft is the merged chart configuration of a service in one channel.
type helmDraft struct {
	at      string
	base    *config.ServiceHelm // the service's own; a layer may override the version
	chart   located[config.ServiceHelm]
	release string
	crds    bool
	files   []located[string]
	values  []located[map[string]any] // later layers win
}

// chart merges one layer: values are merged by key, all other fields are replaced.
func (d *kubernetesDraft) chart(in *strict.Decoder, at string, h *config.ServiceHelm) {
	if h == nil {
		return
	}
	if d.helm == nil {
		d.helm = &helmDraft{crds: true}
	}
	d.helm.at = at
	if at == "kubernetes.helm" {
		d.helm.base = h
	}
	switch {
	case h.Chart != "":
		d.helm.chart = located[config.ServiceHelm]{*h, at + ".chart"}
	case h.Version != "" || h.Repository != "":
		d.helm.chart = located[config.ServiceHelm]{h.InheritFrom(d.helm.base), at + ".version"}
	}
	d.helm.release = cmp.Or(string(h.ReleaseName), d.helm.release)
	if h.IncludeCRDs != nil {
		d.helm.crds = *h.IncludeCRDs
	}
	if in.Has(at + ".valuesFiles") {
		d.helm.files = locatedList(at+".valuesFiles", h.ValuesFiles)
	}
	if h.Values != nil {
		d.helm.values = append(d.helm.values, located[map[string]any]{h.Values.V, at + ".values"})
	}
}

// chart renders the chart of the service. This fixes the parameters that its values use.
func (b *objectSet) chart(doc *incarnation.Kubernetes) {
	h := b.draft.helm
	if h == nil {
		return
	}
	if h.chart.v.Chart == "" {
		if !b.Faulty(h.at) {
			b.fail(h.at, strict.Fault{Code: "missing-field", Message: "no chart is named", Expected: `"chart"`})
		}
		return
	}
	chart := b.inputs.Charts[b.chartKey(h)]
	values, fixed, ok := b.values(h)
	doc.Fixed = fixed
	if chart == nil || !ok {
		b.failed = true
		return // already reported
	}
	release := sources.Release{Name: cmp.Or(h.release, string(b.Spec.Name)), Namespace: b.namespace, Values: values, CRDs: h.crds}
	if cluster := b.runtimes[b.ref.name].Kubernetes; cluster != nil {
		release.KubeVersion, release.APIVersions = b.clusterVersion(), cluster.APIVersions
		if captured, ok := b.inputs.Captured.CapabilitiesOf(b.ref.name); ok && len(release.APIVersions) == 0 { // those that the runtime declares take precedence
			release.APIVersions, release.AllAPIs = captured.APIVersions(), true
		}
	}
	if len(release.Name) > maxReleaseName {
		b.fail(h.at, strict.Fault{Code: "bad-name", Message: fmt.Sprintf("%q is too long for a Helm release name", release.Name), Expected: fmt.Sprintf(`"releaseName" of at most %d characters`, maxReleaseName)})
		return
	}
	rendered := b.inputs.Render(b.chartKey(h), chart, release)
	for _, fault := range rendered.Faults {
		b.fail(h.chart.at, fault)
	}
	b.add(rendered, h.chart.at)
}

func (b *objectSet) chartKey(h *helmDraft) string {
	return sources.ChartKey(path.Dir(b.File), h.chart.v)
}

// values merges the value files and the layers of the service, and substitutes in them. It returns the parameters that they use,
// directly or through other parameters.
func (b *objectSet) values(h *helmDraft) (map[string]any, []string, bool) {
	fixing := *b.scope
	fixing.Fixing, fixing.Version, fixing.FullVersion = true, sources.Version, sources.FullVersion
	fixing.Params, fixing.UsedConstants, fixing.Pending = nil, nil, nil
	filler := &valuesSubstituter{objectSet: b, scope: &fixing}
	merged := map[string]any{}
	for _, name := range h.files {
		clean, fault := config.LocalFile(name.v)
		if fault != nil {
			continue // already reported
		}
		file := b.inputs.Values[path.Join(path.Dir(b.File), clean)]
		if file == nil {
			filler.failed = true
			continue // already reported
		}
		sources.MergeValues(merged, filler.mapping(located[map[string]any]{file.Values, ""}, file.Decoder))
	}
	for _, layer := range h.values {
		sources.MergeValues(merged, filler.mapping(layer, b.Decoder))
	}
	return merged, slices.Sorted(maps.Keys(fixing.Params)), !filler.failed
}

// valuesSubstituter substitutes in values.
type valuesSubstituter struct {
	*objectSet
	scope  *substitute.Scope
	from   *strict.Decoder
	failed bool
}

func (f *valuesSubstituter) mapping(layer located[map[string]any], from *strict.Decoder) map[string]any {
	f.from = from
	filled, _ := f.fill(layer.at, layer.v).(map[string]any)
	return filled
}

// fill returns a copy with the substitutions applied.
func (f *valuesSubstituter) fill(path string, v any) any {
	switch x := v.(type) {
	case map[string]any:
		all := make(map[string]any, len(x))
		for _, key := range strict.Keys(x) {
			if config.HasSubstitution(key) {
				f.reportFault(strict.Key(path, key), substitute.ScopedFault{Fault: strict.Fault{Code: "no-substitution", Message: "substitution is not supported in a key", Expected: `a key without "${{"`}})
			}
			all[key] = f.fill(strict.Key(path, key), x[key])
		}
		return all
	case []any:
		all := make([]any, 0, len(x))
		for i, item := range x {
			all = append(all, f.fill(strict.Index(path, i), item))
		}
		return all
	case string:
		if config.HasSubstitution(x) {
			return f.text(path, x)
		}
	}
	return v
}

func (f *valuesSubstituter) text(path, text string) any {
	result, t := f.scope.Expand(text)
	if t == nil && result.Kind == entities.ParamSecret {
		t = &substitute.ScopedFault{Fault: secretInObject(secretsOfKubernetes)}
	}
	if t == nil {
		return result.V
	}
	f.failed = true
	if t.Param == "" || t.Code == substitute.CodeNotFixed { // otherwise reported at the parameter
		f.reportFault(path, *t)
	}
	return nil
}

func (f *valuesSubstituter) reportFault(path string, t substitute.ScopedFault) {
	f.failed = true
	f.reportIn(f.from, path, f.scope.DisplayName(), t)
}
