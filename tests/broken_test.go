package tests

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// noise does not compress; another seed gives another.
func noise(bytes, seed int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	out := make([]byte, bytes)
	for i := range out {
		out[i] = letters[r.IntN(len(letters))]
	}
	return string(out)
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return string(data)
}

// What nobody could mean is refused before anything is kept of it: megabytes in state would first
// make the status unreadable, and then end the service for good when its run ends.
func TestHugeAndBrokenSignalsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.RunWeb()

	long := noise(400<<10, 0) // more than any server warns of, and no more than the embedded one takes
	w.Signal("web", protocol.Pause, marshal(t, map[string]string{"by": long}))
	w.Signal("web", protocol.Release, marshal(t, map[string]string{"by": "ci", "version": "v2", "id": long}))
	w.Signal("web", protocol.Pause, marshal(t, map[string]string{"by": noise(300, 0)}))
	w.Signal("web", protocol.Pause, marshal(t, map[string]string{"by": "ann", "reason": noise(3000, 0)}))
	w.Signal("web", protocol.Cancel, marshal(t, map[string]string{"by": "ann", "version": noise(3000, 0)}))
	w.Signal("web", "frobnicate", marshal(t, map[string]string{"by": long}))
	require.NoError(t, w.Client.SignalWorkflow(t.Context(), w.ID("web"), "", protocol.Release, []byte{0xff, 0x00, 'x'}))

	const signals = 7
	s := w.AwaitThat("web", "seven refusals", func(s protocol.Status) bool { return len(s.Refused) == signals })
	require.Equal(t, "staging CONVERGED v1, production CONVERGED v1", stage.Channels(s))
	require.Empty(t, s.Pauses)
	require.Less(t, len(marshal(t, s)), 16<<10)
	var reasons []string
	for _, r := range s.Refused {
		reasons = append(reasons, r.Verb+": "+r.Reason)
	}
	all := strings.Join(reasons, "\n")
	require.Contains(t, all, "payload of pause: 409609 bytes; at most 65536")
	require.Contains(t, all, `"by" is 300 bytes long; at most 256`)
	require.Contains(t, all, `"reason" is 3000 bytes long; at most 2048`)
	require.Contains(t, all, "payload of release: not JSON")
	require.Contains(t, all, "frobnicate: no such verb")

	var answer protocol.Answer
	err := w.Update(w.ID("web"), protocol.Pause, json.RawMessage(marshal(t, map[string]string{"by": "ann", "reason": noise(3000, 0)})), &answer)
	require.ErrorContains(t, err, `"reason" is 3000 bytes long; at most 2048`)
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
}

// lose takes a part of the store away, so that reading and writing it fails for root too.
func (w *world) lose(part string) (found func()) {
	w.T.Helper()
	path, away := filepath.Join(w.Store, part), filepath.Join(w.T.TempDir(), "away")
	if err := os.Rename(path, away); err != nil {
		require.ErrorIs(w.T, err, os.ErrNotExist)
	}
	require.NoError(w.T, os.WriteFile(path, nil, 0o600))
	return func() {
		require.NoError(w.T, os.Remove(path))
		if err := os.Rename(away, path); err != nil {
			require.ErrorIs(w.T, err, os.ErrNotExist)
		}
	}
}

