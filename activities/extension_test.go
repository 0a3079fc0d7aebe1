package activities

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/converge-engine/converge/tests/programtest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// extension stores the definition of a shell script and returns the request to run it.
func extension(t *testing.T, a *Activities, script string) protocol.ExtensionRequest {
	t.Helper()
	dir := t.TempDir()
	a.Roots = Roots{"shop": dir}
	programtest.Write(t, filepath.Join(dir, "run"), "#!/bin/sh\n"+script)
	digest, err := a.Store.PutExtension(t.Context(), entities.ExtensionDefinition{
		Application: "shop", Service: "web", Name: "migrate", Dir: ".",
		Command: entities.Command{Argv: []string{"./run", "${{ version }}", "to-${{fullVersion}}"}},
		Env: map[string]entities.Value{
			"TAG": {Literal: "${{ fullVersion }}"}, "PASSWORD": {WorkerEnv: "EXTENSION_PASSWORD"}, "CONVERGE_RELEASE": {Literal: "mine"},
		},
	})
	require.NoError(t, err)
	return protocol.ExtensionRequest{
		Application: "shop", Service: "web", ServiceID: "shop.web", Channel: "prod", Release: "r7", Version: "v7", FullVersion: "v7-i4",
		Name: "migrate", Key: "preApproval/migrate@prod", Definition: digest, Attempt: 2, Timeout: time.Minute,
	}
}

func TestExtension_A21(t *testing.T) {
	t.Setenv("EXTENSION_PASSWORD", "hunter2hunter2")
	a := newActivities(t, &server{})
	r := extension(t, a, `
echo "$1 $2 $TAG"
env | grep -E '^(PVN|CONVERGE)_' | sort
echo "$PASSWORD" >&2
`)
	answer, _, err := run[protocol.ExtensionAnswer](t, a.Extension, r)
	require.NoError(t, err)
	require.Equal(t, protocol.ExtensionAnswer{Log: answer.Log, Tail: strings.TrimSpace(`
v7 to-v7-i4 v7-i4
CONVERGE_ATTEMPT=2
CONVERGE_EXTENSION_KEY=preApproval/migrate@prod
CONVERGE_RELEASE=r7
PVN_APPLICATION=shop
PVN_RELEASE_CHANNEL=prod
PVN_SERVICE=web
PVN_SERVICE_ID=shop.web
PVN_SERVICE_VERSION=v7-i4
***`)}, answer)
	logs, err := a.Store.Logs(t.Context(), "shop", "web", "prod")
	require.NoError(t, err)
	require.Len(t, logs, 1)
	require.Equal(t, store.LogExtension, logs[0].Kind)
	require.Equal(t, "migrate", logs[0].Name)
	require.Equal(t, 2, logs[0].Attempt)
	require.Equal(t, "***\n", logs[0].Stderr)
	require.True(t, strings.HasPrefix(answer.Log, "logs/shop/web/prod/extension/migrate/"), answer.Log)
	require.Empty(t, a.runningApplies)

	// After a rollback the script gets the version that was restored.
	r.BackTo, r.Restarts = "v6", 1
	answer, _, err = run[protocol.ExtensionAnswer](t, a.Extension, r)
	require.NoError(t, err)
	require.Contains(t, answer.Tail, "CONVERGE_ROLLED_BACK_TO=v6\n")
}

// A failed command is an answer. Temporal does not retry it; the rules of the release decide what follows.
func TestExtensionThatFails_A21(t *testing.T) {
	t.Setenv("EXTENSION_PASSWORD", "hunter2hunter2")
	a := newActivities(t, &server{})
	for script, text := range map[string]string{
		"echo so far; echo \"cannot reach $PASSWORD@db\" >&2; exit 3": "./run exited 3: cannot reach ***@db",
		"kill -9 $$": "./run was ended by signal killed",
		"exit 1":     "./run exited 1",
	} {
		answer, _, err := run[protocol.ExtensionAnswer](t, a.Extension, extension(t, a, script))
		require.NoError(t, err)
		require.Equal(t, text, answer.Err)
		require.NotEmpty(t, answer.Log)
	}

	r := extension(t, a, "exec sleep 60")
	r.Timeout = 50 * time.Millisecond
	answer, _, err := run[protocol.ExtensionAnswer](t, a.Extension, r)
	require.NoError(t, err)
	require.Contains(t, answer.Err, "did not finish within 50ms")

	r = extension(t, a, "exit 0")
	require.NoError(t, os.Unsetenv("EXTENSION_PASSWORD"))
	answer, _, err = run[protocol.ExtensionAnswer](t, a.Extension, r)
	require.NoError(t, err)
	require.Contains(t, answer.Err, "extension migrate of shop/web in prod: PASSWORD cannot be resolved from the worker's environment variable EXTENSION_PASSWORD")
}

// An unreadable definition is not a failure of the extension: the server retries.
func TestExtensionWithoutItsDefinition(t *testing.T) {
	a := newActivities(t, &server{})
	_, _, err := run[protocol.ExtensionAnswer](t, a.Extension, protocol.ExtensionRequest{
		Application: "shop", Service: "web", Name: "migrate", Definition: strings.Repeat("0", 64),
	})
	require.ErrorContains(t, err, "extension migrate of shop/web: the store has no extensions/")
	require.False(t, applicationError(t, err).NonRetryable())
}

func TestExtensionTailIsBounded_A21(t *testing.T) {
	t.Setenv("EXTENSION_PASSWORD", "hunter2hunter2")
	a := newActivities(t, &server{})
	answer, _, err := run[protocol.ExtensionAnswer](t, a.Extension, extension(t, a, `
i=0; while [ $i -lt 300 ]; do echo "zähle $i"; i=$((i+1)); done; exit 1`))
	require.NoError(t, err)
	require.LessOrEqual(t, len(answer.Tail), 500)
	require.Greater(t, len(answer.Tail), 480)
	require.True(t, strings.HasSuffix(answer.Tail, "zähle 299"))
	require.Equal(t, "./run exited 1: zähle 299", answer.Err)
	logs, err := a.Store.Logs(t.Context(), "shop", "web", "prod")
	require.NoError(t, err)
	require.Contains(t, logs[0].Stdout, "zähle 0\n", "the store has all of it")
}
