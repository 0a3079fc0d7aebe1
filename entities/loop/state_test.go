package loop_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/loop"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

func oneChannel(t *testing.T) *world {
	t.Helper()
	w := newWorld()
	w.channel("staging", func(*entities.ChannelSpec) {})
	w.publish()
	return w
}

func TestPruneKeepsTheCurrentRelease(t *testing.T) {
	w := oneChannel(t)
	_, err := w.release("v1", "")
	require.NoError(t, err)
	w.applyAll()
	_, err = perform(w.s.Pause("", bob, "", w.now))
	require.NoError(t, err)
	for i := range 3 * state.MaxFinishedReleases {
		version := fmt.Sprint("v", i+2)
		_, err := w.release(version, "")
		require.NoError(t, err)
		_, err = perform(w.s.Cancel(state.Cancellation{Version: version, Who: bob}, w.now))
		require.NoError(t, err)
		w.applyAll()
	}
	require.Len(t, w.s.Releases, state.MaxFinishedReleases)
	require.Equal(t, "v1", w.s.Releases[0].Version, "staging runs it")
	require.Equal(t, "v31", w.s.Newest().Version)

	r, err := w.release("v32", "")
	require.NoError(t, err)
	require.Equal(t, "32", r.ID, "ids continue")
}

func TestReleasesInFlightAreBounded(t *testing.T) {
	w := oneChannel(t)
	for i := range state.MaxOpenReleases {
		w.s.Releases = append(w.s.Releases, &state.Release{
			ID: fmt.Sprint("r", i), Phases: map[string]*state.PhaseState{"staging": {Phase: maestro.Pending}},
		})
	}
	_, err := w.release("one-more", "")
	require.EqualError(t, err, "10000 releases are in flight, which is the limit; cancel those that are not needed: converge cancel shop/web --older-than VERSION")
	w.channel("staging", func(c *entities.ChannelSpec) { c.Instances[0].Template = "t2" })
	require.Nil(t, w.publish(), "configuration waits for the next release")
	require.EqualValues(t, 2, w.s.WaitingConfig)
}

func TestHeldConfiguration(t *testing.T) {
	w := newWorld()
	w.next.ConfigChanges = entities.ConfigHold
	w.channel("staging", func(*entities.ChannelSpec) {})
	w.publish()
	_, err := w.release("v1", "")
	require.NoError(t, err)
	template := func(name string) *state.Release {
		w.channel("staging", func(c *entities.ChannelSpec) { c.Instances[0].Template = name })
		return w.publish()
	}
	require.Nil(t, template("t2"))
	require.EqualValues(t, 2, w.s.WaitingConfig)
	require.Nil(t, template("t1"))
	require.Zero(t, w.s.WaitingConfig, "reverted")
	require.Nil(t, template("t3"))
	require.EqualValues(t, 4, w.s.WaitingConfig)
	w.s.OpenRelease(state.NewRelease{Version: "v1", FullVersion: "v1", Incarnation: 1, Payloads: map[entities.InstanceID]string{entities.Only("staging"): "t1@v1"}}, w.now)
	require.EqualValues(t, 4, w.s.WaitingConfig, "a known version keeps its own payload")
	_, err = w.release("v2", "")
	require.NoError(t, err)
	require.Zero(t, w.s.WaitingConfig)
}

// A long life: 200 releases over 10 channels, each with approvals, checks before and after, an extension that sometimes fails, bypasses
// and rollbacks. The state stays small.
func TestStateStaysSmall(t *testing.T) {
	w := newWorld()
	for n := range 10 {
		w.channel(fmt.Sprintf("c%d", n), func(c *entities.ChannelSpec) {
			c.NoRollback = false
			c.Conditions = []entities.Condition{{ID: "approval/go", Kind: entities.ManualApproval, Topic: "go", MinApprovers: 2}}
			c.Checks = []entities.Check{{ID: "slo", Kind: entities.CheckAlways, Definition: "d", Interval: time.Minute, At: []entities.CheckAt{
				{Stage: entities.PreApproval}, {Stage: entities.PostDeployment, For: time.Hour},
			}}}
			c.Extensions = []entities.Extension{{Name: "migrate", Stage: entities.PostApproval, Key: c.Name, MaxAttempts: 1}}
		})
	}
	w.publish()
	largest, rolledBack := 0, 0
	for n := range 200 {
		w.now = w.now.Add(time.Hour)
		r, err := w.release(fmt.Sprint("v", n), "")
		require.NoError(t, err)
		for _, who := range []string{"alice", "bob"} {
			_, err = perform(w.s.Approve(r.Version, entities.Approval{Topic: "go", Who: entities.Who{Name: who}, At: w.now, Comment: "looks good to me"}))
			require.NoError(t, err)
		}
		w.deliverRelease(t, r, n)
		w.s.AuditStored(w.s.AuditCount - state.AuditFlushSize)
		if r.Phases["c0"].Phase.Entered() && !w.s.Instances[entities.Only("c0")].IsAt(r) {
			rolledBack++
		}
		raw, err := json.Marshal(w.s)
		require.NoError(t, err)
		largest = max(largest, len(raw))
	}
	t.Logf("at most %d bytes, %d releases, %d of them rolled back in c0", largest, len(w.s.Releases), rolledBack)
	require.Positive(t, rolledBack)
	require.LessOrEqual(t, len(w.s.Releases), state.MaxFinishedReleases+2*state.MaxEarlier)
	require.Less(t, largest, 64_000)
}

