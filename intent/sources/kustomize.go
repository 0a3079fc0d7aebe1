package sources

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"

	"sigs.k8s.io/kustomize/api/types"

	"github.com/converge-engine/converge/intent/internal/strict"
)

var kustomizationNames = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// Kustomize builds the kustomization in a directory of fsys. It also returns the files that were read, even if the build fails. It
// rejects remote bases, and plugins that are not built into Kustomize. Charts that are not in the kustomization come from the lock; nil has none.
func Kustomize(fsys fs.FS, dir string, locked lockedCharts) (Text, []string, error) {
	g := &gatherer{fsys: fsys, files: map[string][]byte{}, read: map[string]bool{}, plugins: map[string][]byte{}, locked: locked}
	data, err := g.build(dir)
	read := strict.Keys(g.read)
	if err != nil {
		return Text{}, read, err
	}
	return Text{Name: "kustomization " + dir, Data: data, charts: g.charts}, read, nil
}

// gatherer collects all inputs of a kustomization before the build. Kustomize sees only these files. It sees each kustomization in its
// checked form: decoded by Kustomize's own decoder, and encoded again without other fields and paths.
type gatherer struct {
	fsys  fs.FS
	files map[string][]byte
	read  map[string]bool
	size  int64
	// plugins are the built directories with configurations of plugins; nil: it is being built.
	plugins map[string][]byte
	// configurations reports that the objects are configurations of plugins (pluginDirectory).
	configurations bool

	locked lockedCharts
	charts bool // the kustomization has charts
}

// build gathers and builds the kustomization in a directory.
func (g *gatherer) build(dir string) ([]byte, error) {
	if err := g.kustomization(dir); err != nil {
		return nil, err
	}
	answer, err := render(Order{Kustomization: dir, Files: g.files})
	if err != nil {
		return nil, err
	}
	return answer.Texts[0].Data, checkDigits(g.files, answer.Texts[0].Data)
}

// kustomization gathers the kustomization in a directory and everything that it refers to.
func (g *gatherer) kustomization(dir string) error {
	name, text, err := g.find(dir)
	if err != nil || g.files[name] != nil {
		return err
	}
	k := &types.Kustomization{}
	if err := k.Unmarshal(text); err != nil {
		return fmt.Errorf("%s: %s", name, strict.OneLine(err.Error()))
	}
	k.FixKustomization() // converts deprecated fields
	if len(k.HelmChartInflationGenerator) > 0 {
		return &Refusal{name + ": helmChartInflationGenerator runs Helm", "helmCharts"}
	}
	if g.configurations {
		k.SortOptions = nil // only the outermost kustomization sorts
	}
	g.files[name] = []byte{} // it may refer to itself, which Kustomize rejects
	w := &pathWalk{gatherer: g, name: name, dir: dir}
	w.kustomization(k)
	w.pluginFields(k)
	w.inflate(k)
	if w.err != nil {
		return w.err
	}
	g.files[name], err = json.Marshal(k)
	return err
}

// find returns the one kustomization of a directory.
func (g *gatherer) find(dir string) (name string, text []byte, err error) {
	for _, base := range kustomizationNames {
		candidate := path.Join(dir, base)
		if _, err := fs.Stat(g.fsys, candidate); err != nil {
			continue
		}
		if name != "" {
			return "", nil, fmt.Errorf("both %s and %s exist", name, base)
		}
		name = candidate
	}
	if name == "" {
		return "", nil, fmt.Errorf("there is no kustomization.yaml in %s", dir)
	}
	text, err = g.text(name)
	return name, text, err
}

// text reads a file.
func (g *gatherer) text(name string) ([]byte, error) {
	info, err := fs.Stat(g.fsys, name)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", name, strict.Reason(err))
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	if !g.read[name] {
		g.size += info.Size()
	}
	if g.size > MaxTree {
		return nil, fmt.Errorf("the files of the kustomization have more than %d bytes", MaxTree)
	}
	text, err := fs.ReadFile(g.fsys, name)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", name, strict.Reason(err))
	}
	g.read[name] = true
	if g.configurations {
		text = bytes.ReplaceAll(text, []byte(localConfig), []byte(keptConfig))
	}
	return text, nil
}

// pathWalk visits every path in a kustomization, gathers the files, and rewrites the path so that it cannot be an address. It stops at
// the first path that does not exist inside the directory.
type pathWalk struct {
	*gatherer
	name, dir string // of the kustomization and of its directory
	err       error
}

