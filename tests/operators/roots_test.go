package operators

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/converge-engine/converge/tests/programtest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
)

const scripts = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- name: edge
  runtimes: [{name: APP-rt}]
  protections: [{name: asked, interval: 100ms, command: {command: [./ask.sh]}}]
  extensions: [{name: warm, lifecycle: postApproval, command: [./warm.sh]}]
---
{apiVersion: converge/v1, kind: Service, name: web}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
custom: {apply: {command: [./apply.sh]}, retry: {maxAttempts: 1}}
`

// Commands, checks and extensions run on a worker that has the application elsewhere than where it was published from, which
// is gone; and publishing the same from there changes nothing.
func TestCommandsRunWhereTheWorkerHasThem_C7(t *testing.T) {
	t.Parallel()
	w := shared.Unserved(t, embedded.Options{})
	w.StartWorker()
	w.Write(scripts)
	for name, text := range map[string]string{"ask.sh": "pwd > asked", "warm.sh": "pwd > warmed", "apply.sh": "pwd > applied"} {
		programtest.Write(t, filepath.Join(w.Dir, name), "#!/bin/sh\n"+text+"\n")
	}
	first := w.Publish()
	w.StopWorker()
	there := filepath.Join(t.TempDir(), "there")
	require.NoError(t, os.Rename(w.Dir, there))

	w.StartWorkerAs(worker.Options{Roots: map[string]string{w.App: there}})
	w.Release("web", "v1")
	w.Await("web", "edge CONVERGED v1")
	for _, name := range []string{"asked", "warmed", "applied"} {
		text, err := os.ReadFile(filepath.Join(there, name))
		require.NoError(t, err)
		require.Equal(t, there+"\n", string(text), name)
	}
	again, err := publish.Publish(t.Context(), publish.Options{Client: w.Client, Dir: there, StoreURL: w.Store, By: "test", Fake: true})
	require.NoError(t, err)
	require.Equal(t, first.Hash, again.Hash)
	require.True(t, again.Unchanged, "not even the manifest differs")
	require.Equal(t, first.Incarnation, again.Incarnation)
}
