package tests

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/converge-engine/converge/tests/programtest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/fakeruntime"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// numbered are the names of so many runtimes.
func numbered(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("n%03d", i+1))
	}
	return names
}

// applied is what was asked of the fleet of a version, in the order in which it began.
func (w *world) applied(version string) (all []fakeruntime.Apply) {
	for _, a := range w.Fake.Applies() {
		if strings.HasPrefix(a.Instance, w.App+"/web/") && a.Version == version {
			all = append(all, a)
		}
	}
	return all
}

// appliedTo names where these were, without what comes before the runtime's own name.
func (w *world) appliedTo(all []fakeruntime.Apply) (names []string) {
	for _, a := range all {
		names = append(names, strings.TrimPrefix(a.Instance, w.App+"/web/production/"+w.App+"-"))
	}
	return names
}

// said is what the channel of a fleet says of itself.
func said(s protocol.Status) string {
	var lines []string
	for _, r := range s.Channels[0].Reasons {
		lines = append(lines, r.Text)
	}
	return strings.Join(lines, "\n")
}

// awaitSaid waits until the channel says something.
func (w *world) awaitSaid(text string) protocol.Status {
	w.T.Helper()
	return w.AwaitThat("web", text, func(s protocol.Status) bool { return len(s.Channels) > 0 && strings.Contains(said(s), text) })
}

// A version that is bad stops at the canary, which alone goes back: nobody else ever gets it. A good one goes everywhere, each
// step once all of the one before are there (D24, D25, D27).
func TestFleetInSteps_D24_D25_D27(t *testing.T) {
	t.Parallel()
	for _, n := range []int{12, 500} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			t.Cleanup(func() { w.Retire("web") })
			names, pause := numbered(n), time.Second
			w.Write(strings.ReplaceAll(fleet(`rollout: {steps: [{instances: 1}, {pause: 1s}, {instances: "25%"}, {instances: "100%"}]}`, names...),
				"pollInterval: 100ms, steadyPollInterval: 300ms", "pollInterval: 1s, steadyPollInterval: 5m"))
			w.Publish()
			all := func(version string) protocol.Status {
				t.Helper()
				return w.AwaitThat("web", "all at "+version, func(s protocol.Status) bool {
					f := s.Channels[0].Fleet
					return stage.Channels(s) == "production CONVERGED "+version && f.AtVersion == n && f.Version == version
				})
			}
			release := func(version string) { // a signal waits for a store that is slow to take hundreds of payloads
				t.Helper()
				w.Signal("web", protocol.Release, fmt.Sprintf(`{"by":"ci","version":%q}`, version))
			}
			release("v1")
			all("v1")

			for _, name := range names {
				w.inFleet(name).Break("v2", "crash loop")
			}
			release("v2")
			s := w.Await("web", "production ROLLED_BACK v1")
			require.Contains(t, said(s), "n001: web FAILED: crash loop; it is barred here")
			require.Equal(t, names[:1], w.appliedTo(w.applied("v2")))
			require.Len(t, w.applied("v1"), n+1, "the canary went back, and nobody else was touched")

			release("v3")
			all("v3")
			got := w.applied("v3")
			require.Len(t, got, n)
			quarter := n / 4
			for _, step := range [][2]int{{0, 1}, {1, quarter}, {quarter, n}} {
				require.ElementsMatch(t, names[step[0]:step[1]], w.appliedTo(got[step[0]:step[1]]))
				for _, before := range got[:step[0]] {
					require.False(t, got[step[0]].Started.Before(before.Ended), "before %s was there", before.Instance)
				}
			}
			require.GreaterOrEqual(t, got[1].Started.Sub(got[0].Ended), pause)
			require.Empty(t, w.Fake.Overlaps())
		})
	}
}

// awaitFleet waits until all of a fleet are at rest at a version.
func (w *world) awaitFleet(version string, names ...string) {
	w.T.Helper()
	w.awaitInstances(strings.Join(names, " CONVERGED "+version+", ") + " CONVERGED " + version)
}

