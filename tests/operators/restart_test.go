package operators

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
)

// serverRole as the first argument makes this program a server, on a file and at a port, until its standard input ends.
const serverRole = "temporal-server"

// playServer is what a process does that was started for that.
func playServer(args []string) (played bool) {
	if len(args) != 5 || args[1] != serverRole {
		return false
	}
	o := embedded.Options{DBFile: args[2]}
	if args[4] != bare {
		o.SearchAttributes = worker.SearchAttributes()
	}
	if args[4] == shortRuns {
		o.ContinueAsNewAfter = 40
	}
	var err error
	if o.Port, err = strconv.Atoi(args[3]); err == nil {
		_, err = embedded.Start(context.Background(), o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("serves")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return true
}

// A new database has the search attributes of Converge, or is as Temporal makes it. Runs may end after a few events.
const (
	prepared  = "prepared"
	bare      = "bare"
	shortRuns = "short-runs"
)

// killable is a server as a process of its own, which is started again at the same address on the same file.
type killable struct {
	t       *testing.T
	file    string
	port    int
	content string // of a new file
	process *exec.Cmd
	killed  time.Time
}

func newKillable(t *testing.T) *killable {
	t.Helper()
	k := &killable{t: t, file: filepath.Join(t.TempDir(), "temporal.db"), port: shared.FreePort(t), content: prepared}
	k.start()
	t.Cleanup(k.kill)
	return k
}

func (k *killable) address() string { return fmt.Sprintf("127.0.0.1:%d", k.port) }

// start returns once the server serves.
func (k *killable) start() {
	k.t.Helper()
	self, err := os.Executable()
	require.NoError(k.t, err)
	k.process = exec.Command(self, serverRole, k.file, fmt.Sprint(k.port), k.content)
	k.process.Stderr = os.Stderr
	_, err = k.process.StdinPipe() // it ends when we do
	require.NoError(k.t, err)
	stdout, err := k.process.StdoutPipe()
	require.NoError(k.t, err)
	require.NoError(k.t, k.process.Start())
	_, err = bufio.NewReader(stdout).ReadString('\n')
	require.NoError(k.t, err)
}

// kill ends it as a crash does.
func (k *killable) kill() {
	_ = k.process.Process.Kill()
	_ = k.process.Wait() // reports the kill
	k.killed = time.Now()
}

// atV1 runs two services, with approvals, under two workers of that server. Both are at v1 in both channels.
func atV1(t *testing.T, server *killable) *stage.World {
	t.Helper()
	w := shared.At(t, server.address())
	w.StartWorkerAs(worker.Options{})
	w.StartWorkerAs(worker.Options{})
	w.Write(approvals + stage.Web + beside)
	w.Publish()
	for _, service := range []string{"web", "api"} {
		w.Release(service, "v1")
		w.Act(service, protocol.Approve, `{"by":"alice","version":"v1","topic":"production"}`)
		w.Await(service, "staging CONVERGED v1, production CONVERGED v1")
	}
	return w
}

// The server is killed in the middle of a release, with an apply under way and an approval outstanding, and started again at
// the same address: at once, and after longer than an apply goes on without it. The workers stay up. Within a minute every
// service is managed in the run that it was in, approvals and pauses stand, each target is applied once and none backwards.
func TestServerRestart_F1_F2(t *testing.T) {
	t.Parallel()
	for _, away := range []time.Duration{0, 20 * time.Second} {
		t.Run("away for "+away.String(), func(t *testing.T) {
			t.Parallel()
			server := newKillable(t)
			w := atV1(t, server)
			w.Release("web", "v2")
			w.Await("web", "staging CONVERGED v2, production WAITING_MANUAL_APPROVAL v1")
			staging := w.Fake.At(w.App, "api", "staging")
			letGo := staging.HangApplies()
			w.Release("api", "v2")
			require.NoError(t, w.Fake.Await(t.Context(), staging.Applying))
			w.Act("api", protocol.Approve, `{"by":"carol","version":"v2","topic":"production"}`)
			w.Signal("web", protocol.Pause, `{"by":"bob","channel":"staging","reason":"drill"}`)
			ids := []string{w.ID("web"), w.ID("api"), protocol.ApplicationID(w.App)}
			runs := map[string]string{}
			for _, id := range ids {
				runs[id] = runOf(w, id)
			}

			server.kill()
			<-time.After(away) // this is what happens, not a wait for something else
			server.start()
			since := time.Now()
			for _, id := range ids {
				managedAgain(w, id, "", since)
				require.Equal(t, runs[id], runOf(w, id))
			}
			letGo()
			w.Await("api", "staging CONVERGED v2, production CONVERGED v2")
			t.Logf("what was under way had arrived %s after the server was back", time.Since(since).Round(100*time.Millisecond))
			require.Less(t, time.Since(since), aMinute)
			w.Await("web", "staging PAUSED v2, production WAITING_MANUAL_APPROVAL v1")
			w.Act("web", protocol.Approve, `{"by":"alice","version":"v2","topic":"production"}`)
			w.Await("web", "staging PAUSED v2, production CONVERGED v2")
			for name, versions := range appliedTo(w, "web/staging", "web/production", "api/staging", "api/production") {
				require.Equal(t, []string{"v1", "v2"}, versions, name)
			}
			require.Empty(t, w.Fake.Overlaps())
		})
	}
}
