//go:build unix

package custom

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/converge-engine/converge/tests/programtest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

func sh(script string) entities.Command { return entities.Command{Argv: []string{"sh", "-c", script}} }

func applying(script string) entities.CustomRuntime { return entities.CustomRuntime{Apply: sh(script)} }

func fetching(mode entities.FetchMode, script string) entities.CustomRuntime {
	fetch := sh(script)
	return entities.CustomRuntime{Apply: sh("true"), Fetch: &fetch, Mode: mode}
}

func web(version string) runtimes.Request {
	return runtimes.Request{
		Owner:     runtimes.Owner{Application: "hello", Service: "web", ID: entities.Only("staging")},
		ServiceID: "hello/web/1", FullVersion: version,
		Key: "hello/web/staging/" + version, Payload: &entities.Payload{Custom: &entities.CustomPayload{}},
	}
}

func code(t *testing.T, err error) string {
	t.Helper()
	var reading *entities.ReadingError
	require.True(t, errors.As(err, &reading), "%v is not a reading error", err)
	return reading.Code
}

func TestNewRefuses(t *testing.T) {
	apply := entities.Command{Argv: []string{"./run"}}
	for want, def := range map[string]entities.RuntimeDefinition{
		`runtime r: kind is "fake"; expected "custom"`:                      {Kind: entities.RuntimeFake},
		`runtime r: has no commands`:                                        {Kind: entities.RuntimeCustom},
		`runtime r: directory here is relative; expected an absolute one`:   {Kind: entities.RuntimeCustom, Dir: "here", Custom: &entities.CustomRuntime{Apply: apply}},
		`runtime r: apply has no command`:                                   {Kind: entities.RuntimeCustom, Custom: &entities.CustomRuntime{}},
		`runtime r: fetch has no command`:                                   {Kind: entities.RuntimeCustom, Custom: &entities.CustomRuntime{Apply: apply, Fetch: &entities.Command{}}},
		`runtime r: fetch has mode ""; expected exitCode or structured`:     {Kind: entities.RuntimeCustom, Custom: &entities.CustomRuntime{Apply: apply, Fetch: &apply}},
		`runtime r: mode is structured, but there is no fetch command`:      {Kind: entities.RuntimeCustom, Custom: &entities.CustomRuntime{Apply: apply, Mode: entities.FetchStructured}},
		`runtime r: fetch has mode "loud"; expected exitCode or structured`: {Kind: entities.RuntimeCustom, Custom: &entities.CustomRuntime{Apply: apply, Fetch: &apply, Mode: "loud"}},
	} {
		def.Name = "r"
		_, err := New(def)
		require.EqualError(t, err, want)
	}
}

// Exactly this environment, without the other variables of the worker.
func TestEnvironment_C7(t *testing.T) {
	t.Setenv("LANG", "C")
	t.Setenv("HOME", "/home/worker")
	t.Setenv("USER", "worker")
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("WORKER_TOKEN", "hunter2")
	t.Setenv("UNRELATED_CREDENTIAL", "never passed on")
	rt := newRuntime(t, t.TempDir(), entities.CustomRuntime{
		Apply: entities.Command{Argv: []string{"env"}},
		Env: map[string]entities.Value{
			"TOKEN": {WorkerEnv: "WORKER_TOKEN"}, "ZONE": {Literal: "eu"}, "LANG": {Literal: "de"},
		},
	})
	in := web("v2-i3")
	in.Fence = &runtimes.Fence{Epoch: 2, Sequence: 17}
	in.Payload.Address = map[string]string{"namespace": "shop", "role-arn": "arn:x"}
	in.Payload.Custom.Env = map[string]entities.Value{
		"ZONE": {Literal: "us"}, "EMPTY": {}, "MINE": {Literal: "here"}, "TOKEN": {WorkerEnv: "NOT_SET_AND_NOT_NEEDED"}, "PVN_SERVICE": {Literal: "forged"},
	}
	out, err := rt.Apply(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, strings.Join([]string{
		"CONVERGE_ADDRESS_NAMESPACE=shop", "CONVERGE_ADDRESS_ROLE_ARN=arn:x", "CONVERGE_EPOCH=2", "CONVERGE_SEQUENCE=17", "EMPTY=", "HOME=/home/worker", "LANG=de",
		"MINE=here", "PATH=" + os.Getenv("PATH"),
		"PVN_APPLICATION=hello", "PVN_INSTANCE=main", "PVN_RELEASE_CHANNEL=staging", "PVN_SERVICE=web", "PVN_SERVICE_ID=hello/web/1", "PVN_SERVICE_VERSION=v2-i3",
		"TMPDIR=" + os.Getenv("TMPDIR"), "TOKEN=***", "USER=worker", "ZONE=eu", "",
	}, "\n"), out.Stdout)
}

