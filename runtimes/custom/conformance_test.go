//go:build unix

package custom

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes/secret"
	"github.com/converge-engine/converge/tests/runtimetest"
)

func TestConformance(t *testing.T) {
	script, err := filepath.Abs("testdata/demo.sh")
	require.NoError(t, err)
	runtimetest.Run(t, runtimetest.Harness{New: func(t *testing.T) runtimetest.Subject {
		dir := t.TempDir()
		rt := newRuntime(t, dir, entities.CustomRuntime{
			Apply:  entities.Command{Argv: []string{"sh", script, "apply"}, RetryableExitCodes: []int{75}},
			Fetch:  &entities.Command{Argv: []string{"sh", script, "fetch"}},
			Mode:   entities.FetchStructured,
			Remove: &entities.Command{Argv: []string{"sh", script, "remove"}},
		})
		write := func(name, text string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		return runtimetest.Subject{
			Runtime: rt, Fleet: true,
			Changes: func(channel string) int {
				log, err := os.ReadFile(filepath.Join(dir, channel+".log"))
				require.NoError(t, err)
				return bytes.Count(log, []byte("\n"))
			},
			FailApply: func(permanent bool) {
				write("fail-apply", map[bool]string{true: "1", false: "75"}[permanent])
			},
			FailReading: func() { write("fail-fetch", "1") },
			Hang: func(arrived func()) {
				opened := pipe(t, filepath.Join(dir, "hang"))
				go func() { <-opened; arrived() }()
			},
		}
	}})
}

// everything allows all variables of the worker's environment.
var everything = secret.Environment{Allowed: []string{"*"}}

func newRuntime(t *testing.T, dir string, c entities.CustomRuntime) *Runtime {
	t.Helper()
	rt, err := NewWithWorker(entities.RuntimeDefinition{Name: "local", Owner: "hello", Kind: entities.RuntimeCustom, Dir: dir, Custom: &c}, Worker{Secrets: everything})
	require.NoError(t, err)
	return rt
}

// pipe makes a named pipe. What is returned yields the reading end once a process has opened the
// writing end; reading then ends when the last such process has ended.
func pipe(t *testing.T, path string) <-chan *os.File {
	t.Helper()
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	opened := make(chan *os.File, 1)
	go func() {
		f, err := os.Open(path)
		if err == nil {
			opened <- f
		}
		close(opened)
	}()
	return opened
}
