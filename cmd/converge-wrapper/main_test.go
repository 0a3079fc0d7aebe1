//go:build unix

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/runtimes/kubernetes/job/report"
)

const asWrapper = "CONVERGE_TEST_WRAPPER"

// TestMain lets the test binary act as the wrapper, so that the tests see real signals and exit codes.
func TestMain(m *testing.M) {
	if os.Getenv(asWrapper) == "" {
		os.Exit(m.Run())
	}
	adoptOrphans()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// wrapperCommand returns the command of a wrapper.
func wrapperCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asWrapper+"=1")
	cmd.Dir = t.TempDir()
	cmd.Stderr = os.Stderr
	return cmd
}

// parseDocument returns the wrapper's output, which is exactly one document, and its exit code.
func parseDocument(t *testing.T, stdout []byte, err error) (report.Document, int) {
	t.Helper()
	require.Equal(t, 1, bytes.Count(stdout, []byte("\n")), "%s", stdout)
	doc, ok := report.Find(stdout)
	require.True(t, ok, "%s", stdout)
	code := 0
	if err != nil {
		var exit *exec.ExitError
		require.True(t, errors.As(err, &exit), err)
		code = exit.ExitCode()
	}
	require.Equal(t, doc.ExitCode, code)
	require.WithinDuration(t, time.Now(), doc.StartedAt, time.Minute)
	require.Positive(t, time.Duration(doc.Duration))
	return doc, code
}

func runWrapper(t *testing.T, args ...string) (report.Document, int) {
	t.Helper()
	stdout, err := wrapperCommand(t, args...).Output()
	return parseDocument(t, stdout, err)
}

// The document contains both streams separately, and the command's exit code.
func TestStreamsAreSeparate_C8(t *testing.T) {
	doc, code := runWrapper(t, "exec", "--", "sh", "-c", `echo out; echo err >&2; echo "$1"; exit 3`, "sh", "--timeout")
	require.Equal(t, 3, code)
	require.Equal(t, "out\n--timeout\n", string(doc.Stdout.Data))
	require.Equal(t, "err\n", string(doc.Stderr.Data))
	require.Equal(t, []string{"sh", "-c", `echo out; echo err >&2; echo "$1"; exit 3`, "sh", "--timeout"}, doc.Command)
	require.False(t, doc.Stdout.Truncated() || doc.Stderr.Truncated() || doc.TimedOut)
	require.Empty(t, doc.Error+doc.Signal)
}

// A whole structured answer is kept, and of a longer one the end. Bytes that are not UTF-8 are not lost.
func TestKeptOutput_C6_C8(t *testing.T) {
	doc, _ := runWrapper(t, "exec", "--", "sh", "-c", `head -c 262144 /dev/zero; head -c 300000 /dev/zero >&2; printf end >&2`)
	require.Len(t, doc.Stdout.Data, report.LimitStdout)
	require.False(t, doc.Stdout.Truncated())
	require.Len(t, doc.Stderr.Data, report.LimitStderr)
	require.True(t, doc.Stderr.Truncated())
	require.EqualValues(t, 300003, doc.Stderr.Bytes)
	require.True(t, bytes.HasSuffix(doc.Stderr.Data, []byte("\x00end")))

	doc, _ = runWrapper(t, "exec", "--limit", "4", "--", "sh", "-c", `printf 'abc\377\376d'`)
	require.Equal(t, report.Stream{Data: []byte("c\xff\xfed"), Bytes: 6}, doc.Stdout)

	doc, code := runWrapper(t, "exec", "--stop-at-limit", "--limit", "1000", "--", "yes")
	require.Equal(t, 128+int(syscall.SIGTERM), code)
	require.Equal(t, "yes printed more than 1000 bytes and was ended", doc.Error)
	require.True(t, doc.Stdout.Truncated())
}

// A command that ignores SIGTERM is killed together with its children, and its output is kept.
func TestTimeout(t *testing.T) {
	cmd := wrapperCommand(t, "exec", "--grace", "200ms", "--timeout", "500ms", "--", "sh", "-c",
		`trap '' TERM; echo begun; (exec 3>alive; exec sleep 1000) & wait; exec sleep 1000`)
	alive := pipe(t, filepath.Join(cmd.Dir, "alive"))
	stdout, err := cmd.Output()
	doc, code := parseDocument(t, stdout, err)
	require.Equal(t, 124, code)
	require.True(t, doc.TimedOut)
	require.Equal(t, "killed", doc.Signal)
	require.Equal(t, "begun\n", string(doc.Stdout.Data))
	requireClosed(t, alive)
}

