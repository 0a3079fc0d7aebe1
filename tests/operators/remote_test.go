package operators

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/converge-engine/converge/tests/programtest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/buckettest"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
)

const remoteEdge = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- name: edge
  runtimes: [{name: APP-rt}]
  protections:
  - {name: line, interval: 100ms, worker: remote, command: {command: [./line.sh]}}
  extensions:
  - {name: warm, lifecycle: postApproval, worker: remote, command: ["true"]}
---
{apiVersion: converge/v1, kind: Service, name: web, progressDeadline: 20s}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
worker: remote
fake: {pollInterval: 100ms, steadyPollInterval: 300ms, retry: {maxAttempts: 1, backoff: 100ms}}
`

// A runtime's own worker comes, goes and comes back: what only it can do waits for it and says so, since when; nothing has
// failed. Checks and extensions run there too.
func TestRemoteWorkerStartsAndStops_D17(t *testing.T) {
	stage.Long(t, "three minutes")
	t.Parallel()
	w := remoteWorld(t)
	remote := func() (stop func()) { return w.StartWorkerAs(worker.Options{Runtime: w.App + "-rt"}) }
	none := "no-worker: no worker polls runtime/" + w.App + "-rt"

	w.Release("web", "v1")
	awaitExplained(w, "edge: the running version is unknown (last seen nothing, target none), since")
	awaitExplained(w, " - "+none+"; since")

	stop := remote() // it comes
	w.Await("web", "edge CONVERGED v1")
	w.Release("web", "v2")
	w.Await("web", "edge CONVERGED v2")

	stop() // it goes
	awaitExplained(w, "edge: the running version is unknown (last seen v2, target v2), since")
	require.Contains(t, w.Act("web", protocol.Rollback, `{"by":"bob","channel":"edge","reason":"errors"}`), "v1")
	awaitExplained(w, " - "+none+"; v1 is applied once one does; since")
	s := w.AwaitThat("web", "the rollback goes on", func(s protocol.Status) bool { return s.Channels[0].Status == "ROLLING_BACK" })
	began := s.Channels[0].Rollback.At
	w.AwaitThat("web", "longer than its deadline and all attempts", func(s protocol.Status) bool {
		require.Equal(t, "edge ROLLING_BACK v1", stage.Channels(s))
		return time.Since(began) > 45*time.Second
	})

	stop = remote() // it comes back
	w.Await("web", "edge ROLLED_BACK v1")
	var applied []string
	for _, a := range w.Fake.Applies() {
		applied = append(applied, a.Version)
	}
	require.Equal(t, []string{"v1", "v2", "v1"}, applied, "each once")

	stop() // a check that only it can evaluate says so too
	w.Release("web", "v3")
	awaitExplained(w, "ERROR reading ")
	w.Act("web", protocol.Bypass, `{"by":"bob","version":"v3","channel":"edge","condition":"reading","reason":"it is there"}`)
	awaitExplained(w, "ERROR line            "+none)
	defer remote()()
	w.Await("web", "edge CONVERGED v3")
}

// What is steady on a remote runtime its own workers read, and the server once a day; that the last of them is gone is noticed long before either.
func TestARemoteRuntimeIsReadByItsWorkers_F9_D17(t *testing.T) {
	stage.Long(t, "a minute and a half")
	t.Parallel()
	w, _ := bucketWorld(t)
	w.Write(`{apiVersion: converge/v1, kind: Application, name: APP, releaseChannels: [{name: edge, runtimes: [{name: APP-rt}]}]}
---
{apiVersion: converge/v1, kind: Service, name: web}
---
{apiVersion: converge/v1, kind: Runtime, name: APP-rt, worker: remote, fake: {pollInterval: 100ms, steadyPollInterval: 1h}}
`)
	w.Publish()
	stop := w.StartWorkerAs(worker.Options{Runtime: w.App + "-rt"})
	w.Release("web", "v1")
	w.Await("web", "edge CONVERGED v1")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		d, err := w.Client.DescribeWorkflowExecution(t.Context(), w.ID("web"), "")
		require.NoError(t, err)
		pending := d.GetPendingActivities()
		return len(pending) == 1 && time.Until(pending[0].GetScheduledTime().AsTime()) > 12*time.Hour, fmt.Sprintf("want one attempt a day, have %v", pending)
	})

	stop()
	awaitExplained(w, " - no-worker: no worker polls runtime/"+w.App+"-rt; since")
	defer w.StartWorkerAs(worker.Options{Runtime: w.App + "-rt"})()
	w.Await("web", "edge CONVERGED v1")
}

// remoteWorld has a store that workers elsewhere reach, and a worker for all but its runtime.
func remoteWorld(t *testing.T) *stage.World {
	t.Helper()
	w, _ := bucketWorld(t)
	programtest.Write(t, filepath.Join(w.Dir, "line.sh"), "#!/bin/sh\necho the line is up\n")
	w.Write(remoteEdge)
	w.Publish()
	return w
}

// bucketWorld has a store that workers elsewhere reach, and a worker for all but runtimes of its own.
func bucketWorld(t *testing.T) (*stage.World, *buckettest.Bucket) {
	t.Helper()
	setBucketCredentials()
	bucket := buckettest.New()
	server := httptest.NewServer(bucket)
	t.Cleanup(server.Close)
	w := shared.Unserved(t, embedded.Options{})
	w.Store = buckettest.URL(server.URL)
	w.StartWorker()
	return w, bucket
}

// setBucketCredentials sets some for the whole process, since parallel tests cannot have their own: the bucket verifies nothing.
var setBucketCredentials = sync.OnceFunc(func() {
	if os.Getenv("AWS_ACCESS_KEY_ID") == "" {
		os.Setenv("AWS_ACCESS_KEY_ID", "test")
		os.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	}
})

// awaitExplained waits until what explain prints contains a text.
func awaitExplained(w *stage.World, text string) {
	w.T.Helper()
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		value, err := temporaltest.Query(w.T.Context(), w.Client, w.ID("web"), protocol.QueryExplain)
		if err != nil {
			return false, err.Error()
		}
		var e protocol.Explanation
		require.NoError(w.T, value.Get(&e))
		lines := strings.Join(e.Lines, "\n")
		return strings.Contains(lines, text), "want " + text + " in\n" + lines
	})
}
