package tests

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes/fake"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
	"github.com/converge-engine/converge/worker/publish"
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
	w.write(twoChannels + web)
	w.publish()
	w.release("web", "v1")
	w.await("web", "staging CONVERGED v1, production CONVERGED v1")

	long := noise(1<<20, 0)
	w.signal("web", protocol.Pause, marshal(t, map[string]string{"by": long}))
	w.signal("web", protocol.Release, marshal(t, map[string]string{"by": "ci", "version": "v2", "id": long}))
	w.signal("web", protocol.Pause, marshal(t, map[string]string{"by": noise(300, 0)}))
	w.signal("web", protocol.Pause, marshal(t, map[string]string{"by": "ann", "reason": noise(3000, 0)}))
	w.signal("web", protocol.Cancel, marshal(t, map[string]string{"by": "ann", "version": noise(3000, 0)}))
	w.signal("web", "frobnicate", marshal(t, map[string]string{"by": long}))
	require.NoError(t, w.client.SignalWorkflow(t.Context(), w.id("web"), "", protocol.Release, []byte{0xff, 0x00, 'x'}))

	const signals = 7
	s := w.awaitThat("web", "seven refusals", func(s protocol.Status) bool { return len(s.Refused) == signals })
	require.Equal(t, "staging CONVERGED v1, production CONVERGED v1", channels(s))
	require.Empty(t, s.Pauses)
	require.Less(t, len(marshal(t, s)), 16<<10)
	var reasons []string
	for _, r := range s.Refused {
		reasons = append(reasons, r.Verb+": "+r.Reason)
	}
	all := strings.Join(reasons, "\n")
	require.Contains(t, all, "payload of pause: 1048585 bytes; at most 65536")
	require.Contains(t, all, `"by" is 300 bytes long; at most 256`)
	require.Contains(t, all, `"reason" is 3000 bytes long; at most 2048`)
	require.Contains(t, all, "payload of release: not JSON")
	require.Contains(t, all, "frobnicate: no such verb")

	var answer protocol.Answer
	err := w.update(w.id("web"), protocol.Pause, json.RawMessage(marshal(t, map[string]string{"by": "ann", "reason": noise(3000, 0)})), &answer)
	require.ErrorContains(t, err, `"reason" is 3000 bytes long; at most 2048`)
	w.release("web", "v2")
	w.await("web", "staging CONVERGED v2, production CONVERGED v2")
}