// selectScript selects what the file order names, one after the other, as far as it is free by what it is told.
const selectScript = `#!/bin/sh
test -e broken && echo all && exit
free=$(grep -o '"name":"[^"]*","runtime":"[^"]*","labels":{[^}]*},"updated":false,"stable":true,"held":false' "$PVN_CHECK_FILE")
for name in $(cat order); do
	case "$free" in *"\"$name\""*) next="$next${next:+, }\"$name\"" ;; esac
done
echo "{\"next\": [$next], \"askAgain\": \"1s\"}"
`

// A command says which instances are next: in its order, no more at once than may be unavailable, and none while it names none.
// What it says that is no answer selects nothing, and is said; another policy goes on from there (D23, D24).
func TestFleetByCommand_D23_D24(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() { w.Retire("web") })
	file := func(name, text string) {
		t.Helper()
		programtest.Write(t, filepath.Join(w.Dir, name), text)
	}
	names := []string{"eu-1", "eu-2", "eu-3", "eu-4"}
	file("select.sh", selectScript)
	file("order", "")
	w.Write(fleet("rollout: {command: [./select.sh], maxUnavailable: 1}", names...))
	w.Publish()
	w.Release("web", "v1")
	w.awaitSaid("./select.sh selects none now; runs again after 1s")
	require.Empty(t, w.applied("v1"), "never everything")

	order := []string{"eu-3", "eu-1", "eu-4", "eu-2"}
	file("order", w.App+"-"+strings.Join(order, " "+w.App+"-"))
	w.awaitFleet("v1", names...)
	w.Release("web", "v2")
	w.awaitFleet("v2", names...)
	got := w.applied("v2")
	require.Equal(t, order, w.appliedTo(got))
	for n := 1; n < len(got); n++ {
		require.False(t, got[n].Started.Before(got[n-1].Ended), "%s before %s was there", got[n].Instance, got[n-1].Instance)
	}

	file("broken", "")
	w.Release("web", "v3")
	s := w.awaitSaid(`nothing is selected: ./select.sh: it printed "all"; expected JSON`)
	require.Equal(t, "WAITING_PRECONDITIONS", s.Channels[0].Status)
	require.Empty(t, w.applied("v3"))
	w.Write(fleet("rollout: {maxUnavailable: 2}", names...))
	w.Publish()
	w.awaitFleet("v3", names...)
}

// In the middle of a rollout one instance comes and one goes, one is paused and one cannot be read, and the policy changes; between
// two steps there is no worker. Whatever can move does, what waits is repaired to what it had, and nothing is applied twice.
func TestFleetChangesMidway_D23_D24_D25(t *testing.T) {
	t.Parallel()
	w := &world{shared.OwnServer(t, 0)}
	names := numbered(13)
	policy := func(rollout string, names ...string) {
		t.Helper()
		w.Write(fleet("rollout: "+rollout, names...))
		w.Publish()
	}
	policy("{steps: [{instances: 1}]}", names[:12]...)
	w.Release("web", "v1")
	w.awaitFleet("v1", names[:12]...)
	policy("{steps: [{instances: 1}, {pause: 1h}]}", names[:12]...)
	w.Release("web", "v2")
	w.awaitSaid("step 2 of 2: 1 of 12 at v2; next 11 at ")

	w.pauseRuntime("n002", &entities.Pause{By: "alice", Reason: "upgrade", At: time.Now()})
	w.inFleet("n003").FailReadings(fakeruntime.Always, runtimes.CodeFetchFailed)
	w.inFleet("n011").SetVersion("by hand")
	require.NoError(t, w.Fake.Await(t.Context(), func() bool { return w.inFleet("n011").Version() == "v1" }), "repaired to what it had")
	w.AwaitThat("web", "n003 cannot be read", func(s protocol.Status) bool { return s.Channels[0].Health == "UNKNOWN" })
	names = append(names[:11:11], names[12])
	policy("{steps: [{instances: 1}, {instances: 4}, {pause: 1h}]}", names...)
	w.awaitSaid("step 2 of 3: 1 of 11 at v2; next 3 after " + w.App + "-n003: ")
	w.inFleet("n003").FailReadings(0, "")
	w.awaitSaid("step 3 of 3: 4 of 11 at v2; next 7 at ")
	require.ElementsMatch(t, []string{"n001", "n003", "n004", "n005"}, w.appliedTo(w.applied("v2")))

	w.StopWorker()
	w.inFleet("n006").SetVersion("by hand")
	w.StartWorker()
	require.NoError(t, w.Fake.Await(t.Context(), func() bool { return w.inFleet("n006").Version() == "v1" }))
	w.awaitSaid("step 3 of 3: 4 of 11 at v2; next 7 at ")
	policy("{maxUnavailable: 2}", names...)
	w.awaitSaid("step 1 of 1: 10 of 11 at v2; the other 1 cannot move now")
	w.pauseRuntime("n002", nil)
	w.AwaitThat("web", "all at v2", func(s protocol.Status) bool { return s.Status == "CONVERGED" && s.Channels[0].Fleet.AtVersion == 12 })
	require.ElementsMatch(t, names[:11], w.appliedTo(w.applied("v2")), "each of them once")
	require.NotEmpty(t, w.inFleet("n013").Version())
	require.Empty(t, w.inFleet("n012").Version())
	require.Empty(t, w.Fake.Overlaps())
}

