package entities

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A long life: 200 releases over 10 channels, each with approvals, checks before and after, an
// extension that fails at times, bypasses and ways back. What is kept stays small, whatever was.
func TestStateStaysSmall(t *testing.T) {
	w := newWorld()
	for n := range 10 {
		w.channel(fmt.Sprintf("c%d", n), func(c *ChannelSpec) {
			c.NoRollback = false
			c.Conditions = []Condition{{ID: "approval/go", Kind: ManualApproval, Topic: "go", MinApprovers: 2}}
			c.Checks = []Check{{ID: "slo", Kind: CheckAlways, Definition: "d", Interval: time.Minute, At: []CheckAt{
				{Stage: PreApproval}, {Stage: PostDeployment, For: time.Hour},
			}}}
			c.Extensions = []Extension{{Name: "migrate", Stage: PostApproval, Key: c.Name, MaxAttempts: 1}}
		})
	}
	w.publish()
	most, back := 0, 0
	for n := range 200 {
		w.now = w.now.Add(time.Hour)
		r, err := w.release(fmt.Sprint("v", n), "")
		require.NoError(t, err)
		for _, who := range []string{"alice", "bob"} {
			_, err = w.s.Approve(r.Version, Approval{Topic: "go", Who: Who{Name: who}, At: w.now, Comment: "looks good to me"})
			require.NoError(t, err)
		}
		w.playRelease(t, r, n)
		w.s.AuditStored(w.s.AuditLines - FlushAudit)
		if r.Phases["c0"].Phase.Entered() && !w.s.isAt("c0", r) {
			back++
		}
		raw, err := json.Marshal(w.s)
		require.NoError(t, err)
		most = max(most, len(raw))
	}
	t.Logf("at most %d bytes, %d releases, %d of them taken back in c0", most, len(w.s.Releases), back)
	require.Positive(t, back)
	require.LessOrEqual(t, len(w.s.Releases), MaxFinishedReleases+2*MaxGoods)
	require.Less(t, most, 64_000)
}

// playRelease brings a release everywhere but where its extension or its window fails it.
func (w *world) playRelease(t *testing.T, r *Release, n int) {
	t.Helper()
	bad := func(channel string) bool { return n%5 == 4 && channel == "c0" }
	for range 200 {
		d := w.decide(Mode{})
		w.firstLooks()
		for _, l := range w.s.CheckLooks() {
			verdict := Pass
			if i := w.s.Instances[l.Channel]; bad(l.Channel) && !i.StableSince.IsZero() {
				verdict = Fail
			}
			w.s.CheckSeen(l, CheckReading{Verdict: verdict, Reason: "error rate is 0.1 %, below 1 %", At: w.now}, w.now)
		}
		for _, op := range w.preflights {
			readings := map[string]CheckReading{}
			for _, l := range op.Checks {
				readings[l.Key()] = CheckReading{Verdict: Pass}
			}
			delete(w.preflights, op.Channel)
			w.s.PreflightDone(op, readings, w.now)
			w.decide(Mode{})
		}
		for _, op := range d.Extensions {
			failure := ""
			if n%3 == 0 && op.Channel == "c1" {
				failure = "exit status 1"
			}
			w.s.ExtensionEnded(op, failure, fmt.Sprintf("%0500d", n), "log-key", w.now)
			if failure != "" {
				_, err := w.s.AddBypass(r.Version, Bypass{Channel: "c1", Condition: "extension/migrate", Who: bob, Reason: "done by hand", At: w.now})
				require.NoError(t, err)
			}
		}
		for _, c := range SortedKeys(w.applies) {
			version := w.applies[c].Target.FullVersion
			w.applyEnded(c, "", false)
			w.look(c, running(version, ObjectSucceeded), true)
		}
		if !w.decision.acts() && len(w.preflights)+len(w.applies) == 0 && r.Over() && w.targetsConverged() {
			return
		}
		w.now = later(w.now.Add(time.Second), w.decision.Wake)
	}
	t.Fatalf("%s does not come to rest:\n%s", r.Version, w.decision)
}

func (w *world) targetsConverged() bool {
	for _, i := range w.s.Instances {
		if !i.Converged {
			return false
		}
	}
	return true
}
