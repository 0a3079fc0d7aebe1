package publish

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/origin"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/tests/gittest"
)

const shop = `apiVersion: converge/v1
kind: Application
name: shop
releaseChannels: [{name: prod, runtimes: [{name: edge}]}]
`

const edge = `---
apiVersion: converge/v1
kind: Runtime
name: edge
custom: {apply: {command: [./apply]}}
`

// fetchTree fetches a configuration from the directory deploy of a repository.
func fetchTree(t *testing.T, files map[string]string) origin.Tree {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	r := gittest.New(t)
	r.Commit(t, "look", files)
	s, err := origin.Parse("git::" + r.URL() + "//deploy")
	require.NoError(t, err)
	tree, err := s.Fetch(t.Context(), nil)
	require.NoError(t, err)
	return tree
}

// Commands of a repository run only if the user who fetched it allowed that. They get no more of the user's environment than any
// other command.
func TestRepositoryCommandsNeedPermission_D8_G4(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
	for field, command := range map[string]string{"generators": "env > " + ran, "validators": "env > " + ran} {
		tree := fetchTree(t, map[string]string{
			"deploy/converge.yaml": shop + field + ": [{command: [sh, -c, '" + command + "']}]\n" + edge,
		})
		load := func(allowed bool) error {
			_, err := compile.LoadWith(tree.Dir, config.Options{Within: tree.Root, RunCommand: Commands(t.Context(), allowed)})
			return err
		}
		require.ErrorContains(t, load(false), "[commands-not-allowed]", field)
		require.NoFileExists(t, ran)
		require.NoError(t, load(true), field)
		env, err := os.ReadFile(ran)
		require.NoError(t, err)
		require.Contains(t, string(env), "PATH=")
		require.NotContains(t, string(env), "s3cret")
		require.NoError(t, os.Remove(ran))
	}
}

// A validator that refuses, cannot be run, or does not end prevents the publication.
func TestValidatorsRefuse_D3_D8(t *testing.T) {
	for command, want := range map[string]string{
		"[sh, -c, 'grep -q shop && exit 7']":            "sh exited 7 [refused-by-validator]",
		"[sh, -c, 'echo converge.yaml:3:7: no; false']": "converge.yaml:3:7: no [refused-by-validator]",
		"[sh, -c, 'echo /etc/passwd:3:7: no; false']":   "converge.yaml:5:24: validators[0].command: /etc/passwd:3:7: no [refused-by-validator]",
		"[./absent]":                   "[command-failed]",
		"[sh, -c, 'yes']":              "sh printed more than",
		"[sleep, '60'], timeout: 50ms": "sleep did not finish within 50ms and was ended [command-failed]",
		"[]":                           "there is no program",
	} {
		tree := fetchTree(t, map[string]string{"deploy/converge.yaml": shop + "validators: [{command: " + command + "}]\n" + edge})
		_, err := compile.LoadWith(tree.Dir, config.Options{RunCommand: Commands(t.Context(), true)})
		require.ErrorContains(t, err, want, command)
		require.True(t, errors.As(err, new(config.Problems)))
	}
}

// A library of a repository is inside it.
func TestLibraryPathsStayInTheRepository_G4(t *testing.T) {
	outside := t.TempDir()
	library := "apiVersion: converge/v1\nkind: Library\nname: common\nversion: 1\nreleaseChannels: [{name: dev, runtimes: [{name: edge}]}]\n"
	require.NoError(t, os.WriteFile(filepath.Join(outside, "converge.yaml"), []byte(library), 0o600))
	load := func(path string) error {
		tree := fetchTree(t, map[string]string{
			"deploy/converge.yaml": shop + "imports: [{name: common, version: 1, path: " + path + "}]\n" + edge, "common/converge.yaml": library,
		})
		relative, err := filepath.Rel(tree.Dir, outside)
		require.NoError(t, err)
		if path == "OUT" {
			require.NoError(t, os.WriteFile(filepath.Join(tree.Dir, "converge.yaml"),
				[]byte(shop+"imports: [{name: common, version: 1, path: "+filepath.ToSlash(relative)+"}]\n"+edge), 0o600))
			_, err = compile.LoadWith(tree.Dir, config.Options{})
			require.NoError(t, err, "it is read without Within")
		}
		_, err = compile.LoadWith(tree.Dir, config.Options{Within: tree.Root})
		return err
	}
	require.NoError(t, load("../common"))
	require.ErrorContains(t, load("OUT"), "[no-library]")
}
