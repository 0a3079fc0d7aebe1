package compile_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/tests/intenttest"
)

func TestProblemsAsJSON(t *testing.T) {
	_, err := intenttest.Load(intenttest.One("drift: enforced\n"))
	var problems strict.Problems
	require.True(t, errors.As(err, &problems))
	data, err := json.Marshal(problems)
	require.NoError(t, err)
	require.JSONEq(t, `[{"code":"bad-value","file":"shop.converge.yaml","line":14,"column":8,"path":"drift",
		"message":"\"enforced\" is not possible here","expected":"one of enforce, observe","suggestion":"enforce"}]`, string(data))
}

func TestAliasesAndMergeKeysAreFollowed(t *testing.T) {
	compiled := intenttest.Text(t, `
apiVersion: converge/v1
kind: Application
name: shop
releaseChannels:
- &first
  name: staging
  labels: &labels {team: web, tier: staging}
  runtimes: &runtimes [{name: r}]
- name: canary
  labels: {<<: *labels, tier: canary}
  runtimes: *runtimes
- <<: [{name: prod, labels: {tier: prod}}, *first]
---
{apiVersion: converge/v1, kind: Runtime, name: r, fake: {}}
`)
	require.Equal(t, []incarnation.Channel{
		{Name: "staging", Labels: map[string]string{"team": "web", "tier": "staging"}},
		{Name: "canary", Labels: map[string]string{"team": "web", "tier": "canary"}},
		{Name: "prod", Labels: map[string]string{"tier": "prod"}},
	}, written(t, compiled).Channels)
}

// Nothing outside the directory is read, not even through a link.
func TestSymlinksOutsideAreRejected(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("s3cret"), 0o600))
	require.NoError(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "data")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "converge.yaml"), []byte(intenttest.One("custom: {files: [data]}\n")), 0o600))
	_, err := compile.Load(dir)
	require.ErrorContains(t, err, "converge.yaml:14:18: custom.files[0]: data cannot be read: path escapes from parent [no-file]")
	require.NotContains(t, err.Error(), "s3cret")
}

func TestUnreadableDirectory(t *testing.T) {
	_, err := compile.Load(filepath.Join(t.TempDir(), "gone"))
	require.ErrorContains(t, err, "gone: no such file or directory")
	var problems strict.Problems
	require.False(t, errors.As(err, &problems))
}

// What a watcher has to watch, and where commands start.
func TestFilesListsTheReadFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"app.converge.yaml":     strings.Split(intenttest.One(""), "---\n")[0],
		"edge/converge.yaml":    strings.Split(intenttest.One(""), "---\n")[1],
		"web/web.converge.yaml": "{apiVersion: converge/v1, kind: Service, name: web, custom: {files: [./data/a.txt]}}",
		"web/data/a.txt":        "A",
		"web/other.yaml":        "not: ours",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	config, err := compile.Load(dir)
	require.NoError(t, err)
	require.Equal(t, dir, config.Dir)
	require.Equal(t, []string{"app.converge.yaml", "edge/converge.yaml", "web/data/a.txt", "web/web.converge.yaml"}, config.Files)
	compiled, err := compile.Compile(config)
	require.NoError(t, err)
	require.Equal(t, "edge", compiled.Runtimes[0].Dir)
	payloads, err := incarnation.Render(compiled.Incarnation, "web", incarnation.RenderInput{Version: "v1"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"data/a.txt": "A"}, payloads["prod"].Custom.Files)
}
