package operators

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/programtest"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker/embedded"
)

// incidentRuntime is one channel on a runtime of two commands, which a test breaks.
const incidentRuntime = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels: [{name: production, runtimes: [{name: APP-rt}]}]
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
custom:
  apply: {command: [./apply.sh], timeout: 3s}
  fetch: {command: [./fetch.sh], timeout: 3s, mode: structured}
  pollInterval: 1s
  steadyPollInterval: 1s
  retry: {maxAttempts: 3, backoff: 1s, maxBackoff: 3s}
`

// works are the commands as they are before an incident: the version is in a file.
const (
	appliesWell = "#!/bin/sh\necho \"$PVN_SERVICE_VERSION\" >version\n"
	readsWell   = `#!/bin/sh
printf '{"objects":[{"name":"web","objectType":"process","status":"SUCCEEDED","versions":[{"version":"%s","active":true}]}]}' "$(cat version)"
`
)

// incident is one thing that goes wrong at three in the morning, and its cause as people must see it.
type incident struct {
	name, cause string
	apply, read string // the commands from then on; "": as before
	release     bool   // v2 is released after that
	doctor      string // the code of the finding
	event       string // an event of the history that has the cause; "": none
}

var incidents = []incident{
	{name: "the port is taken", cause: "bind: address already in use", apply: "#!/bin/sh\necho 'listen tcp 127.0.0.1:8101: bind: address already in use' >&2\nexit 1\n", release: true, doctor: "failing-channel", event: "failed"},
	{name: "an apply hangs", cause: "timed out after 3s", apply: "#!/bin/sh\nexec sleep 600\n", release: true, doctor: "failing-channel", event: "failed"},
	{name: "a wrong parameter", cause: "unknown flag --colour", apply: "#!/bin/sh\necho 'unknown flag --colour' >&2\nexit 2\n", release: true, doctor: "failing-channel", event: "failed"},
	{name: "junk is read", cause: "malformed-output", read: "#!/bin/sh\necho hello\n", doctor: "unreadable-runtime"},
	{name: "a crash loop", cause: "exit status 137", apply: "#!/bin/sh\necho \"$PVN_SERVICE_VERSION\" >version\ndate +%s >started\n", read: `#!/bin/sh
