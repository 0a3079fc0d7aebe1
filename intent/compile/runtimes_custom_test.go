package compile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/tests/intenttest"
)

// A configuration that was written for another deployer of such runtimes means the same in its own spelling.
func TestCommandSpellingsAreEquivalent_C1_C3(t *testing.T) {
	const shop = `apiVersion: converge/v1
kind: Application
name: shop
releaseChannels: [{name: prod, runtimes: [{name: edge}]}]
---
apiVersion: converge/v1
kind: Service
name: web
---
apiVersion: converge/v1
kind: Runtime
name: edge
custom:
`
	compiled := func(custom string) any { return intenttest.Text(t, shop+custom).Runtimes[0].Custom }
	require.Equal(t,
		compiled("  apply: {command: [a, b]}\n  fetch: {command: [f], mode: structured, timeout: 1m}\n  remove: {command: [r]}\n  plan: {command: [p]}\n  watch: {command: [w]}\n"),
		compiled("  apply: {program: {cmd: [a, b]}}\n  fetch: {program: {cmd: [f]}, fetchMode: STRUCTURED_OUTPUT, timeout: 1m}\n  remove: {program: {cmd: [r]}}\n  plan: {program: {cmd: [p]}}\n  watch: {program: {cmd: [w]}}\n"))
	require.Equal(t,
		compiled("  apply: {command: [a]}\n  fetch: {command: [f], mode: exitCode}\n"),
		compiled("  apply: {program: {cmd: [a]}}\n  fetch: {program: {cmd: [f]}}\n"))
}

// A program that is not there, or that is not executable, is a warning: only the workers have to have it.
func TestUnusableProgramsAreWarnings_C1(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"run": 0o755, "plain": 0o644} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, mode))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "converge.yaml"), []byte(`apiVersion: converge/v1
kind: Application
name: shop
releaseChannels: [{name: prod, runtimes: [{name: edge}]}]
---
{apiVersion: converge/v1, kind: Service, name: web}
---
apiVersion: converge/v1
kind: Runtime
name: edge
custom:
  apply: {command: [./run, apply]}
  fetch: {command: [./gone], mode: structured}
  remove: {command: [./plain]}
  plan: {command: [anywhere]}
`), 0o600))
	loaded, err := compile.Load(dir)
	require.NoError(t, err)
	compiled, err := compile.Compile(loaded)
	require.NoError(t, err)
	require.Equal(t, []string{
		"converge.yaml: runtime edge: ./gone does not exist beside it; the workers run it there",
		"converge.yaml: runtime edge: ./plain is not executable: chmod +x plain",
	}, compiled.Warnings)
}
