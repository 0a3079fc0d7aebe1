package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/converge-engine/converge/tests/programtest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// helloWorld is a copy of examples/hello on ports of its own, followed by a dev server.
type helloWorld struct {
	*stage.Dev
	staging, production string // URLs
}

func newHello(t *testing.T) *helloWorld {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "hello")
	require.NoError(t, os.CopyFS(dir, os.DirFS("../examples/hello")))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, ".converge")))
	require.NoError(t, os.Chmod(filepath.Join(dir, "run"), 0o755)) // CopyFS drops it
	h := &helloWorld{Dev: shared.Dev(t, dir)}
	h.pattern(`greeting: "[^"]*"`, `greeting: "Hello, world"`) // whoever followed the README has edited it
	ports := [2]int{shared.FreePort(t), shared.FreePort(t)}
	h.edit(`port: "8101"`, fmt.Sprintf(`port: "%d"`, ports[0]))
	h.edit(`port: "8102"`, fmt.Sprintf(`port: "%d"`, ports[1]))
	h.staging, h.production = fmt.Sprintf("http://127.0.0.1:%d/", ports[0]), fmt.Sprintf("http://127.0.0.1:%d/", ports[1])
	t.Cleanup(func() { _ = exec.Command(filepath.Join(dir, "run"), "stop").Run() })
	return h
}

// edit saves a change to the configuration.
func (h *helloWorld) edit(old, replacement string) {
	h.T.Helper()
	file := filepath.Join(h.Dir, "hello.converge.yaml")
	data, err := os.ReadFile(file)
	require.NoError(h.T, err)
	require.Contains(h.T, string(data), old)
	require.NoError(h.T, os.WriteFile(file, []byte(strings.Replace(string(data), old, replacement, 1)), 0o600))
}

// pattern saves a change to whatever matches.
func (h *helloWorld) pattern(old, replacement string) {
	h.T.Helper()
	data, err := os.ReadFile(filepath.Join(h.Dir, "hello.converge.yaml"))
	require.NoError(h.T, err)
	found := regexp.MustCompile(old).Find(data)
	require.NotNil(h.T, found, "%s in\n%s", old, data)
	h.edit(string(found), replacement)
}

func (h *helloWorld) serves(url, text string) {
	h.T.Helper()
	temporaltest.WaitFor(h.T, 2*stage.Patience, func() (bool, string) {
		page := get(url)
		return strings.Contains(page, text), page
	})
}