// A command gets the request for a restart.
func TestRestartIsPassedToTheCommand_I1(t *testing.T) {
	rt := newRuntime(t, t.TempDir(), applying(`echo "${PVN_RESTART-no}"`))
	in := web("v1")
	for _, want := range []string{"no\n", "1\n"} {
		out, err := rt.Apply(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, want, out.Stdout)
		in.Restart = true
	}
}

func TestFiles(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	rt := newRuntime(t, t.TempDir(), applying(`cd "$CONVERGE_FILES" && echo "$CONVERGE_FILES" >&2 && cat a.txt routes/rules.json`))
	in := web("v1")
	in.Payload.Custom.Files = map[string]string{"a.txt": "one\n", "./routes/../routes/rules.json": "two\n"}
	out, err := rt.Apply(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, "one\ntwo\n", out.Stdout)
	require.NoDirExists(t, strings.TrimSpace(out.Stderr), "removed afterwards")

	for _, name := range []string{"../out", "/etc/passwd", "a/../../out", ".", "", "nul\x00byte"} {
		in.Payload.Custom.Files = map[string]string{name: "x"}
		_, err := rt.Apply(t.Context(), in)
		require.ErrorContains(t, err, "is not a path inside its directory", name)
		require.True(t, runtimes.IsPermanent(err), name)
	}
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// Command.RetryableExitCodes: which failures are for good, and how they read.
func TestApplyExitCodes_C10(t *testing.T) {
	for _, c := range []struct {
		script    string
		retryable []int
		want      string
		permanent bool
	}{
		{script: "echo fine"},
		{script: "echo one >&2; echo 'port 8101 is taken' >&2; exit 3", want: "sh exited 3: port 8101 is taken"},
		{script: "echo only stdout; exit 1", retryable: []int{75}, want: "sh exited 1: only stdout", permanent: true},
		{script: "exit 75", retryable: []int{75, 76}, want: "sh exited 75"},
		{script: "kill -KILL $$", retryable: []int{75}, want: "sh was ended by signal killed"},
		{script: "printf 'é%.0s' $(seq 300) >&2; exit 1", want: "sh exited 1: " + strings.Repeat("é", 126) + "…"},
	} {
		cmd := applying(c.script)
		cmd.Apply.RetryableExitCodes = c.retryable
		out, err := newRuntime(t, t.TempDir(), cmd).Apply(t.Context(), web("v1"))
		require.Equal(t, c.permanent, runtimes.IsPermanent(err), c.script)
		if c.want == "" {
			require.NoError(t, err)
			require.Equal(t, runtimes.Output{Command: "sh -c " + c.script, Stdout: "fine\n", Started: out.Started, Duration: out.Duration}, out)
			require.WithinDuration(t, time.Now(), out.Started, time.Minute)
			continue
		}
		require.EqualError(t, err, c.want)
	}
}

// The meaning of exit codes; an unapplied instance is not fetched.
func TestExitCodeFetch_C2(t *testing.T) {
	for _, c := range []struct {
		exit    string
		version string
		want    []entities.Object
		err     string
	}{
		{"0", "v2", []entities.Object{{Name: "web", Type: "custom", Status: entities.ObjectSucceeded, Versions: []entities.ObjectVersion{{Version: "v2", Active: true}}}}, ""},
		{"2", "v2", []entities.Object{{Name: "web", Type: "custom", Status: entities.ObjectPending, Message: "fetch reports work to do for v2"}}, ""},
		{"1", "v2", nil, "sh exited 1: could not look"},
		{"1", "", nil, ""},
	} {
		rt := newRuntime(t, t.TempDir(), fetching(entities.FetchExitCode, "echo could not look >&2; exit "+c.exit))
		objects, out, err := rt.ObserveOutput(t.Context(), web(c.version))
		require.Equal(t, c.want, objects)
		if c.err != "" {
			require.EqualError(t, err, c.err)
			require.Equal(t, runtimes.CodeFetchFailed, code(t, err))
			continue
		}
		require.NoError(t, err)
		if c.version != "" {
			require.Equal(t, "could not look\n", out.Stderr)
		}
	}
}

// What ends a structured fetch badly, by code and in words.
func TestStructuredFetch_C3_C6(t *testing.T) {
	for _, c := range []struct{ name, script, code, want string }{
		{"fails", "echo '{\"objects\": []}'; echo no cluster >&2; exit 1", runtimes.CodeFetchFailed, "sh exited 1: no cluster"},
		{"drift by exit code", "exit 2", runtimes.CodeFetchFailed, "sh exited 2"},
		{"killed", "kill -TERM $$", runtimes.CodeFetchFailed, "sh was ended by signal terminated"},
		{"malformed", "echo '{\"objects\": [{}]}'", runtimes.CodeMalformed, "sh: objects[0].name: missing; expected a string that is not empty"},
		{"silent", "echo debug >&2", runtimes.CodeMalformed, "sh: line 1, column 1: nothing on stdout; expected a JSON document"},
		{"endless", "exec yes", runtimes.CodeOutputTooLarge, "sh printed more than 256 KiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects, err := newRuntime(t, t.TempDir(), fetching(entities.FetchStructured, c.script)).Observe(t.Context(), web("v1"))
			require.Nil(t, objects)
			require.EqualError(t, err, c.want)
			require.Equal(t, c.code, code(t, err))
		})
	}

	t.Run("exactly at the limit", func(t *testing.T) {
		script := `printf '{"objects": []'; printf '%262129s' '}'`
		_, err := newRuntime(t, t.TempDir(), fetching(entities.FetchStructured, script)).Observe(t.Context(), web("v1"))
		require.NoError(t, err)
	})
	t.Run("nothing applied yet", func(t *testing.T) {
		script := `echo '{"objects": [{"name": "x", "objectType": "y", "versions": [{"version": "'$PVN_SERVICE_VERSION'"}]}]}'`
		in := web("")
		in.Payload = nil
		objects, err := newRuntime(t, t.TempDir(), fetching(entities.FetchStructured, script)).Observe(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, []entities.Object{{Name: "x", Type: "y", Status: entities.ObjectPending, Versions: []entities.ObjectVersion{{}}}}, objects)
	})
	t.Run("no fetch", func(t *testing.T) {
		_, err := newRuntime(t, t.TempDir(), applying("true")).Observe(t.Context(), web("v1"))
		require.EqualError(t, err, "runtime local has no fetch command: it cannot be observed")
	})
}

