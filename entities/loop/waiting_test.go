package loop_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/loop"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/view"
)

// manyWait is a service of four channels, one after the other, in which n releases have passed the first and wait for an approval of the
// second.
func manyWait(t testing.TB, n int, strategy string) *world {
	w := newWorld()
	digest := func(of string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(of))) }
	w.next.Maestro.Strategy, w.next.Hash = strategy, digest("incarnation")
	for k, name := range []string{"dev", "staging", "prod-eu", "prod-us"} {
		w.channel(name, func(c *entities.ChannelSpec) {
			c.Instances[0].Template = digest(name)
			if k > 0 {
				c.Conditions = []entities.Condition{stableAfter(w.next.Channels[k-1].Name)}
			}
			if k == 1 {
				c.Conditions = append(c.Conditions, entities.Condition{ID: "approval/go", Kind: entities.ManualApproval, Topic: "go", MinApprovers: 1})
			}
		})
	}
	w.publish()
	for i := range n {
		version := fmt.Sprintf("v%d", i+1)
		require.NoError(t, w.s.CheckRelease(version, nil, nil))
		payloads := map[entities.InstanceID]string{}
		for _, id := range w.s.Spec.IDs() {
			payloads[id] = digest(version + id.Key())
		}
		w.now = w.now.Add(17*time.Minute + time.Duration(i*i*7919+12345)*time.Nanosecond)
		r := w.s.OpenRelease(state.NewRelease{
			Version: version, FullVersion: version, Incarnation: 1, Hash: w.next.Hash, Payloads: payloads, By: "ci",
		}, w.now)
		w.now = w.now.Add(41*time.Second + time.Duration(i*i*104729%1_000_000_007)*time.Nanosecond)
		if i < n-1 { // as if all had run, which takes long
			r.Phases["dev"] = &state.PhaseState{Phase: maestro.Succeeded, Since: w.now, Reason: "release " + version + " by ci"}
		}
	}
	w.applyAll()
	w.s.AuditStored(w.s.AuditCount)
	return w
}

// A release needs little state while it waits behind many: a thousand of them, in four channels, fit in one payload (B3, F8).
func TestManyWaitingReleasesFitInOnePayload_B3_F8(t *testing.T) {
	w := manyWait(t, 1000, "train")
	packed, err := protocol.Pack(w.s)
	require.NoError(t, err)
	require.LessOrEqual(t, len(packed), 64<<10, "of %d releases", len(w.s.Releases))
	require.Equal(t, 1000, w.s.OpenCount())
}

// The status is bounded with any number of waiting releases: the newest and the next ones are listed; the others are counted.
func TestStatusOfVeryManyIsBounded_B3_F8(t *testing.T) {
	w := manyWait(t, 3000, "train")
	status := view.Of(w.s, w.decide(decide.Mode{}))
	require.Len(t, status.Releases, 1001)
	require.Equal(t, 1999, status.MoreReleases)
	require.Equal(t, "v3000", status.Releases[0].Version)
	require.Equal(t, "v1", status.Releases[1000].Version, "it is next in staging")
	require.Contains(t, status.Notes, "1999 older releases are not listed")
	require.Less(t, len(strings.Join(explain.Lines(status, "", w.now), "\n")), 4<<10)
	require.LessOrEqual(t, len(explain.Markdown(status)), explain.MarkdownLimit)
}

// The cost of a decision grows linearly with the number of waiting releases.
func BenchmarkDecisionWithManyWaiting(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10_000} {
		w := manyWait(b, n, "latest")
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				loop.Settle(w.s, w.now, decide.Mode{})
			}
		})
		b.Run(fmt.Sprint(n, " and the newest enters"), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				w.continueAsNew()
				before := copyOf(w.s)
				_, err := perform(w.s.Approve(w.s.Newest().Version, entities.Approval{Topic: "go", Who: bob, At: w.now}))
				require.NoError(b, err)
				b.StartTimer()
				w.applyAll()
				b.StopTimer()
				w.s = before
				b.StartTimer()
			}
		})
	}
}
