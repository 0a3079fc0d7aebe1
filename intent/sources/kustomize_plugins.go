package sources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"sigs.k8s.io/kustomize/api/types"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// Kustomize's builtin generators and transformers are functions of their configuration and of files. Others are programs or
// containers, which are never run.

// builtinPlugins are the builtin generators and transformers, with the fields that contain paths.
var builtinPlugins = map[string][]string{
	"AnnotationsTransformer": nil, "HashTransformer": nil, "IAMPolicyGenerator": nil, "ImageTagTransformer": nil, "LabelTransformer": nil,
	"NamespaceTransformer": nil, "PrefixSuffixTransformer": nil, "PrefixTransformer": nil, "ReplicaCountTransformer": nil, "SuffixTransformer": nil,
	"ValueAddTransformer": nil,
	"ConfigMapGenerator":  {"files", "envs", "env"}, "SecretGenerator": {"files", "envs", "env"},
	"PatchTransformer": {"path"}, "PatchJson6902Transformer": {"path"}, "PatchStrategicMergeTransformer": {"paths"},
	"ReplacementTransformer": {"replacements"},
}

// pluginFields gathers the generators, transformers and validators of a kustomization. Each becomes a file of its own with checked content,
// because paths in it are relative to the kustomization, and Kustomize tries a text as a configuration and as a path.
func (w *pathWalk) pluginFields(k *types.Kustomization) {
	fields := map[string][]string{"generators": k.Generators, "transformers": k.Transformers, "validators": k.Validators}
	for _, field := range strict.Keys(fields) {
		all := fields[field]
		for i, at := range all {
			if w.err != nil {
				return
			}
			text := []byte(at)
			if !strings.ContainsAny(at, "\n{") {
				text = w.pluginFile(field, at)
			}
			all[i] = w.inline(fmt.Sprintf("converge-%s-%d.yaml", field, i), w.plugin(field, text))
		}
	}
}

// inline adds a file to the directory of the kustomization, and returns its path.
func (w *pathWalk) inline(name string, text []byte) string {
	w.files[path.Join(w.dir, name)] = text
	return "./" + name
}

// pluginFile reads a file, or builds a directory, with the configurations of plugins.
func (w *pathWalk) pluginFile(field, at string) (text []byte) {
	full, ok := w.resolveInside(at)
	if !ok || at == "" {
		w.refuse(field, at)
		return nil
	}
	if info, err := fs.Stat(w.fsys, full); err == nil && info.IsDir() {
		text, err := w.pluginDirectory(full)
		if err != nil {
			w.err = fmt.Errorf("%s: %s: %w", w.name, field, err)
		}
		return text
	}
	text, err := w.text(full)
	if err != nil {
		w.err = &Refusal{fmt.Sprintf("%s: %s: %v", w.name, field, err), "a file with the configuration, its directory with a kustomization, or the configuration itself"}
	}
	return text
}

// Kustomize drops objects with this annotation from its result, although it uses them as configurations of plugins.
const (
	localConfig = "config.kubernetes.io/local-config"
	keptConfig  = "converge.invalid/local-config"
)

// pluginDirectory builds a kustomization whose objects are configurations of plugins. They are checked after the build, because the
// kustomization can change them. Kustomize then reads their paths relative to the kustomization that names the directory.
func (w *pathWalk) pluginDirectory(dir string) ([]byte, error) {
	built, found := w.plugins[dir]
	if found && built == nil {
		return nil, &Refusal{"a cycle: " + dir + " is being built", "a directory that does not refer to itself"}
	}
	if found {
		return built, nil
	}
	w.plugins[dir] = nil
	inner := &gatherer{fsys: w.fsys, files: map[string][]byte{}, read: w.read, size: w.size, plugins: w.plugins, locked: w.locked, configurations: true}
	data, err := inner.build(dir)
	w.size, w.charts = inner.size, w.charts || inner.charts
	if err != nil {
		return nil, err
	}
	data = bytes.ReplaceAll(data, []byte(keptConfig), []byte(localConfig))
	w.plugins[dir] = append([]byte{}, data...)
	return data, nil
}

// plugin returns a checked configuration of plugins.
func (w *pathWalk) plugin(field string, text []byte) []byte {
	var checked bytes.Buffer
	for document, err := range Documents(text) {
		if err != nil {
			w.err = errors.Join(w.err, fmt.Errorf("%s: %s: %w", w.name, field, err))
		}
		fields, _ := document.(map[string]any)
		if w.err != nil || fields == nil {
			continue
		}
		w.pluginPaths(field, fields)
		data, err := json.Marshal(fields)
		w.err = errors.Join(w.err, err)
		checked.WriteString("---\n" + string(data) + "\n")
	}
	return checked.Bytes()
}

// pluginPaths gathers the files of a builtin plugin, and refuses other plugins.
func (w *pathWalk) pluginPaths(field string, fields map[string]any) {
	kind, _ := fields["kind"].(string)
	paths, known := builtinPlugins[kind]
	switch {
	case fields["apiVersion"] != "builtin":
		w.err = &Refusal{
			fmt.Sprintf("%s: %s: %s is not built into Kustomize; programs and containers are never run", w.name, field, strict.Clip(kind)),
			"apiVersion: builtin, or the objects that it makes",
		}
	case kind == "HelmChartInflationGenerator":
		w.err = &Refusal{fmt.Sprintf("%s: %s: %s runs Helm", w.name, field, kind), "helmCharts in the kustomization"}
	case !known:
		w.err = &Refusal{fmt.Sprintf("%s: %s: Kustomize has no builtin %q", w.name, field, strict.Clip(kind)), "one of " + strict.OneOf(strict.Keys(builtinPlugins))}
	}
	for _, key := range strict.Keys(fields) {
		for _, name := range paths {
			if strings.EqualFold(key, name) { // as Kustomize matches it
				fields[key] = w.pluginPath(field, name, fields[key])
			}
		}
	}
}

// pluginPath gathers the files of a field of a plugin, and returns the field with other paths.
func (w *pathWalk) pluginPath(field, name string, value any) any {
	switch x := value.(type) {
	case string:
		switch {
		case name == "files":
			pair := types.KvPairSources{FileSources: []string{x}}
			w.pairs(field, &pair)
			return pair.FileSources[0]
		case name == "paths" && strings.ContainsAny(x, "\n{"):
			return w.inline(fmt.Sprintf("converge-%s-patch-%d.yaml", field, len(w.files)), []byte(x))
		}
		w.path(field, &x)
		return x
	case []any:
		for i := range x {
			x[i] = w.pluginPath(field, name, x[i])
		}
	case map[string]any: // a replacement
		for _, key := range strict.Keys(x) {
			if strings.EqualFold(key, "path") {
				x[key] = w.pluginPath(field, "path", x[key])
			}
		}
	}
	return value
}