// ownWorker is a world with a server of its own, and a worker that can be stopped and started.
func ownWorker(t *testing.T, events int) (w *world, start func() (stop func())) {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{
		SearchAttributes: worker.SearchAttributes(), ContinueAsNewAfter: events,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	c, err := client.Dial(client.Options{HostPort: server.Address(), Logger: quiet{}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	w = &world{t: t, client: c, app: temporaltest.Unique(t), dir: t.TempDir(), store: t.TempDir(), fake: fake.New(nil)}
	return w, func() func() {
		stop, err := startWorker(server.Address(), w.store, w.fake)
		require.NoError(t, err)
		return stop
	}
}

// lose takes a part of the store away, so that reading and writing it fails for root too.
func (w *world) lose(part string) (found func()) {
	w.t.Helper()
	path, away := filepath.Join(w.store, part), filepath.Join(w.t.TempDir(), "away")
	if err := os.Rename(path, away); err != nil {
		require.ErrorIs(w.t, err, os.ErrNotExist)
	}
	require.NoError(w.t, os.WriteFile(path, nil, 0o600))
	return func() {
		require.NoError(w.t, os.Remove(path))
		if err := os.Rename(away, path); err != nil {
			require.ErrorIs(w.t, err, os.ErrNotExist)
		}
	}
}

// A run that cannot hand its state over, because it is large and the store is away, goes on until it
// can: ending without it would lose the service.
func TestContinueAsNewOutlivesTheStore(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it is half a minute until the store is tried again; not with -short")
	}
	w, start := ownWorker(t, 300)
	defer start()()
	const channelsHere = 40
	var yaml strings.Builder
	yaml.WriteString("apiVersion: converge/v1\nkind: Application\nname: APP\nreleaseChannels:\n")
	for n := range channelsHere {
		fmt.Fprintf(&yaml, "- {name: c%d, runtimes: [{name: APP-rt}]}\n", n)
	}
	w.write(yaml.String() + twoChannels[strings.Index(twoChannels, "---"):] + web)
	w.publish()
	found := w.lose("states")
	first := w.runID("web")
	for n := range channelsHere { // a state too large for an event, even packed
		w.act("web", protocol.Pause, marshal(t, map[string]string{"by": "ann", "channel": fmt.Sprintf("c%d", n), "reason": noise(2000, n)}))
	}
	said := func(s protocol.Status) bool {
		return strings.Contains(strings.Join(s.Notes, "\n"), "the store does not answer: write states/")
	}
	for n := 0; !said(w.status("web")); n++ {
		require.Less(t, n, 200, "the run never ends")
		w.act("web", protocol.Refresh, `{"by":"ann"}`)
	}
	require.Equal(t, first, w.runID("web"))
	w.act("web", protocol.Pause, `{"by":"bob","reason":"meanwhile"}`)
	found()
	temporaltest.WaitFor(t, 2*patience, func() (bool, string) { return w.runID("web") != first, "still the first run" })
	s := w.awaitThat("web", "restored", func(s protocol.Status) bool { return len(s.Pauses) == channelsHere+1 })
	require.Equal(t, "meanwhile", s.Pauses[channelsHere].Reason)
	w.act("web", protocol.Refresh, `{"by":"ann"}`)
	require.Empty(t, w.status("web").Notes, "the store answers again")
}

func (w *world) runID(service string) string {
	d, err := w.client.DescribeWorkflowExecution(w.t.Context(), w.id(service), "")
	require.NoError(w.t, err)
	return d.GetWorkflowExecutionInfo().GetExecution().GetRunId()
}

// A store that was away and is back leaves nothing behind: no note, and no timer that goes on firing.
func TestStoreComesBack(t *testing.T) {
	t.Parallel()
	w, start := ownWorker(t, 0)
	stop := start()
	w.write(twoChannels + web)
	w.publish()
	w.release("web", "v1")
	w.await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.act("web", protocol.Pause, `{"by":"ann","channel":"production"}`)
	w.write(twoChannels + strings.Replace(web, "default: hello", "default: bye", 1))
	w.publish()
	w.await("web", "staging CONVERGED v1-i2, production PAUSED v1")
	stop()
	found := w.lose("versions")
	defer start()()
	w.act("web", protocol.Resume, `{"by":"ann","channel":"production"}`)
	w.awaitThat("web", "a note", func(s protocol.Status) bool { return len(s.Notes) > 0 })
	found()
	s := w.await("web", "staging CONVERGED v1-i2, production CONVERGED v1-i2")
	require.Empty(t, s.Notes)
	timers := 0
	for _, e := range w.history(w.id("web")) {
		switch e.GetEventType() {
		case enums.EVENT_TYPE_TIMER_STARTED:
			timers++
		case enums.EVENT_TYPE_TIMER_FIRED, enums.EVENT_TYPE_TIMER_CANCELED:
			timers--
		}
	}
	require.Zero(t, timers, "nothing is due")
}

// An application that was once published into a store that no worker reads is not deaf for ever.
func TestPublicationIntoTheWrongStoreIsSuperseded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(twoChannels + web)
	w.publish()
	into := func(store string) publish.Result {
		result, err := publish.Publish(t.Context(), publish.Options{
			Client: w.client, Dir: w.dir, StoreURL: store, By: "test", Fake: true, TakeOver: true,
		})
		require.NoError(t, err)
		return result
	}
	w.write(twoChannels + strings.Replace(web, "default: hello", "default: wrong", 1))
	require.False(t, into(t.TempDir()).Told)
	w.write(twoChannels + strings.Replace(web, "default: hello", "default: right", 1))
	require.True(t, into(w.store).Told)
	w.awaitThat("web", "incarnation 3", func(s protocol.Status) bool { return s.Incarnation == 3 })
}