// The README, from the first command on: real processes on loopback ports.
func TestHelloFromTheReadme_C9_D7_F4(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs and runs real processes; not with -short")
	}
	h := newHello(t)
	h.Start()
	h.Await("hello/web", "staging CONVERGED v1, production CONVERGED v1")
	h.serves(h.staging, "web v1 in staging")
	h.serves(h.production, "web v1 in production")
	shown := stage.Text(t, "../README.md", "Try it")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // what dev prints follows the status
		missing := shown.Missing(h.Output())
		return missing == "", "the README has " + missing + "\n" + h.Output()
	})

	t.Run("links, events and messages reach status", func(t *testing.T) {
		o := h.Await("hello/web", "staging CONVERGED v1, production CONVERGED v1").Channels[0].Objects[0]
		require.Equal(t, h.staging, o.Links[0].URL)
		require.NotEmpty(t, o.Events)
		require.NotEmpty(t, o.Message)
	})
	t.Run("any incarnation is exported by its number", func(t *testing.T) {
		out, code := h.Converge("config", "list", "hello", "--export", "1")
		require.Zero(t, code)
		require.Contains(t, out, `"converge.incarnation/v1"`)
	})
	t.Run("release v2", func(t *testing.T) {
		out, code := h.Converge("release", "hello/web", "v2", "--wait")
		require.Zero(t, code, out)
		require.Contains(t, out, "release 2: web v2 from incarnation 1")
		h.serves(h.production, "web v2 in production")
	})
	t.Run("a killed process is seen and repaired", func(t *testing.T) {
		pid := h.pid("staging")
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		h.serves(h.staging, "web v2 in staging")
		h.Await("hello/web", "staging CONVERGED v2, production CONVERGED v2")
		require.NotEqual(t, pid, h.pid("staging"))
	})
	t.Run("a saved file is released", func(t *testing.T) {
		before := h.pid("staging")
		h.edit(`greeting: "Hello, world"`, `greeting: "Good day"`)
		h.Await("hello/web", "staging CONVERGED v2, production CONVERGED v2-i2")
		h.serves(h.production, "Good day")
		require.Equal(t, before, h.pid("staging"), "staging's payload did not change")
	})
	t.Run("the stock CLI", h.stockCLI)
	before := h.last()
	t.Run("Ctrl-C leaves what was started running", func(t *testing.T) {
		h.Stop()
		require.Contains(t, h.Output(), "keep running")
		h.serves(h.production, "in production")
	})
	t.Run("a Converge with another schema goes on where this one was", func(t *testing.T) {
		files, err := filepath.Glob(filepath.Join(h.Dir, ".converge", "temporal-sqlite-*"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files { // it would not open them
			require.NoError(t, os.Rename(file, filepath.Join(t.TempDir(), filepath.Base(file))))
		}
		h.Start()
		require.Len(t, h.Await("hello/web", stage.Channels(before)).Releases, len(before.Releases))
		h.Stop()
	})
}

// stockCLI makes the README's calls with the temporal CLI as it is.
func (h *helloWorld) stockCLI(t *testing.T) {
	cli := temporalCLI(t)
	call := func(args ...string) string {
		t.Helper()
		out, code := h.Run(cli, append(args, "--address", fmt.Sprintf("127.0.0.1:%d", h.Port))...)
		require.Zero(t, code, out)
		return out
	}
	call("workflow", "update", "execute", "-w", "service/hello/web", "--name", "release", "--input", `{"version":"v3","by":"alice"}`)
	h.Await("hello/web", "staging CONVERGED v3, production CONVERGED v3")
	call("workflow", "signal", "-w", "service/hello/web", "--name", "pause", "--input", `{"channel":"production","by":"bob","reason":"incident 12"}`)
	h.Await("hello/web", "staging CONVERGED v3, production PAUSED v3")
	require.Contains(t, call("workflow", "query", "-w", "service/hello/web", "--type", "explain"), "paused by bob: incident 12")
	call("workflow", "signal", "-w", "service/hello/web", "--name", "resume", "--input", `{"channel":"production","by":"bob"}`)
	h.Await("hello/web", "staging CONVERGED v3, production CONVERGED v3")
	require.Contains(t, call("workflow", "list", "--query", "ConvergeApplication='hello' AND ConvergeStatus='CONVERGED'"), "service/hello/web")
}

// temporalCLI is the stock CLI, built by `make temporal-cli`.
func temporalCLI(t *testing.T) string {
	t.Helper()
	cli := os.Getenv("CONVERGE_TEMPORAL_CLI")
	if cli == "" {
		cli = "../.cache/bin/temporal"
	}
	cli, err := filepath.Abs(cli)
	require.NoError(t, err)
	if _, err := os.Stat(cli); err != nil {
		t.Skipf("no stock temporal CLI at %s; build it with: make temporal-cli", cli)
	}
	return cli
}

// last is the status as it is.
func (h *helloWorld) last() protocol.Status {
	h.T.Helper()
	out, code := h.Converge("status", "hello/web", "--output", "json")
	require.Zero(h.T, code, out)
	all, err := stage.Statuses(out)
	require.NoError(h.T, err)
	return all[0]
}

// pid is the process that the runtime reports for a channel.
func (h *helloWorld) pid(channel string) int {
	h.T.Helper()
	files, err := filepath.Glob(filepath.Join(h.Dir, ".converge", "hello", "*"+channel+"*.json"))
	require.NoError(h.T, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(h.T, err)
		var state struct {
			PID int `json:"pid"`
		}
		if json.Unmarshal(data, &state) == nil && state.PID > 0 {
			return state.PID
		}
	}
	h.T.Fatalf("no state of %s below %s", channel, h.Dir)
	return 0
}

// Killed in the middle of a release and started again, it finishes, and what had converged is
// not applied again.
func TestKilledInTheMiddleOfARelease_A11(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs and runs real processes; not with -short")
	}
	dir := t.TempDir()
	// An apply that can be held: it says that it began, and ends when the gate is open.
	write := func(name, text string) {
		programtest.Write(t, filepath.Join(dir, name), text)
	}
	write("apply", `#!/bin/sh
echo "$PVN_RELEASE_CHANNEL $PVN_SERVICE_VERSION began" >> log
echo "copying $PVN_SERVICE_VERSION"
while [ -e "hold-$PVN_RELEASE_CHANNEL" ]; do sleep 0.05; done
echo "$PVN_SERVICE_VERSION" > "at-$PVN_RELEASE_CHANNEL"
echo "$PVN_RELEASE_CHANNEL $PVN_SERVICE_VERSION done" >> log
`)
	write("fetch", `#!/bin/sh
[ -e "at-$PVN_RELEASE_CHANNEL" ] || { echo '{"objects":[]}'; exit 0; }
printf '{"objects":[{"name":"file","objectType":"file","status":"SUCCEEDED","versions":[{"version":"%s","active":true}]}]}' "$(cat "at-$PVN_RELEASE_CHANNEL")"
`)
	write("held.converge.yaml", `apiVersion: converge/v1
kind: Application
name: held
releaseChannels:
- {name: staging, runtimes: [{name: files}]}
- {name: production, runtimes: [{name: files}], preconditions: [{releaseChannelStable: {releaseChannel: staging}}]}
---
apiVersion: converge/v1
kind: Service
name: web
initialVersion: v1
---
apiVersion: converge/v1
kind: Runtime
name: files
custom:
  apply: {command: [./apply]}
  fetch: {command: [./fetch], mode: structured}
  pollInterval: 200ms
  steadyPollInterval: 1s
`)
	d := shared.Dev(t, dir)
	d.Start()
	d.Await("held/web", "staging CONVERGED v1, production CONVERGED v1")
	write("hold-production", "")
	_, code := d.Converge("release", "held/web", "v2")
	require.Zero(t, code)
	logged := func(line string) func() (bool, string) {
		return func() (bool, string) {
			data, err := os.ReadFile(filepath.Join(dir, "log"))
			return strings.Contains(string(data), line), fmt.Sprint(string(data), err)
		}
	}
	temporaltest.WaitFor(t, stage.Patience, logged("production v2 began"))
	for _, verb := range []string{"explain", "status"} { // the worker says at its next heartbeat what is printed
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			out, _ := d.Converge(verb, "held/web")
			return strings.Contains(out, "running in production: apply of v2, since") && strings.Contains(out, "  | copying v2"), out
		})
	}
	d.Kill()
	require.NoError(t, os.Remove(filepath.Join(dir, "hold-production")))
	d.Start()
	d.Await("held/web", "staging CONVERGED v2, production CONVERGED v2")
	data, err := os.ReadFile(filepath.Join(dir, "log"))
	require.NoError(t, err)
	for _, once := range []string{"staging v1 done", "production v1 done", "staging v2 done", "production v2 done"} {
		require.Equal(t, 1, strings.Count(string(data), once), "%s\n%s", once, data)
	}
	require.Equal(t, 1, strings.Count(string(data), "staging v2 began"), string(data))
	var s protocol.Status
	out, _ := d.Converge("status", "held/web", "--output", "json")
	all, err := stage.Statuses(out)
	require.NoError(t, err)
	s = all[0]
	require.Equal(t, strconv.Itoa(2), s.Releases[0].ID)
	d.Stop()
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
