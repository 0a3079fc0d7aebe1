package custom

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/secret"
)

func standalone(argv ...string) StandaloneCommand {
	return StandaloneCommand{
		ErrorPrefix: "check smoke of shop/web in prod", Purpose: "check", Argv: argv, Timeout: time.Minute,
		Instance: runtimes.Request{
			Owner:     runtimes.Owner{Application: "shop", Service: "web", ID: entities.InstanceID{Channel: "prod"}},
			ServiceID: "id-1", FullVersion: "v2",
		},
	}
}

// testWorker is a worker that knows one secret.
var testWorker = Worker{Secrets: secret.Environment{Allowed: []string{"*"}, Lookup: func(name string) (string, bool) { return "hunter22", name == "PASSWORD" }}}

// A command of no runtime gets the variables of a runtime's command, but for the instance: it
// is about all of a channel.
func TestStandaloneCommandGetsTheVariablesOfARuntimesCommand_A20_A21_C7(t *testing.T) {
	t.Parallel()
	o := standalone("sh", "-c", `echo "$PVN_APPLICATION $PVN_SERVICE $PVN_SERVICE_ID $PVN_SERVICE_VERSION $PVN_RELEASE_CHANNEL ${PVN_INSTANCE-none} $MINE"; exit 2`)
	o.Env = map[string]entities.Value{"MINE": {Literal: "a b"}, "PVN_SERVICE": {Literal: "forged"}}
	out, signal, err := RunStandalone(t.Context(), testWorker, o)
	require.NoError(t, err)
	require.Empty(t, signal)
	require.Equal(t, 2, out.ExitCode)
	require.Equal(t, "shop web id-1 v2 prod none a b\n", out.Stdout)
}

func TestStandaloneCommandHidesSecrets(t *testing.T) {
	t.Parallel()
	o := standalone("sh", "-c", `echo "out $P"; echo "err $P" >&2; exit 1`)
	o.Env = map[string]entities.Value{"P": {WorkerEnv: "PASSWORD"}}
	out, _, err := RunStandalone(t.Context(), testWorker, o)
	require.NoError(t, err)
	require.Equal(t, "out ***\n", out.Stdout)
	require.Equal(t, "err ***\n", out.Stderr)
	require.Equal(t, "x *** y", Redact("x hunter22 y", "hunter22"))
}

// What it has printed so far can be read while it runs, with secrets taken out.
func TestStandaloneCommandShowsItsOutput_C9(t *testing.T) {
	t.Parallel()
	held := filepath.Join(t.TempDir(), "held")
	o := standalone("sh", "-c", `echo "log in with $P"; echo careful >&2; touch "$1.seen"; until test -e "$1"; do sleep 0.01; done; echo done`, "sh", held)
	o.Env = map[string]entities.Value{"P": {WorkerEnv: "PASSWORD"}}
	ctx, progress := runtimes.WithProgress(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, _, err := RunStandalone(ctx, testWorker, o)
		ended <- err
	}()
	said := func() string {
		_, tail := progress.Snapshot(100)
		return tail
	}
	require.Eventually(t, func() bool { return said() == "log in with ***\ncareful" }, time.Minute, time.Millisecond) // two pipes
	require.NoError(t, os.WriteFile(held, nil, 0o600))
	require.NoError(t, <-ended)
	require.Equal(t, "log in with ***\ndone\ncareful", said())
}

func TestStandaloneCommandErrors(t *testing.T) {
	t.Parallel()
	unset := standalone("true")
	unset.Env = map[string]entities.Value{"P": {WorkerEnv: "NOWHERE"}}
	slow := standalone("sh", "-c", "exec sleep 600")
	slow.Timeout = 50 * time.Millisecond
	elsewhere := standalone("true")
	elsewhere.Job = &entities.CommandJob{Namespace: "n", Image: "i"}
	task := standalone("true")
	task.Task = &entities.CommandTask{TaskDefinition: "smoke:7"}
	for _, row := range []struct {
		name string
		once StandaloneCommand
		says string
	}{
		{"no command", standalone(), "has no command"},
		{"command not found", standalone("there-is-no-such-command"), "command there-is-no-such-command not found in PATH"},
		{"secret not set", unset, "P cannot be resolved from the worker's environment variable NOWHERE, which is not set"},
		{"too slow", slow, "sh did not finish within 50ms and was ended"},
		{"no clusters", elsewhere, "no cluster connections"},
		{"no tasks", task, "this worker cannot run tasks"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			out, _, err := RunStandalone(t.Context(), testWorker, row.once)
			require.Equal(t, row.name == "too slow", out.TimedOut)
			require.ErrorContains(t, err, "check smoke of shop/web in prod: "+"")
			require.ErrorContains(t, err, row.says)
		})
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := RunStandalone(gone, testWorker, standalone("true"))
	require.ErrorIs(t, err, context.Canceled)
}