// A pin midway takes back at once what was updated, and the release waits. Without it the release enters again, by its steps.
func TestPinMidway_A17_D24(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	names := numbered(4)
	w.Write(fleet("rollout: {steps: [{instances: 1}]}", names...))
	w.Publish()
	w.Release("web", "v1")
	w.awaitFleet("v1", names...)
	w.Write(fleet("rollout: {steps: [{instances: 1}, {pause: 1h}]}", names...))
	w.Publish()
	w.Release("web", "v2")
	w.awaitSaid("step 2 of 2: 1 of 4 at v2; next 3 at ")
	w.Act("web", protocol.Pin, `{"by":"bob","channel":"production","version":"v1","reason":"stay"}`)
	w.awaitFleet("v1", names...)
	w.Act("web", protocol.Unpin, `{"by":"bob","channel":"production"}`)
	w.awaitSaid("step 2 of 2: 1 of 4 at v2; next 3 at ")
	w.Write(fleet("rollout: {steps: [{instances: 1}]}", names...))
	w.Publish()
	w.awaitFleet("v2", names...)
	require.Equal(t, []string{"n001", "n001"}, w.appliedTo(w.applied("v2"))[:2])
	require.Len(t, w.applied("v2"), 5)
}

// A check that flips, and a freeze that begins, while the canary is on its way hold the rest. explain says which step waits, and
// for what.
func TestFreezeMidway_A13_D24(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var shut atomic.Bool
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if shut.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(gate.Close)
	names := numbered(4)
	gates := func(more string) {
		t.Helper()
		w.Write(fleet("rollout: {steps: [{instances: 1}]}, protections: [{name: sale, interval: 1s, http: {url: '"+gate.URL+"'}}"+more+"]", names...))
		w.Publish()
	}
	gates("")
	w.Release("web", "v1")
	w.awaitFleet("v1", names...)

	arrive := w.inFleet("n001").HangApplies()
	w.Release("web", "v2")
	require.NoError(t, w.Fake.Await(t.Context(), w.inFleet("n001").Applying))
	shut.Store(true)
	arrive()
	host := strings.TrimPrefix(gate.URL, "http://")
	w.awaitSaid("step 2 of 2: 1 of 4 at v2; next 3 after sale: " + host + " answered 503")
	require.Regexp(t, `WAIT  sale +`+host+` answered 503`, w.explain("web"))
	gates(", {name: freeze, allowedTimes: {timeZone: UTC, freezes: [{from: '2020-01-01', to: '2099-12-31', reason: year end}]}}")
	shut.Store(false)
	w.awaitSaid("step 2 of 2: 1 of 4 at v2; next 3 after freeze: it does not open within 5 years (year end)")
	require.Contains(t, w.explain("web"), "FAIL  freeze  it does not open within 5 years (year end)")
	require.Equal(t, names[:1], w.appliedTo(w.applied("v2")))
	gates("")
	w.awaitFleet("v2", names...)
	require.Len(t, w.applied("v2"), 4)
}
