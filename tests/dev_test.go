package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// programs are converge and converge-dev, built once for all tests that run them.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "converge-bin-")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", dir, "../cmd/converge", "../cmd/converge-dev").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return dir, nil
})

// dev is `converge dev` as a process of its own, on a directory of its own.
type dev struct {
	t       *testing.T
	bin     string
	dir     string
	env     []string // beside the test's own
	port    int
	uiPort  int
	process *exec.Cmd
	out     *lockedBuffer
}

func newDev(t *testing.T, dir string) *dev {
	t.Helper()
	bin, err := programs()
	require.NoError(t, err)
	return &dev{t: t, bin: bin, dir: dir, port: freePort(t), uiPort: freePort(t)}
}

// start runs the program and returns at once; stop or kill ends it, the end of the test at the
// latest.
func (d *dev) start() {
	d.t.Helper()
	d.out = &lockedBuffer{}
	d.process = exec.Command(filepath.Join(d.bin, "converge"), "dev", d.dir,
		"--port", fmt.Sprint(d.port), "--ui-port", fmt.Sprint(d.uiPort))
	d.process.Stdout, d.process.Stderr = d.out, d.out
	d.process.Env = append(os.Environ(), d.env...)
	require.NoError(d.t, d.process.Start())
	process := d.process
	d.t.Cleanup(func() {
		if process.ProcessState == nil {
			_ = process.Process.Kill()
			_ = process.Wait()
		}
		if d.t.Failed() {
			d.t.Logf("converge dev said:\n%s", d.out)
		}
	})
}

// kill ends it as a crash does; stop as Ctrl-C does.
func (d *dev) kill() {
	require.NoError(d.t, d.process.Process.Kill())
	_ = d.process.Wait() // reports the kill
}

func (d *dev) stop() {
	d.t.Helper()
	require.NoError(d.t, d.process.Process.Signal(syscall.SIGINT))
	require.NoError(d.t, d.process.Wait(), "Ctrl-C ends it without an error")
}

// converge runs the CLI against it and returns what it printed on stdout, and its exit code.
func (d *dev) converge(args ...string) (string, int) {
	d.t.Helper()
	return d.run("converge", append(args, "--address", fmt.Sprintf("127.0.0.1:%d", d.port))...)
}

func (d *dev) run(program string, args ...string) (string, int) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 2*patience)
	defer cancel()
	path := program
	if !strings.Contains(program, "/") {
		path = filepath.Join(d.bin, program)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = d.dir, &stdout, &stderr
	cmd.Env = append(append(os.Environ(), "CONVERGE_BY=tester"), d.env...)
	err := cmd.Run()
	if cmd.ProcessState == nil {
		require.NoError(d.t, err)
	}
	if stderr.Len() > 0 && args[0] != "status" { // which is asked until it answers
		d.t.Logf("%s %s: %s", program, strings.Join(args, " "), stderr.String())
	}
	return stdout.String(), cmd.ProcessState.ExitCode()
}

// await waits until `converge status --output json` shows the service as wanted.
func (d *dev) await(service, want string) protocol.Status {
	d.t.Helper()
	var last protocol.Status
	temporaltest.WaitFor(d.t, 2*patience, func() (bool, string) {
		out, code := d.converge("status", service, "--output", "json")
		if code != 0 {
			return false, fmt.Sprintf("exit %d", code)
		}
		all, err := statuses(out)
		if err != nil {
			return false, err.Error()
		}
		for _, s := range all {
			last = s
		}
		return channels(last) == want, fmt.Sprintf("want %s, have %s", want, channels(last))
	})
	return last
}

// statuses reads one status or a list of them.
func statuses(out string) ([]protocol.Status, error) {
	var all []protocol.Status
	if err := json.Unmarshal([]byte(out), &all); err == nil {
		return all, nil
	}
	var one protocol.Status
	err := json.Unmarshal([]byte(out), &one)
	return []protocol.Status{one}, err
}

// lockedBuffer is written by a process while a test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// ports remembers those given.
var ports sync.Map

// freePort returns a port on which nothing listens, and which no other call has returned. It is none of those from which
// the system takes ports by itself, for connections or for whoever asks for any: a program listens on it later, and again
// after it was killed.
func freePort(t *testing.T) int {
	t.Helper()
	const low, high = 12000, 32000
	for range 1000 {
		port := low + rand.IntN(high-low)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		require.NoError(t, l.Close())
		if _, given := ports.LoadOrStore(port, true); !given {
			return port
		}
	}
	require.Fail(t, "no free port")
	return 0
}

// get is the body of a page, or the error as text.
func get(url string) string {
	c := http.Client{Timeout: 5 * time.Second}
	response, err := c.Get(url)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}
