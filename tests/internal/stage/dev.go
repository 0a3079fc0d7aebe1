package stage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/programtest"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// build builds programs of ours, and returns their folder.
func build(programs ...string) (string, error) {
	var packages []string
	for _, name := range programs {
		packages = append(packages, "github.com/converge-engine/converge/cmd/"+name)
	}
	return programtest.Build(context.Background(), "", packages...)
}

// Converge is the path of converge, built once, with what renders for it, for all tests that run it alone: converge-dev has the server
// in it, and takes longer.
func (s *Stage) Converge(t *testing.T) string {
	t.Helper()
	dir, err := s.converge()
	require.NoError(t, err)
	return filepath.Join(dir, "converge")
}

// Programs is a folder with converge and converge-dev, built once for all tests that run them.
func (s *Stage) Programs(t *testing.T) string {
	t.Helper()
	dir, err := s.programs()
	require.NoError(t, err)
	return dir
}

// Dev is `converge dev` as a process of its own, on a directory of its own.
type Dev struct {
	T   *testing.T
	Dir string
	// Env is what the programs get beside the test's own environment.
	Env []string
	// Port is where the server serves gRPC on the loopback address.
	Port int

	bin     string
	uiPort  int
	process *exec.Cmd
	out     *Buffer
	APIPort string // of the API and the board; "": any free one
}

// Dev prepares one; Start starts it.
func (s *Stage) Dev(t *testing.T, dir string) *Dev {
	t.Helper()
	return &Dev{T: t, bin: s.Programs(t), Dir: dir, Port: s.FreePort(t), uiPort: s.FreePort(t)}
}

// Prompt is a directory in which converge is run against a server that is there already; "": against none.
func (s *Stage) Prompt(t *testing.T, dir, address string) *Dev {
	t.Helper()
	d := &Dev{T: t, bin: filepath.Dir(s.Converge(t)), Dir: dir}
	if address != "" {
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		d.Port, err = strconv.Atoi(port)
		require.NoError(t, err)
	}
	return d
}

// DevOfInit prepares one for the application shop as `converge config init` writes it.
func (s *Stage) DevOfInit(t *testing.T) *Dev {
	t.Helper()
	d := s.Dev(t, t.TempDir())
	out, code := d.Run("converge", "config", "init", "shop")
	require.Zero(t, code, out)
	d.Dir = filepath.Join(d.Dir, "shop")
	return d
}

// Start runs the program and returns at once; Stop or Kill ends it, the end of the test at the
// latest.
func (d *Dev) Start() {
	d.T.Helper()
	d.out = &Buffer{}
	d.process = exec.Command(filepath.Join(d.bin, "converge"), "dev", d.Dir,
		"--port", fmt.Sprint(d.Port), "--ui-port", fmt.Sprint(d.uiPort), "--api-port", cmp.Or(d.APIPort, "0"))
	d.process.Stdout, d.process.Stderr = d.out, d.out
	d.process.Env = append(os.Environ(), d.Env...)
	require.NoError(d.T, d.process.Start())
	process := d.process
	d.T.Cleanup(func() {
		if process.ProcessState == nil {
			_ = process.Process.Kill()
			_ = process.Wait() // reports the kill
		}
		if d.T.Failed() {
			d.T.Logf("converge dev said:\n%s", d.out)
		}
	})
}

// Kill ends it as a crash does.
func (d *Dev) Kill() {
	d.T.Helper()
	require.NoError(d.T, d.process.Process.Kill())
	_ = d.process.Wait() // reports the kill
}

// Stop ends it as Ctrl-C does.
func (d *Dev) Stop() {
	d.T.Helper()
	require.NoError(d.T, d.process.Process.Signal(syscall.SIGINT))
	require.NoError(d.T, d.process.Wait(), "Ctrl-C ends it without an error")
}

// Output returns all that it has printed since its start.
func (d *Dev) Output() string { return d.out.String() }

