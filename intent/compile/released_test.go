package compile_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/intenttest"
)

var freeze = flag.String("freeze", "", "keep configurations with their digests as those of a released version, such as v2 (make freeze-configurations)")

const (
	released = "testdata/released" // a folder for each version, with an archive for each configuration
	digests  = "digests"           // the last file of it: what the version made of the others
)

// What a released version was given compiles to what it compiled to then, to the byte: nobody who upgrades converge gets a release of
// what he did not change (D4).
func TestReleasedConfigurationsCompileUnchanged_D4(t *testing.T) {
	require.Empty(t, changedSince(t, released)) // nothing is compared before the first release
}

// changedSince names the archives of a folder that compile to something else than they did.
func changedSince(t *testing.T, folder string) (changed []string) {
	t.Helper()
	archives, err := filepath.Glob(folder + "/v*/*.txtar")
	require.NoError(t, err)
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		require.NoError(t, err)
		last := len(archive.Files) - 1
		require.Equal(t, digests, archive.Files[last].Name)
		if string(archive.Files[last].Data) != digestsOf(t, archive.Files[:last]) {
			changed = append(changed, filepath.Base(name))
		}
	}
	return changed
}

// A configuration that is kept compiles as it did, and one that compiles to something else is named.
func TestFrozenConfigurationsAreCompared_D4(t *testing.T) {
	folder := t.TempDir()
	freezeConfigurations(t, filepath.Join(folder, "v1"), "v1")
	require.Empty(t, changedSince(t, folder))
	name := filepath.Join(folder, "v1", "shop.txtar")
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	end := len(data) - 2
	data[end] ^= 1 // of the last digest
	require.NoError(t, os.WriteFile(name, data, 0o600))
	require.Equal(t, []string{"shop.txtar"}, changedSince(t, folder))
}

// corpus are the configurations that are kept when a version is released.
var corpus = []string{"testdata/addons", "testdata/gates", "testdata/kubernetes", "testdata/plans", "testdata/shop", "../../examples/ecs"}

// TestFreezeConfigurations keeps them.
func TestFreezeConfigurations(t *testing.T) {
	if *freeze == "" {
		t.Skip("freezes only with -freeze VERSION: make freeze-configurations")
	}
	freezeConfigurations(t, filepath.Join(released, *freeze), *freeze)
}

func freezeConfigurations(t *testing.T, dir, version string) {
	t.Helper()
	require.NoDirExists(t, dir, "released configurations never change")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, from := range corpus {
		archive := txtar.Archive{Comment: []byte("What " + path.Base(from) + " was, and compiled to, when " + version + " was released.\n")}
		require.NoError(t, fs.WalkDir(os.DirFS(from), ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || slices.Contains([]string{".golden", ".md"}, path.Ext(name)) {
				return err
			}
			data, err := os.ReadFile(filepath.Join(from, name))
			archive.Files = append(archive.Files, txtar.File{Name: name, Data: data})
			return err
		}))
		kept := txtar.Parse(txtar.Format(&archive)) // every file ends in a line
		kept.Files = append(kept.Files, txtar.File{Name: digests, Data: []byte(digestsOf(t, kept.Files))})
		require.NoError(t, os.WriteFile(filepath.Join(dir, path.Base(from)+".txtar"), txtar.Format(kept), 0o644))
	}
}

// digestsOf compiles files, and names all that comes of them: content and definitions of checks and extensions are named by these.
func digestsOf(t *testing.T, files []txtar.File) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range files {
		path := filepath.Join(dir, filepath.FromSlash(file.Name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, file.Data, 0o600))
	}
	compiled := intenttest.Dir(t, dir)
	specs, err := compiled.Specs()
	require.NoError(t, err)
	manifest := incarnation.ManifestOf(specs)
	lines := "incarnation " + compiled.Incarnation.Hash() + "\n"
	for _, service := range entities.SortedKeys(manifest) {
		lines += fmt.Sprintf("service %s %s\n", service, manifest[service])
	}
	for _, runtime := range compiled.Runtimes {
		lines += fmt.Sprintf("runtime %s %s\n", runtime.Name, entities.DigestOf(runtime))
	}
	return lines
}