// A run that cannot hand its state over, because it is large and the store is unavailable, goes on until it
// can: ending without it would lose the service.
func TestContinueAsNewOutlivesTheStore(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it is half a minute until the store is tried again; not with -short")
	}
	w := shortRuns(t, 300)
	const channelsHere = 40
	var yaml strings.Builder
	yaml.WriteString("apiVersion: converge/v1\nkind: Application\nname: APP\nreleaseChannels:\n")
	for n := range channelsHere {
		fmt.Fprintf(&yaml, "- {name: c%d, runtimes: [{name: APP-rt}]}\n", n)
	}
	w.Write(yaml.String() + stage.TwoChannels[strings.Index(stage.TwoChannels, "---"):] + stage.Web)
	w.Publish()
	found := w.lose("states")
	first := w.runID("web")
	for n := range channelsHere { // a state too large for an event, even packed
		w.Act("web", protocol.Pause, marshal(t, map[string]string{"by": "ann", "channel": fmt.Sprintf("c%d", n), "reason": noise(2000, n)}))
	}
	said := func(s protocol.Status) bool {
		return strings.Contains(strings.Join(s.Notes, "\n"), "the store does not answer: write states/")
	}
	for n := 0; !said(w.Status("web")); n++ {
		require.Less(t, n, 200, "the run never ends")
		w.Act("web", protocol.Refresh, `{"by":"ann"}`)
	}
	require.Equal(t, first, w.runID("web"))
	var longest time.Duration // of an answer, over some of the times that the state is offered again
	for since := time.Now(); time.Since(since) < 8*time.Second; {
		asked := time.Now()
		w.Act("web", protocol.Pause, `{"by":"bob","reason":"meanwhile"}`)
		longest = max(longest, time.Since(asked))
		w.Act("web", protocol.Resume, `{"by":"bob"}`)
	}
	w.Act("web", protocol.Pause, `{"by":"bob","reason":"meanwhile"}`)
	t.Logf("a pause took %s at most", longest)
	require.Less(t, longest, 20*time.Second, "it is half a minute until the store is tried again, and nobody waits for that")
	found()
	temporaltest.WaitFor(t, 2*stage.Patience, func() (bool, string) { return w.runID("web") != first, "still the first run" })
	s := w.AwaitThat("web", "restored", func(s protocol.Status) bool { return len(s.Pauses) == channelsHere+1 })
	require.Equal(t, "meanwhile", s.Pauses[channelsHere].Reason)
	w.Act("web", protocol.Refresh, `{"by":"ann"}`)
	require.Empty(t, w.Status("web").Notes, "the store answers again")
}

func (w *world) runID(service string) string {
	d, err := w.Client.DescribeWorkflowExecution(w.T.Context(), w.ID(service), "")
	require.NoError(w.T, err)
	return d.GetWorkflowExecutionInfo().GetExecution().GetRunId()
}

// A store that was unavailable and is back leaves nothing behind: no note, and no timer that goes on firing.
func TestStoreRecovers(t *testing.T) {
	t.Parallel()
	w := shortRuns(t, 0)
	w.RunWeb()
	w.Act("web", protocol.Pause, `{"by":"ann","channel":"production"}`)
	w.Write(stage.TwoChannels + strings.Replace(stage.Web, "default: hello", "default: bye", 1))
	w.Publish()
	w.Await("web", "staging CONVERGED v1-i2, production PAUSED v1")
	w.StopWorker()
	found := w.lose("versions")
	w.StartWorker()
	w.Act("web", protocol.Resume, `{"by":"ann","channel":"production"}`)
	w.AwaitThat("web", "a note", func(s protocol.Status) bool { return len(s.Notes) > 0 })
	found()
	s := w.Await("web", "staging CONVERGED v1-i2, production CONVERGED v1-i2")
	require.Empty(t, s.Notes)
	timers := 0
	for _, e := range w.History(w.ID("web")) {
		switch e.GetEventType() {
		case enums.EVENT_TYPE_TIMER_STARTED:
			timers++
		case enums.EVENT_TYPE_TIMER_FIRED, enums.EVENT_TYPE_TIMER_CANCELED:
			timers--
		}
	}
	require.Zero(t, timers, "nothing is due")
}

// What was written into a store that no worker reads is not published: nothing changes, and the next publication is taken.
func TestPublicationIntoTheWrongStoreIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	into := func(store string) (publish.Result, error) {
		return publish.Publish(t.Context(), publish.Options{
			Client: w.Client, Dir: w.Dir, StoreURL: store, By: "test", Fake: true, TakeOver: true,
		})
	}
	w.Write(stage.TwoChannels + strings.Replace(stage.Web, "default: hello", "default: wrong", 1))
	_, err := into(t.TempDir())
	require.ErrorContains(t, err, "nothing was published: the store has no incarnations/")
	w.Write(stage.TwoChannels + strings.Replace(stage.Web, "default: hello", "default: right", 1))
	result, err := into(w.Store)
	require.NoError(t, err)
	require.True(t, result.Notified)
	w.AwaitThat("web", "incarnation 2", func(s protocol.Status) bool { return s.Incarnation == 2 })
}
