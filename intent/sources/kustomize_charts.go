package sources

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/sops"
)

// Charts in a kustomization are rendered like those of services before the build, because Kustomize would run Helm. The results become
// resources.

// lockedCharts returns the charts of a lock. A nil chart without an error is skipped.
type lockedCharts interface {
	lockedChart(named config.ServiceHelm) (*Chart, error)
}

// lockedChart returns a chart of the configuration's lock.
func (l *objectLoader) lockedChart(named config.ServiceHelm) (*Chart, error) {
	if fault := l.remoteChart(named); fault != nil {
		return nil, &Refusal{fault.Message, fault.Expected}
	}
	return l.into.Charts[ChartKey("", named)], nil
}

// inflate replaces the charts of a kustomization by their rendered objects.
func (w *pathWalk) inflate(k *types.Kustomization) {
	for i := range k.HelmCharts {
		if w.err != nil {
			return
		}
		if err := w.chart(k, i); err != nil {
			refused := new(Refusal)
			at := fmt.Sprintf("%s: helmCharts[%d]: ", w.name, i)
			if errors.As(err, &refused) {
				w.err = &Refusal{at + refused.Text, refused.Expected}
			} else {
				w.err = fmt.Errorf("%s%w", at, err)
			}
		}
	}
	k.HelmCharts, k.HelmGlobals = nil, nil
}

func (w *pathWalk) chart(k *types.Kustomization, i int) error {
	h := k.HelmCharts[i]
	w.charts = true
	if err := unusableChart(h, k.HelmGlobals); err != nil {
		return err
	}
	values, err := w.values(h)
	if err != nil {
		return err
	}
	home := types.HelmDefaultHome
	if k.HelmGlobals != nil && k.HelmGlobals.ChartHome != "" {
		home = k.HelmGlobals.ChartHome
	}
	chart, err := w.loadChart(h, home)
	if err != nil || chart == nil {
		return err
	}
	texts, err := chart.Render(Release{
		Name: h.ReleaseName, Namespace: orDefault(h.Namespace), Values: values, CRDs: h.IncludeCRDs, KubeVersion: h.KubeVersion, APIVersions: h.ApiVersions,
	})
	if err != nil {
		return err
	}
	var all strings.Builder
	for _, text := range texts {
		all.WriteString("---\n" + RestoreSubstitutions(string(text.Data)) + "\n")
	}
	if all.Len() > 0 {
		file := fmt.Sprintf("converge-helm-chart-%d.yaml", i)
		w.files[path.Join(w.dir, file)] = []byte(all.String())
		k.Resources = append(k.Resources, "./"+file)
	}
	return nil
}

func orDefault(namespace string) string {
	if namespace == "" {
		return "default"
	}
	return namespace
}

// unusableChart rejects options that make the result non-deterministic or use Helm's own files.
func unusableChart(h types.HelmChart, globals *types.HelmGlobals) error {
	switch {
	case globals != nil && globals.ConfigHome != "":
		return &Refusal{"helmGlobals.configHome is not supported", "no such field"}
	case h.ReleaseName == "":
		return &Refusal{"the release has no name", `"releaseName"`}
	case h.NameTemplate != "" || h.Devel || h.Debug:
		return &Refusal{"nameTemplate, devel and debug are not supported", "releaseName, and a version in version"}
	case h.SkipHooks:
		return &Refusal{"skipHooks is not supported: a patch can remove hooks", "no such field"}
	case h.Name == "" || strings.ContainsAny(h.Name, "/\\:") || strings.HasPrefix(h.Name, "."):
		return &Refusal{fmt.Sprintf("invalid chart name %q", strict.Clip(h.Name)), "its name in the repository, or its directory below helmGlobals.chartHome"}
	}
	return nil
}

