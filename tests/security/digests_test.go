package security

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/worker/embedded"
)

const digested = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- name: production
  runtimes: [{name: APP-rt}]
  protections: [{name: open, always: {verdict: PASS}}]
  extensions: [{name: warm, lifecycle: postApproval, command: ["true"]}]
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
`

// Everything that rules and payloads consist of is named by the whole SHA-256 of its content, in the store and by what names
// it: two of one name cannot be made, and what was put in the place of something is not taken for it.
func TestContentIsNamedByWholeDigests(t *testing.T) {
	t.Parallel()
	w := shared.OwnServerWith(t, embedded.Options{})
	w.Write(digested + stage.Web)
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "production CONVERGED v1")
	for _, folder := range []string{"incarnations", "specs", "manifests", "payloads", "checks", "extensions"} {
		files, err := os.ReadDir(filepath.Join(w.Store, folder))
		require.NoError(t, err, folder)
		require.NotEmpty(t, files, folder)
		for _, f := range files {
			data, err := os.ReadFile(filepath.Join(w.Store, folder, f.Name()))
			require.NoError(t, err)
			sum := sha256.Sum256(data)
			require.Equal(t, hex.EncodeToString(sum[:]), f.Name(), folder)
		}
	}
	s, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	defer s.Close()
	status := w.Status("web")
	require.Len(t, status.Spec, 2*sha256.Size)
	spec, err := s.Spec(t.Context(), status.Spec)
	require.NoError(t, err)
	require.Len(t, spec.Runtime(w.App+"-rt").Digest, 2*sha256.Size)
	check := spec.Channels[0].Checks[0].Definition
	file := filepath.Join(w.Store, "checks", check)
	require.NoError(t, os.WriteFile(file, []byte(`{"kind":"always","always":{"verdict":"PASS"}}`), 0o600))
	other, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	defer other.Close()
	_, err = other.Check(t.Context(), check)
	require.True(t, store.IsDamaged(err), "%v", err)
}