// deliverRelease brings a release everywhere except where its extension or its window fails it.
func (w *world) deliverRelease(t *testing.T, r *state.Release, n int) {
	t.Helper()
	bad := func(channel string) bool { return n%5 == 4 && channel == "c0" }
	for range 200 {
		d := w.decide(decide.Mode{})
		w.firstReadings()
		for _, l := range w.decision.Evaluations(w.s) {
			verdict := entities.Pass
			if c := w.s.Channels[l.Channel]; bad(l.Channel) && !c.StableSince.IsZero() {
				verdict = entities.Fail
			}
			w.evaluated(l, entities.CheckReading{Verdict: verdict, Reason: "error rate is 0.1 %, below 1 %", At: w.now})
		}
		for _, op := range w.preflights {
			readings := map[string]entities.CheckReading{}
			for _, l := range op.Checks {
				readings[l.Key()] = entities.CheckReading{Verdict: entities.Pass}
			}
			delete(w.preflights, op.Channel)
			w.s.RecordPreflight(op, readings, w.now)
			w.decide(decide.Mode{})
		}
		for _, op := range d.Extensions {
			failure := ""
			if n%3 == 0 && op.Channel == "c1" {
				failure = "exit status 1"
			}
			w.s.ExtensionEnded(op, failure, fmt.Sprintf("%0500d", n), "log-key", w.now)
			if failure != "" {
				_, err := perform(decide.Bypass(w.s, r.Version, entities.Bypass{Channel: "c1", Condition: "extension/migrate", Who: bob, Reason: "done by hand", At: w.now}))
				require.NoError(t, err)
			}
		}
		for _, id := range entities.SortedIDs(w.applies) {
			w.succeedApply(id)
		}
		if !w.decision.HasEffects() && len(w.preflights)+len(w.applies) == 0 && r.Over() && w.targetsConverged() {
			return
		}
		w.now = later(w.now.Add(time.Second), w.decision.Wake)
	}
	t.Fatalf("the work of %s does not end:\n%s", r.Version, w.decision)
}

func (w *world) targetsConverged() bool {
	for _, i := range w.s.Instances {
		if !i.Delivery.Converged {
			return false
		}
	}
	return true
}

// An apply that cannot begin does not fail the release: neither attempts nor the deadline count, and it is retried without a limit.
func TestApplyUnready(t *testing.T) {
	now := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	s := state.New("shop", "web")
	s.ApplySpec(&entities.Spec{
		Application: "shop", Service: "web", Incarnation: 1,
		Channels: []entities.ChannelSpec{{Name: "staging", Instances: []entities.InstanceSpec{{Name: entities.OnlyInstance, Runtime: "rt"}}, ProgressDeadline: time.Minute}},
		Runtimes: map[string]*entities.RuntimeSpec{"rt": {Kind: entities.RuntimeCustom, Timing: entities.RuntimeTiming{MaxAttempts: 2, RetryBackoff: time.Second, ApplyTimeout: time.Minute}}},
	}, "d", now)
	s.OpenRelease(state.NewRelease{Version: "v1", FullVersion: "v1", By: "alice", Payloads: map[entities.InstanceID]string{entities.Only("staging"): "p"}}, now)
	for range 10 {
		d := loop.Settle(s, now, decide.Mode{})
		require.Len(t, d.Applies, 1)
		s.ApplyUnready(entities.Only("staging"), d.Applies[0].Target, "the store is away", now)
		d = loop.Settle(s, now, decide.Mode{})
		require.Empty(t, d.Applies)
		require.Equal(t, []string{"the apply cannot begin: the store is away"}, d.Channels[0].Texts())
		require.Equal(t, entities.StatusConverging, d.Channels[0].Status)
		require.Equal(t, now.Add(15*time.Second), d.Wake)
		now = now.Add(5 * time.Minute)
	}
}