status=SUCCEEDED; event=
if [ ! -e started ] || [ $(($(date +%s) - $(cat started))) -ge 2 ]; then status=FAILED; event='{"timestamp":"2026-11-28T00:00:00Z","message":"exit status 137"}'; fi
printf '{"objects":[{"name":"web","objectType":"process","status":"%s","debugEvents":[%s],"versions":[{"version":"%s","active":true}]}]}' $status "$event" "$(cat version)"
`, doctor: "failing-channel", event: "flapping"},
}

// In each incident, status on a terminal of 80 columns, explain, wait and doctor name the cause, and so do an event and the history.
func TestCauseOfEveryIncidentIsShown_I1(t *testing.T) {
	stage.Long(t, "a minute for each incident")
	t.Parallel()
	for _, one := range incidents {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			w := shared.OwnServer(t, 0)
			w.StopWorker()
			programtest.Write(t, filepath.Join(w.Dir, "apply.sh"), appliesWell)
			programtest.Write(t, filepath.Join(w.Dir, "fetch.sh"), readsWell)
			require.NoError(t, os.WriteFile(filepath.Join(w.Dir, "version"), []byte("none"), 0o600))
			w.Write(incidentRuntime + stage.Web)
			w.StartWorker()
			w.Publish()
			w.Release("web", "v1")
			w.Await("web", "production CONVERGED v1")

			if one.apply != "" {
				programtest.Write(t, filepath.Join(w.Dir, "apply.sh"), one.apply)
			}
			if one.read != "" {
				programtest.Write(t, filepath.Join(w.Dir, "fetch.sh"), one.read)
			}
			name := w.App + "/web"
			if one.release {
				waited := follow(w, "release", name, "v2", "--wait", "--timeout", "20s")
				require.Contains(t, waited, one.cause)
			}
			shows := func(out func() string) { awaitOutput(t, one.cause, out) }
			shows(func() string { return terminal(w, "status", name) })
			shows(func() string { return cli(w, "explain", name) })
			temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
				found := cli(w, "admin", "doctor")
				return strings.Contains(found, one.doctor) && strings.Contains(found, one.cause), found
			})
			if one.event != "" {
				shows(func() string { return cli(w, "history", name, "--kind", one.event) })
				shows(func() string { return cli(w, "history", name) })
			}
		})
	}
}

// follow runs a command that may fail, and returns all that it printed.
func follow(w *stage.World, arguments ...string) string {
	w.T.Helper()
	out, _ := run(shared.Converge(w.T), w, arguments...)
	return out
}

// terminal runs a command on a terminal of 80 columns.
func terminal(w *stage.World, arguments ...string) string {
	w.T.Helper()
	line := strings.Join(append([]string{"stty cols 80 rows 24;", "NO_COLOR=1", "exec", shared.Converge(w.T)}, append(arguments, "--address", w.Address)...), " ")
	ctx, cancel := context.WithTimeout(w.T.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "script", "-qec", line, "/dev/null").CombinedOutput()
	require.NoError(w.T, err, string(out))
	return string(out)
}

// A webhook that takes no event is named with its error by status, explain and doctor. Once its address is corrected, it gets what waits, and is
// named no longer.
func TestDeadWebhookIsNamed_I1(t *testing.T) {
	stage.Long(t, "a minute of attempts")
	t.Parallel()
	dead := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	t.Cleanup(dead.Close)
	var taken atomic.Int32
	live := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { taken.Add(1) }))
	t.Cleanup(live.Close)
	w := shared.OwnServer(t, 0)
	publish := func(address string) {
		w.Write(strings.Replace(stage.TwoChannels, "name: APP\n", fmt.Sprintf("name: APP\nnotifications: [{name: team, url: %q, events: [succeeded]}]\n", address), 1) + stage.Web)
		w.Publish()
	}
	publish(dead.URL)
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	names := func(arguments ...string) {
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			found := follow(w, arguments...)
			return strings.Contains(found, "notification team has taken nothing since") && strings.Contains(found, "(2 waiting): answered 410 Gone"), found
		})
	}
	names("status")
	names("explain", w.App+"/web")
	names("admin", "doctor")

	publish(live.URL)
	w.AwaitThat("web", "nothing undelivered", func(s protocol.Status) bool { return len(s.Undelivered) == 0 && taken.Load() == 2 })
	require.NotContains(t, follow(w, "admin", "doctor"), "team")
}

// While a terminated service has no worker, all commands say who terminated it and why; once a worker manages it again, so does its history.
func TestCauseOfATerminatedWorkflowIsShown_I1(t *testing.T) {
	stage.Long(t, "a minute and a half: commands wait for a worker")
	t.Parallel()
	const cause = "nightly clean-up"
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	w.StopWorker()
	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), w.ID("web"), "", cause))
	name := w.App + "/web"
	for _, arguments := range [][]string{{"explain", name}, {"wait", name}, {"release", name, "v2"}, {"admin", "doctor"}} {
		awaitOutput(t, cause, func() string { return follow(w, arguments...) })
	}
	awaitOutput(t, cause, func() string { return terminal(w, "status", name) })

	w.StartWorker()
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // it fails until a worker has started the service again
		out, err := run(shared.Converge(t), w, "history", name, "--kind", "restart")
		return err == nil && strings.Contains(out, cause), out
	})
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
}

// A store whose file system is full is named as such by all commands. A release goes out once there is space.
func TestCauseOfAFullStoreIsShown_I1(t *testing.T) {
	t.Parallel()
	const cause = "no space left on device"
	w := shared.Unserved(t, embedded.Options{})
	if err := syscall.Mount("tmpfs", w.Store, "tmpfs", 0, "size=4m,mode=700"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(w.Store, syscall.MNT_DETACH)) })
	w.StartWorker()
	w.RunWeb()
	filler := filepath.Join(w.Store, "filler")
	fill(t, filler)

	name := w.App + "/web"
	waited := follow(w, "release", name, "v2", "--wait", "--timeout", "20s")
	require.Contains(t, waited, cause)
	w.Signal("web", protocol.Release, `{"version":"v2","by":"ci"}`)
	awaitOutput(t, cause, func() string { return terminal(w, "status", name) })
	awaitOutput(t, cause, func() string { return cli(w, "explain", name) })
	awaitOutput(t, cause, func() string { return follow(w, "admin", "doctor") })

	require.NoError(t, os.Remove(filler))
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.NotContains(t, cli(w, "status", name), cause)
}

// fill writes a file until the file system is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
}

// awaitOutput waits until a command prints a text.
func awaitOutput(t *testing.T, text string, command func() string) {
	t.Helper()
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		found := command()
		return strings.Contains(found, text), found
	})
}

// A changed command of a runtime is in the history of a service on it, with who changed it and which field, though no new incarnation is
// published.
func TestChangedRuntimeIsInTheHistory_I1(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	programtest.Write(t, filepath.Join(w.Dir, "apply.sh"), appliesWell)
	programtest.Write(t, filepath.Join(w.Dir, "fetch.sh"), readsWell)
	w.Write(incidentRuntime + stage.Web)
	first := w.Publish()
	w.Release("web", "v1")
	w.Write(strings.NewReplacer("[./apply.sh]", "[./apply.sh, --force]", "ollInterval: 1s", "ollInterval: 2s").Replace(incidentRuntime) + stage.Web)
	out, err := tryCLI(w, "config", "publish", w.Dir, "--as", "ann")
	require.NoError(t, err, out)
	change := "changed runtime " + w.App + "-rt: custom.apply.command, custom.pollInterval, custom.steadyPollInterval"
	require.Contains(t, out, change+"\n")
	require.Contains(t, out, fmt.Sprintf("incarnation %d of %s stays newest", first.Incarnation, w.App))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		out := cli(w, "history", w.App+"/web", "--kind", "publish")
		return slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
			return strings.Contains(line, "ann?") && strings.Contains(line, change)
		}), out
	})
}