func TestCommandNotFound(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string, mode fs.FileMode) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), mode))
	}
	put("plain", "#!/bin/sh\n", 0o600)
	put("noshebang", "echo\n", 0o700)
	put("nointerpreter", "#!/no/such/sh\n", 0o700)
	t.Setenv("PATH", "/nowhere:relative:"+dir)
	for argv0, want := range map[string]string{
		"./missing":       "command not found: " + dir + "/missing does not exist",
		"sub/../missing":  "command not found: " + dir + "/missing does not exist",
		"/no/such":        "command not found: /no/such does not exist",
		"./":              "command not found: " + dir + " is a directory",
		"./plain":         dir + "/plain is not executable (chmod +x)",
		"plain":           "command plain not found in PATH (/nowhere:relative:" + dir + ")",
		"./noshebang":     dir + "/noshebang cannot be executed: not a program for this machine, nor a script whose first line names its interpreter (#!/bin/sh)",
		"./nointerpreter": dir + "/nointerpreter cannot be executed: the interpreter in its first line does not exist",
	} {
		cmd := entities.Command{Argv: []string{argv0}}
		rt := newRuntime(t, dir, entities.CustomRuntime{Apply: cmd, Fetch: &cmd, Mode: entities.FetchStructured})
		_, err := rt.Observe(t.Context(), web("v1"))
		require.EqualError(t, err, ""+want)
		require.Equal(t, runtimes.CodeCommandNotFound, code(t, err))
		_, err = rt.Apply(t.Context(), web("v1"))
		require.EqualError(t, err, ""+want)
		require.False(t, runtimes.IsPermanent(err), "it may be installed later")
	}
}

// The working directory is the definition's, and so is the start of a relative command.
func TestDirectory(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	programtest.Write(t, filepath.Join(dir, "bin", "where"), "#!/bin/sh\npwd\necho \"$1\"\n")
	rt := newRuntime(t, dir, entities.CustomRuntime{Apply: entities.Command{Argv: []string{"bin/where", "${HOME} is not expanded"}}})
	out, err := rt.Apply(t.Context(), web("v1"))
	require.NoError(t, err)
	require.Equal(t, dir+"\n${HOME} is not expanded\n", out.Stdout)
}