// loadChart returns the chart in the charts directory, else the chart of the lock.
func (w *pathWalk) loadChart(h types.HelmChart, home string) (*Chart, error) {
	dir, ok := w.resolveInside(path.Join(home, h.Name))
	if !ok {
		return nil, &Refusal{fmt.Sprintf("%q is not a path inside the configuration", strict.Clip(home)), "a directory in the directory of the configuration"}
	}
	if info, err := fs.Stat(w.fsys, dir); err == nil && info.IsDir() {
		chart, files, err := ReadChart(w.fsys, dir, w.locked)
		for _, file := range files {
			w.read[file] = true
		}
		return chart, err
	}
	if h.Repo == "" {
		return nil, &Refusal{fmt.Sprintf("there is no chart in %s, and no repository is named", dir), `the chart there, or "repo" and "version"`}
	}
	named := config.ServiceHelm{Chart: h.Name, Repository: h.Repo, Version: h.Version}
	if _, fault := chartFault(&named, named); fault != nil {
		return nil, &Refusal{fault.Message, fault.Expected}
	}
	if w.locked == nil {
		return nil, &Refusal{fmt.Sprintf("chart %s is not in converge.lock", h.Name), lockCommand}
	}
	return w.locked.lockedChart(named)
}

// values merges the values of the files and the inline values as Kustomize does.
func (w *pathWalk) values(h types.HelmChart) (map[string]any, error) {
	files := map[string]any{}
	for _, name := range append([]string{h.ValuesFile}, h.AdditionalValuesFiles...) {
		if name == "" {
			continue
		}
		full, ok := w.resolveInside(name)
		if !ok {
			return nil, &Refusal{fmt.Sprintf("%q is not a path inside the configuration", strict.Clip(name)), "a file in the directory of the configuration"}
		}
		text, err := w.text(full)
		if err != nil {
			return nil, err
		}
		var values map[string]any
		if err := yaml.Unmarshal(text, &values, useNumber); err != nil {
			return nil, fmt.Errorf("%s: %s", full, strict.OneLine(err.Error()))
		}
		values, _ = replaced(values, number).(map[string]any)
		if sops.Is(values) {
			return nil, &Refusal{full + " is encrypted by SOPS, and charts are rendered without keys", "values without secrets"}
		}
		mergeInto(files, values)
	}
	inline := maps.Clone(h.ValuesInline)
	if err := rejectRounded(inline); err != nil {
		return nil, err
	}
	switch h.ValuesMerge {
	case "", "override":
		mergeInto(files, inline)
	case "merge":
		if inline == nil {
			inline = map[string]any{}
		}
		mergeInto(inline, files)
		files = inline
	case "replace":
		files = inline
	default:
		return nil, &Refusal{fmt.Sprintf("valuesMerge is %q", strict.Clip(h.ValuesMerge)), "override, merge or replace"}
	}
	return replaceTokens(files)
}

func useNumber(d *json.Decoder) *json.Decoder {
	d.UseNumber()
	return d
}

// rejectRounded rejects whole numbers from 2^53 on in values that Kustomize has read, because it rounds them.
func rejectRounded(inline map[string]any) (refusal error) {
	replaced(inline, func(v any) any {
		if f, ok := v.(float64); ok && f == math.Trunc(f) && math.Abs(f) >= 1<<53 {
			refusal = &Refusal{"Kustomize rounds a number in valuesInline to " + strconv.FormatFloat(f, 'f', -1, 64), "the number in quotes, or in a valuesFile"}
		}
		return v
	})
	return refusal
}

// mergeInto merges values into others by key, recursively for mappings.
func mergeInto(into, values map[string]any) {
	for key, value := range values {
		inner, ok := value.(map[string]any)
		existing, isMapping := into[key].(map[string]any)
		if ok && isMapping {
			existing = maps.Clone(existing)
			mergeInto(existing, inner)
			value = existing
		}
		into[key] = value
	}
}

// replaceTokens replaces the version by tokens, because only the version may be open in a chart. It converts integral numbers to integers.
func replaceTokens(values map[string]any) (map[string]any, error) {
	var refusal error
	tokens := strings.NewReplacer("${{ version }}", Version, "${{version}}", Version, "${{ fullVersion }}", FullVersion, "${{fullVersion}}", FullVersion)
	result, _ := replaced(values, func(v any) any {
		switch v := v.(type) {
		case string:
			text := tokens.Replace(v)
			if config.HasSubstitution(text) {
				refusal = &Refusal{fmt.Sprintf("%q is not supported in the values of this chart", strict.Clip(v)), "${{ version }}, ${{ fullVersion }}, or the chart as kubernetes.helm of the service"}
			}
			return text
		case float64:
			if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
				return int64(v)
			}
		}
		return v
	}).(map[string]any)
	return result, refusal
}
