package operators

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// outage is how long the store is away in TestLongStoreOutage. The longest pauses between two tries, a minute for what
// waits in a service and for what an application tells its services, are reached after 62 and 63 seconds; the other tries
// come at even distances (checkpoints 5 s, looks 8 s, applies that cannot begin 15 s). What only minutes reach, such as the
// whole look after five and all that piles up, `make outage` shows.
var outage = flag.Duration("outage", 70*time.Second, "how long the store is away")

// loseAll takes the whole store away: whatever is read, written or listed there fails.
func loseAll(w *stage.World) (found func()) {
	w.T.Helper()
	away := filepath.Join(w.T.TempDir(), "store")
	require.NoError(w.T, os.Rename(w.Store, away))
	require.NoError(w.T, os.WriteFile(w.Store, nil, 0o600))
	return func() {
		require.NoError(w.T, os.Remove(w.Store))
		require.NoError(w.T, os.Rename(away, w.Store))
	}
}

// A store that is away for as long as every pause between two tries has become as long as it gets, or for -outage. All the
// while pauses are answered at once, a rollback sets its target, and a release waits; each says what for. Once the store is
// back, all are carried out within about a minute and by themselves, each in its order; checkpoints and audit lines arrive;
// somebody looks again for what is gone; nothing has failed for good.
func TestLongStoreOutage_F5_F6(t *testing.T) {
	stage.Long(t, "two minutes")
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.Write(stage.TwoChannels + stage.Web + beside)
	w.Publish()
	for _, version := range []string{"v1", "v2"} {
		for _, service := range []string{"web", "api"} {
			w.Release(service, version)
			w.Await(service, fmt.Sprintf("staging CONVERGED %[1]s, production CONVERGED %[1]s", version))
		}
	}
	before := leaseOf(w)

	back, began := loseAll(w), time.Now()
	w.Signal("web", protocol.Release, `{"version":"v3","by":"ci"}`)
	w.Act("api", protocol.Rollback, `{"channel":"production","by":"ann","reason":"errors"}`)
	pauses, longest := 0, time.Duration(0)
	for time.Since(began) < *outage {
		longest, pauses = max(longest, pauseAndResume(w, 5)), pauses+5
		waits(w, "web", "the store does not answer")
		s := w.AwaitThat("api", "why the rollback waits", func(s protocol.Status) bool { return strings.Contains(reasons(s), "v1") })
		require.Equal(t, "v1", s.Channels[1].Target)
		require.Equal(t, "v2", w.Fake.At(w.App, "api", "production").Version())
		<-time.After(min(*outage/20, *outage-time.Since(began))) // this is what happens, not a wait for something else
	}
	w.Signal("web", protocol.Release, `{"version":"v4","by":"ci"}`)
	t.Logf("in %s without a store: %d pauses and their ends, answered within %s at most", time.Since(began).Round(time.Second), pauses, longest.Round(time.Millisecond))

	back()
	since := time.Now()
	after := func(what string) {
		t.Helper()
		t.Logf("%s %s after the store was back", what, time.Since(since).Round(100*time.Millisecond))
		require.Less(t, time.Since(since), aMinute+15*time.Second)
	}
	w.AwaitThat("api", "rolled back", func(s protocol.Status) bool { return s.Channels[1].Status == "ROLLED_BACK" })
	after("rolled back")
	s := w.Await("web", "staging CONVERGED v4, production CONVERGED v4")
	after("released")
	require.Equal(t, []string{"v4", "v3", "v2", "v1"}, versionsOf(s))
	require.Empty(t, s.Refused)
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		n := storedPauses(w)
		return n == 2*pauses, fmt.Sprintf("%d of %d pauses and their ends in the trail", n, 2*pauses)
	})
	after("the trail was whole")
	w.AwaitThat("web", "nothing to note", func(s protocol.Status) bool { return len(s.Notes) == 0 })

	awaitLook(w, w.ID("web")) // from its checkpoint
	after("supervised")
	require.Greater(t, leaseOf(w), before)
	s = w.Await("web", "staging CONVERGED v4, production CONVERGED v4")
	require.Contains(t, journal(s), "continues from its checkpoint")
	applied := appliedTo(w, "web/production", "api/production")
	require.True(t, slices.IsSorted(applied["web/production"]), "%v; v4 may overtake v3 in staging, never the other way round", applied)
	require.Equal(t, []string{"v1", "v2", "v1"}, applied["api/production"])
	noFailedTasks(w, w.ID("web"))
	noFailedTasks(w, w.ID("api"))
	noFailedTasks(w, protocol.ApplicationID(w.App))
}

// waits requires that a service notes what it waits for.
func waits(w *stage.World, service, what string) {
	w.T.Helper()
	w.AwaitThat(service, "a note: "+what, func(s protocol.Status) bool { return strings.Contains(strings.Join(s.Notes, "\n"), what) })
}

func versionsOf(s protocol.Status) (versions []string) {
	for _, r := range s.Releases {
		versions = append(versions, r.Version)
	}
	return versions
}

// appliedTo are the versions that were applied, whole, to instances named as "web/production", in order.
func appliedTo(w *stage.World, instances ...string) map[string][]string {
	applied := map[string][]string{}
	for _, a := range w.Fake.Applies() {
		for _, name := range instances {
			if a.Instance == w.App+"/"+name && a.Err == "" {
				applied[name] = append(applied[name], a.Version)
			}
		}
	}
	return applied
}

func opened(w *stage.World) *store.Store {
	w.T.Helper()
	s, err := store.Open(w.T.Context(), w.Store)
	require.NoError(w.T, err)
	w.T.Cleanup(func() { _ = s.Close() }) // it was read only
	return s
}

// leaseOf is the number of the lease by which one worker looks for what is gone.
func leaseOf(w *stage.World) int64 {
	w.T.Helper()
	n, holder, err := opened(w).Lease(w.T.Context(), "supervision-1")
	require.NoError(w.T, err)
	require.NotEmpty(w.T, holder)
	return n
}

// storedPauses counts the pauses of web and their ends in the store's audit trail.
func storedPauses(w *stage.World) (n int) {
	w.T.Helper()
	lines, err := opened(w).Audit(context.WithoutCancel(w.T.Context()), w.App, "web")
	require.NoError(w.T, err)
	for _, line := range lines {
		if line.Kind == entities.EventPause {
			n++
		}
	}
	return n
}