// Converge runs the CLI against it and returns what it printed on stdout, and its exit code.
func (d *Dev) Converge(args ...string) (string, int) {
	d.T.Helper()
	return d.Run("converge", append(args, "--address", fmt.Sprintf("127.0.0.1:%d", d.Port))...)
}

// Background runs the CLI against it until the test ends, and tells what it has printed so far.
func (d *Dev) Background(args ...string) (said func() string) {
	d.T.Helper()
	out := &Buffer{}
	cmd := exec.Command(filepath.Join(d.bin, "converge"), append(args, "--address", fmt.Sprintf("127.0.0.1:%d", d.Port))...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = d.Dir, out, out
	cmd.Env = append(append(os.Environ(), "CONVERGE_BY=tester"), d.Env...)
	require.NoError(d.T, cmd.Start())
	d.T.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait() // it was told to end
		if d.T.Failed() {
			d.T.Logf("converge %s said:\n%s", strings.Join(args, " "), out)
		}
	})
	return out.String
}

// Run runs a program, one of ours by its name or any by its path, in the directory, and returns what it printed on
// stdout, and its exit code.
func (d *Dev) Run(program string, args ...string) (string, int) {
	d.T.Helper()
	stdout, stderr, code := d.run(program, args...)
	if stderr != "" && args[0] != "status" { // which is asked until it answers
		d.T.Logf("%s %s: %s", program, strings.Join(args, " "), stderr)
	}
	return stdout, code
}

// ConvergeSaid is Converge with all that it printed, on stderr too.
func (d *Dev) ConvergeSaid(args ...string) (string, int) {
	d.T.Helper()
	stdout, stderr, code := d.run("converge", append(args, "--address", fmt.Sprintf("127.0.0.1:%d", d.Port))...)
	return stdout + stderr, code
}

func (d *Dev) run(program string, args ...string) (stdout, stderr string, code int) {
	d.T.Helper()
	ctx, cancel := context.WithTimeout(d.T.Context(), 2*Patience)
	defer cancel()
	path := program
	if !strings.Contains(program, "/") {
		path = filepath.Join(d.bin, program)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	var out, err bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = d.Dir, &out, &err
	cmd.Env = append(append(os.Environ(), "CONVERGE_BY=tester"), d.Env...)
	if failed := cmd.Run(); cmd.ProcessState == nil {
		require.NoError(d.T, failed)
	}
	return out.String(), err.String(), cmd.ProcessState.ExitCode()
}

// Await waits until `converge status --output json` shows the service as wanted.
func (d *Dev) Await(service, want string) protocol.Status {
	d.T.Helper()
	var last protocol.Status
	temporaltest.WaitFor(d.T, 2*Patience, func() (bool, string) {
		out, code := d.Converge("status", service, "--output", "json")
		if code != 0 {
			return false, fmt.Sprintf("exit %d", code)
		}
		all, err := Statuses(out)
		if err != nil {
			return false, err.Error()
		}
		for _, s := range all {
			last = s
		}
		return Channels(last) == want, fmt.Sprintf("want %s, have %s", want, Channels(last))
	})
	return last
}

// Statuses reads what `converge status --output json` prints: one status or a list of them.
func Statuses(out string) ([]protocol.Status, error) {
	var all []protocol.Status
	if err := json.Unmarshal([]byte(out), &all); err == nil {
		return all, nil
	}
	var one protocol.Status
	err := json.Unmarshal([]byte(out), &one)
	return []protocol.Status{one}, err
}

// Buffer is written by a process while a test reads it.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *Buffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// FreePort returns a port of the loopback address on which nothing listens, and which no other call has returned. It is
// none of those from which the system takes ports by itself, for connections or for whoever asks for any: a program
// listens on it later, and again after it was killed.
func (s *Stage) FreePort(t *testing.T) int {
	t.Helper()
	const low, high = 12000, 31000 // clusters have those above (tests/kube/lab)
	for range 1000 {
		port := low + rand.IntN(high-low)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		require.NoError(t, l.Close())
		if _, given := s.ports.LoadOrStore(port, true); !given {
			return port
		}
	}
	require.Fail(t, "no free port")
	return 0
}
