package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/chaos/record"
)

// TestMain plays the part of a process for the tests, which are this program.
func TestMain(m *testing.M) {
	if code, played := play(os.Args); played {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// testSeed draws the short storm.
const testSeed = 650

var short = size{releases: 12, kills: 4, freezes: 1, cuts: 1, services: 3, signals: 20, attacks: 300}

// The short form of `make chaos`.
func TestShortStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs and runs real processes for a minute; not with -short")
	}
	dir := t.TempDir()
	t.Cleanup(func() {
		if t.Failed() {
			said(t, dir)
		}
	})
	began := time.Now()
	r, err := run(t.Context(), draw(testSeed, short), dir, t.Output())
	require.NoError(t, err)
	r.Took = time.Since(began)
	require.NoError(t, report(t.Output(), r))
	require.Len(t, r.Attacks, short.attacks)
	for _, why := range []string{"the token was used for another request", "mallory may not ", "needs proof of identity"} {
		require.True(t, slices.ContainsFunc(r.Attacks, func(a record.Attack) bool { return strings.Contains(a.Refused, why) }), "no attack met: %s", why)
	}
	for _, f := range record.Judge(r) {
		require.NotZero(t, f.Compared, "%s had nothing to compare", f.Check)
	}
	require.Len(t, r.Faults, short.kills+short.freezes+short.cuts, "all that was drawn went wrong")
}

// Plans of services that need each other, while workers and the server are killed: every node runs, and none once more after the store had
// that it was done.
func TestPlansOutliveKills_E8_F2(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs and runs real processes for a minute; not with -short")
	}
	dir := t.TempDir()
	t.Cleanup(func() {
		if t.Failed() {
			said(t, dir)
		}
	})
	require.NoError(t, planChaos{seed: testSeed, services: 6, kills: 5}.run(t.Context(), dir, t.Output()))
}

// said shows what the processes wrote last.
func said(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{worker1, worker2, serverName, storeName} {
		text, err := os.ReadFile(dir + "/logs/" + name + ".log")
		if err == nil {
			t.Logf("%s said last:\n%s", name, text[max(0, len(text)-4000):])
		}
	}
}

// What a seed draws is the same each time, and another seed draws something else.
func TestPlanFollowsFromItsSeed(t *testing.T) {
	long := size{releases: 1000, kills: 100, freezes: 33, cuts: 33, services: 6, signals: 20, attacks: 2000, long: true}
	require.Equal(t, draw(7, long).String(), draw(7, long).String())
	require.NotEqual(t, draw(7, long).String(), draw(8, long).String())
}

// The long form has every verb and every way to go wrong; so has the short form, but for the ways to last long.
func TestPlanHasEverything(t *testing.T) {
	verbs := []string{
		protocol.Release, protocol.Approve, protocol.Reject, protocol.Bypass, protocol.Pause, protocol.Resume, protocol.Cancel,
		protocol.Retry, protocol.Refresh, protocol.Pin, protocol.Unpin, protocol.Rollback, protocol.Publish,
	}
	for name, c := range map[string]struct {
		seed uint64
		size size
	}{
		"long":  {1, size{releases: 1000, kills: 100, freezes: 33, cuts: 33, services: 6, signals: 20, attacks: 2000, long: true}},
		"short": {testSeed, short},
	} {
		t.Run(name, func(t *testing.T) {
			p := draw(c.seed, c.size)
			count, seen := map[string]int{}, map[int]bool{}
			for _, lane := range p.names() {
				for _, s := range p.lanes[lane] {
					if s.waits {
						continue
					}
					require.False(t, seen[s.N], "two acts have one number")
					seen[s.N] = true
					count[s.Verb]++
				}
			}
			require.Equal(t, c.size.releases, count[protocol.Release])
			for _, verb := range verbs {
				require.NotZero(t, count[verb], verb)
			}
			for _, f := range p.faults {
				count[f.kind]++
				count[f.target]++
				require.Less(t, f.after, c.size.releases, "it comes before the end")
			}
			require.Equal(t, []int{c.size.kills, c.size.freezes, c.size.cuts},
				[]int{count[record.Kill], count[record.Freeze], count[record.Stall] + count[record.Cut]})
			for _, target := range []string{worker1, worker2, serverName, storeName} {
				require.NotZero(t, count[target], target)
			}
			for _, identity := range []identity{unproven, own, stolen} {
				pins := func(a attack) bool {
					return a.name == protocol.Pin && a.id == protocol.ApplicationID(application) && a.identity == identity
				}
				require.True(t, slices.ContainsFunc(p.attacks, pins), "nobody pins the application with %q", identity)
			}
			for _, same := range []bool{false, true} {
				across := func(a attack) bool {
					return a.identity == stolen && a.same == same && a.id != protocol.ServiceID(application, a.from)
				}
				require.True(t, slices.ContainsFunc(p.attacks, across), "no token is used at another service, with its content: %t", same)
			}
			foreign := func(a attack) bool { return a.identity == own && strings.Contains(a.payload, `"requestId":"c`) }
			require.True(t, slices.ContainsFunc(p.attacks, foreign), "no request id is somebody else's")
			if c.size.long {
				require.True(t, slices.ContainsFunc(p.faults, func(f fault) bool {
					return f.kind == record.Freeze && f.lasts > record.HeartbeatTimeout
				}))
			}
		})
	}
}