func TestDeadline(t *testing.T) {
	doc, code := runWrapper(t, "exec", "--timeout", "1h", "--deadline", "2020-01-02T03:04:05Z", "--", "sleep", "1000")
	require.Equal(t, 124, code)
	require.True(t, doc.TimedOut)
}

// Signals reach the whole process group; the command decides how to handle them.
func TestSignals(t *testing.T) {
	for _, row := range []struct {
		send   syscall.Signal
		script string
		code   int
		signal string
		stdout string
	}{
		{syscall.SIGTERM, `trap 'echo cleaned; exit 7' TERM; `, 7, "", "cleaned\n"},
		{syscall.SIGINT, `trap 'echo cleaned; exit 8' INT; `, 8, "", "cleaned\n"},
		{syscall.SIGTERM, ``, 143, "terminated", ""},
		{syscall.SIGTERM, `trap '' TERM; `, 137, "killed", ""},
		{syscall.SIGUSR1, `trap 'echo notified; exit 0' USR1; `, 0, "", "notified\n"},
	} {
		cmd := wrapperCommand(t, "exec", "--grace", "300ms", "--", "sh", "-c", row.script+`exec 3>alive; while :; do read -r _ <hold; done`)
		require.NoError(t, syscall.Mkfifo(filepath.Join(cmd.Dir, "hold"), 0o600))
		alive := pipe(t, filepath.Join(cmd.Dir, "alive"))
		var stdout bytes.Buffer
		cmd.Stdout = &stdout
		require.NoError(t, cmd.Start())
		reader := <-alive
		require.NoError(t, cmd.Process.Signal(row.send))
		err := cmd.Wait()
		doc, code := parseDocument(t, stdout.Bytes(), err)
		require.Equal(t, row.code, code, row.script)
		require.Equal(t, row.signal, doc.Signal, row.script)
		require.Equal(t, row.stdout, string(doc.Stdout.Data), row.script)
		require.NoError(t, reader.Close())
	}
}

// Background processes of the command end with it, as in a container, and delay nothing.
func TestBackground(t *testing.T) {
	cmd := wrapperCommand(t, "exec", "--", "sh", "-c", `(exec 3>alive; exec sleep 1000) & read -r _ <ready; echo done`)
	require.NoError(t, syscall.Mkfifo(filepath.Join(cmd.Dir, "ready"), 0o600))
	opened := pipe(t, filepath.Join(cmd.Dir, "alive"))
	alive := make(chan *os.File, 1)
	go func() {
		alive <- <-opened
		_ = os.WriteFile(filepath.Join(cmd.Dir, "ready"), []byte("\n"), 0)
	}()
	stdout, err := cmd.Output()
	doc, code := parseDocument(t, stdout, err)
	require.Zero(t, code)
	require.Equal(t, "done\n", string(doc.Stdout.Data))
	requireClosed(t, alive)
}

func TestCannotStart(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o600))
	odd := filepath.Join(dir, "odd")
	require.NoError(t, os.WriteFile(odd, []byte("no program"), 0o700))
	for program, want := range map[string]int{"no-such-program": 127, "/no/such/program": 127, plain: 126, odd: 126, dir: 126} {
		doc, code := runWrapper(t, "exec", "--", program)
		require.Equal(t, want, code, program)
		require.Contains(t, doc.Error, program+" cannot be started: ")
	}
}

func TestUsage(t *testing.T) {
	for _, args := range []string{"", "run", "exec", "exec --", "exec --no-such-flag -- x", "exec --limit -1 -- x", "exec --deadline soon -- x"} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, 125, run(strings.Fields(args), &stdout, &stderr), args)
		require.Empty(t, stdout.String(), args)
		require.Contains(t, stderr.String(), "converge-wrapper: ", args)
	}
	var stdout, stderr bytes.Buffer
	require.Zero(t, run([]string{"--version"}, &stdout, &stderr))
	require.Regexp(t, `^converge-wrapper \S+\n$`, stdout.String())
	require.Zero(t, run([]string{"--help"}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "-stop-at-limit")
}

// pipe makes a named pipe, and sends its read end once a process has opened the other end.
func pipe(t *testing.T, path string) <-chan *os.File {
	t.Helper()
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	opened := make(chan *os.File, 1)
	go func() {
		if f, err := os.Open(path); err == nil {
			opened <- f
		}
		close(opened)
	}()
	return opened
}

// requireClosed waits until every process that held the pipe open has ended.
func requireClosed(t *testing.T, opened <-chan *os.File) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if f := <-opened; f != nil {
			_, _ = f.Read(make([]byte, 1))
			_ = f.Close()
		}
	}()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Fatal("a process is still running")
	}
}