// kustomization visits the fields that contain paths. A test checks that each field of Kustomize's type is classified.
func (w *pathWalk) kustomization(k *types.Kustomization) {
	w.list("resources", k.Resources)
	w.list("components", k.Components)
	w.list("crds", k.Crds)
	w.list("configurations", k.Configurations)
	w.entry("openapi", k.OpenAPI, "path")
	for i := range k.Patches {
		w.path("patches", &k.Patches[i].Path)
	}
	for i := range k.PatchesJson6902 { //nolint:staticcheck // people use it, and Kustomize still reads it
		w.path("patchesJson6902", &k.PatchesJson6902[i].Path) //nolint:staticcheck // as above
	}
	for i := range k.PatchesStrategicMerge { //nolint:staticcheck // people use it, and Kustomize still reads it
		w.patch(i, &k.PatchesStrategicMerge[i]) //nolint:staticcheck // as above
	}
	for i := range k.Replacements {
		w.path("replacements", &k.Replacements[i].Path)
	}
	for i := range k.ConfigMapGenerator {
		w.pairs("configMapGenerator", &k.ConfigMapGenerator[i].KvPairSources)
	}
	for i := range k.SecretGenerator {
		w.pairs("secretGenerator", &k.SecretGenerator[i].KvPairSources)
	}
}

func (w *pathWalk) list(field string, paths []string) {
	for i := range paths {
		if paths[i] == "" {
			w.refuse(field, paths[i])
		}
		w.path(field, &paths[i])
	}
}

// entry visits a path that is a value of a mapping.
func (w *pathWalk) entry(field string, of map[string]string, key string) {
	if at, given := of[key]; given {
		w.path(field, &at)
		of[key] = at
	}
}

// pairs visits the files of a generator, which may have a key: key=path.
func (w *pathWalk) pairs(field string, from *types.KvPairSources) {
	for i, text := range from.FileSources {
		key, file, keyed := strings.Cut(text, "=")
		if !keyed {
			file = key
			key = path.Base(file)
		}
		w.path(field, &file)
		from.FileSources[i] = key + "=" + file
	}
	w.list(field, from.EnvSources)
}

// patch writes an inline patch to a file, because Kustomize tries a text as both.
func (w *pathWalk) patch(i int, patch *types.PatchStrategicMerge) {
	at := string(*patch)
	if strings.ContainsAny(at, "\n{") {
		*patch = types.PatchStrategicMerge(w.inline(fmt.Sprintf("converge-patch-%d.yaml", i), []byte(*patch)))
		return
	}
	w.path("patchesStrategicMerge", &at)
	*patch = types.PatchStrategicMerge(at)
}

// path gathers the target of a path. The new path begins with a dot, unlike the address of a repository or a server.
func (w *pathWalk) path(field string, at *string) {
	if w.err != nil || *at == "" {
		return
	}
	full, ok := w.resolveInside(*at)
	if !ok {
		w.refuse(field, *at)
		return
	}
	info, err := fs.Stat(w.fsys, full)
	switch {
	case err != nil:
		w.err = &Refusal{fmt.Sprintf("%s: %s: there is no %q", w.name, field, *at), "a file or directory in the directory of the configuration; nothing is fetched"}
	case info.IsDir():
		w.err = w.gatherer.kustomization(full)
	case slices.Contains(kustomizationNames, path.Base(full)):
		w.err = &Refusal{fmt.Sprintf("%s: %s: %q is a kustomization", w.name, field, *at), "its directory"}
	case w.files[full] == nil:
		w.files[full], w.err = w.text(full)
	}
	if *at = path.Clean(*at); !strings.HasPrefix(*at, "../") {
		*at = "./" + *at
	}
}

// resolveInside returns the fs.FS name of a path of the kustomization, if it is a path inside the file system.
func (w *pathWalk) resolveInside(at string) (string, bool) {
	unusual := func(r rune) bool { return r == '\\' || r == ':' || unicode.IsControl(r) }
	full := path.Join(w.dir, at)
	return full, !path.IsAbs(at) && !strings.ContainsFunc(at, unusual) && fs.ValidPath(full)
}

func (w *pathWalk) refuse(field, at string) {
	if w.err == nil {
		w.err = &Refusal{fmt.Sprintf("%s: %s: %q is not a path inside the configuration", w.name, field, strict.Clip(at)), "a path to a file or directory in the directory of the configuration; nothing is fetched"}
	}
}