// While the runtime's API throttles calls, it is unknown whether a release is stable: its deadline stands, and ends it only after the time
// that was left.
func TestThrottledReadingSuspendsTheDeadline(t *testing.T) {
	id := entities.Only("staging")
	for _, row := range []struct {
		then entities.ObjectStatus
		want entities.Status
	}{{entities.ObjectSucceeded, entities.StatusConverged}, {entities.ObjectPending, entities.StatusFailed}} {
		now := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
		s := state.New("shop", "web")
		s.ApplySpec(&entities.Spec{
			Application: "shop", Service: "web", Incarnation: 1,
			Channels: []entities.ChannelSpec{{Name: "staging", Instances: []entities.InstanceSpec{{Name: entities.OnlyInstance, Runtime: "rt"}}, ProgressDeadline: time.Minute}},
			Runtimes: map[string]*entities.RuntimeSpec{"rt": {Kind: entities.RuntimeECS, Observable: true, Mode: entities.FetchStructured, Timing: entities.RuntimeTiming{MaxAttempts: 1, ApplyTimeout: time.Minute}}},
		}, "d", now)
		s.RecordReading(id, "", entities.Reading{At: now}, true, now)
		s.OpenRelease(state.NewRelease{Version: "v1", FullVersion: "v1", By: "alice", Payloads: map[entities.InstanceID]string{id: "p"}}, now)
		d := loop.Settle(s, now, decide.Mode{})
		require.Len(t, d.Applies, 1)
		s.ApplyEnded(id, d.Applies[0].Target, "", false, now)
		for range 10 {
			now = now.Add(time.Minute)
			s.RecordReading(id, "v1", entities.Reading{At: now, Err: &entities.ReadingError{Code: "throttled", Message: "no more calls", Throttled: true}}, true, now)
			d = loop.Settle(s, now, decide.Mode{})
			require.Equal(t, entities.StatusUnknown, d.Channels[0].Status)
			require.Equal(t, []string{"throttled: no more calls"}, d.Channels[0].Texts())
		}
		read := func() {
			s.RecordReading(id, "v1", entities.Reading{At: now, Objects: []entities.Object{{Name: "web", Status: row.then, Versions: []entities.ObjectVersion{{Version: "v1", Active: true}}}}}, true, now)
			d = loop.Settle(s, now, decide.Mode{})
		}
		read()
		if len(d.Applies) > 0 { // it is not stable yet
			require.Equal(t, entities.StatusConverging, d.Channels[0].Status)
			s.ApplyEnded(id, d.Applies[0].Target, "", false, now)
			now = now.Add(time.Minute)
			read()
		}
		require.Equal(t, row.want, d.Channels[0].Status)
	}
}

// An apply that no worker takes has not failed. If the runtime can be observed, the next one waits for a reading, else it is required at
// once. Neither attempts nor the deadline count, for any length of time.
func TestApplyWithoutWorker_D17(t *testing.T) {
	for _, observable := range []bool{true, false} {
		now := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
		s := state.New("shop", "web")
		s.ApplySpec(&entities.Spec{
			Application: "shop", Service: "web", Incarnation: 1,
			Channels: []entities.ChannelSpec{{Name: "staging", Instances: []entities.InstanceSpec{{Name: entities.OnlyInstance, Runtime: "rt"}}, ProgressDeadline: time.Minute}},
			Runtimes: map[string]*entities.RuntimeSpec{"rt": {Kind: entities.RuntimeCustom, Remote: true, Observable: observable, Mode: entities.FetchStructured, Timing: entities.RuntimeTiming{MaxAttempts: 1, ApplyTimeout: time.Minute}}},
		}, "d", now)
		id := entities.Only("staging")
		s.RecordReading(id, "", entities.Reading{At: now}, true, now)
		s.OpenRelease(state.NewRelease{Version: "v1", FullVersion: "v1", By: "alice", Payloads: map[entities.InstanceID]string{id: "p"}}, now)
		d := loop.Settle(s, now, decide.Mode{})
		for range 5 {
			require.Len(t, d.Applies, 1)
			target := d.Applies[0].Target
			now = now.Add(5 * time.Minute)
			s.NoWorkerForApply(id, target, &entities.ReadingError{Code: entities.CodeNoWorker, Message: "no worker polls runtime/rt"}, now)
			d = loop.Settle(s, now, decide.Mode{})
			require.Equal(t, entities.StatusUnknown, d.Channels[0].Status)
			require.Equal(t, []string{
				"no-worker: no worker polls runtime/rt; v1 is applied once one does", "start a worker that can reach it: converge worker --runtime rt",
			}, d.Channels[0].Texts())
			if observable {
				require.Empty(t, d.Applies, "it waits for a reading")
				s.RecordReading(id, "v1", entities.Reading{At: now}, true, now)
				d = loop.Settle(s, now, decide.Mode{})
			}
		}
		require.Zero(t, s.Instances[id].Delivery.Apply.Attempts)
		require.Empty(t, s.Instances[id].Delivery.Failure)
	}
}
