//go:build unix

package custom

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// onPath builds the wrapper, under the name that scripts know.
func onPath(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "converge-wrapper"), "github.com/converge-engine/converge/cmd/converge-wrapper")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

func wrapped(flags []string, script string) entities.Command {
	return entities.Command{Argv: append(append([]string{"converge-wrapper", "exec"}, flags...), "--", "sh", "-c", script)}
}

// A command that is written for a cluster, in a wrapper, means the same on a worker's machine.
func TestWrappersDocumentIsUnwrapped_C8(t *testing.T) {
	onPath(t)
	t.Setenv("DB_PASSWORD", "hunter22")
	observe := func(t *testing.T, mode entities.FetchMode, fetch entities.Command) ([]entities.Object, runtimes.Output, error) {
		t.Helper()
		return newRuntime(t, t.TempDir(), entities.CustomRuntime{
			Apply: sh("true"), Fetch: &fetch, Mode: mode, Env: map[string]entities.Value{"PASSWORD": {WorkerEnv: "DB_PASSWORD"}},
		}).ObserveOutput(t.Context(), web("v1"))
	}

	objects, out, err := observe(t, entities.FetchStructured, wrapped(nil, `echo "debug $PASSWORD" >&2; echo '{"objects": [{"name": "web", "objectType": "Function"}]}'`))
	require.NoError(t, err)
	require.Equal(t, []entities.Object{{Name: "web", Type: "Function", Status: entities.ObjectPending}}, objects)
	require.Equal(t, "debug ***\n", out.Stderr)
	require.NotContains(t, out.Stdout, "schema")

	objects, _, err = observe(t, entities.FetchStructured, sh(`echo before; converge-wrapper exec -- echo '{"objects": []}'`))
	require.NoError(t, err, "output before the document is kept")
	require.Empty(t, objects)

	objects, _, err = observe(t, entities.FetchExitCode, wrapped(nil, "exit 2"))
	require.NoError(t, err)
	require.Equal(t, entities.ObjectPending, objects[0].Status)

	_, _, err = observe(t, entities.FetchStructured, sh(`converge-wrapper exec -- sh -c 'echo no >&2; exit 3' || true`))
	require.ErrorContains(t, err, "sh exited 3: no", "its failure is not hidden")

	for _, row := range []struct {
		fetch entities.Command
		code  string
		want  string
	}{
		{wrapped([]string{"--timeout", "50ms"}, "exec sleep 60"), runtimes.CodeTimeout, "converge-wrapper was ended by its wrapper at the timeout"},
		{entities.Command{Argv: []string{"converge-wrapper", "exec", "--", "no-such-program-here"}}, runtimes.CodeCommandNotFound, "no-such-program-here"},
		{wrapped(nil, `head -c 300000 /dev/zero | tr '\0' x`), runtimes.CodeOutputTooLarge, "printed more than 256 KiB"},
		{wrapped(nil, `echo not JSON`), runtimes.CodeMalformed, "line 1, column 1: not JSON"},
	} {
		_, _, err := observe(t, entities.FetchStructured, row.fetch)
		require.ErrorContains(t, err, row.want)
		require.Equal(t, row.code, code(t, err), row.want)
	}

	// A document of less than the limit is read, however much longer the wrapper's is.
	message := strings.Repeat(`\"`, 60_000)
	objects, _, err = observe(t, entities.FetchStructured, wrapped(nil, `printf '{"objects": [{"name": "web", "objectType": "F", "message": "%s"}]}' "$(head -c 60000 /dev/zero | sed 's/\x0/\\"/g')"`))
	require.NoError(t, err)
	require.Len(t, objects[0].Message, len(message)/2)

	apply := wrapped(nil, `echo out; echo err >&2; exit 7`)
	done, err := newRuntime(t, t.TempDir(), entities.CustomRuntime{Apply: apply}).Apply(t.Context(), web("v1"))
	require.ErrorContains(t, err, "exited 7: err")
	require.Equal(t, [2]string{"out\n", "err\n"}, [2]string{done.Stdout, done.Stderr})

	done, _, err = RunStandalone(t.Context(), testWorker, StandaloneCommand{ErrorPrefix: "check smoke", Argv: apply.Argv, Timeout: defaultFetchTimeout, Instance: web("v1")})
	require.NoError(t, err)
	require.Equal(t, [2]string{"out\n", "err\n"}, [2]string{done.Stdout, done.Stderr})
	require.Equal(t, 7, done.ExitCode)
}
