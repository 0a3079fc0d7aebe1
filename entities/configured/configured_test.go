package configured_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/configured"
	"github.com/converge-engine/converge/entities/protocol"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// steps are one service, a pause, a half, a pause, and the rest; the second failure stops it.
var steps = entities.ConfigRollout{MaxFailures: 2, Steps: []entities.RolloutStep{
	{Instances: &entities.Amount{Number: 1}},
	{Pause: 10 * time.Minute},
	{Instances: &entities.Amount{Percent: 50}},
	{Pause: 5 * time.Minute},
	{Instances: &entities.Amount{Percent: 100}},
}}

// world is an application with services a, b and so on, that wait for the configuration of incarnation 12.
type world struct {
	t   *testing.T
	all []protocol.Configured
	now time.Time
}

func newWorld(t *testing.T, services int) *world {
	t.Helper()
	w := &world{t: t, now: noon}
	for n := range services {
		w.add(string(rune('a' + n)))
	}
	return w
}

func id(name string) string { return protocol.ServiceID("shop", name) }

func (w *world) add(name string) {
	w.all = append(w.all, protocol.Configured{Service: id(name), Release: "r-" + name, Waiting: true})
}

func (w *world) service(name string) *protocol.Configured {
	for n := range w.all {
		if w.all[n].Service == id(name) {
			return &w.all[n]
		}
	}
	w.t.Fatalf("no service %s", name)
	return nil
}

func (w *world) admission(name string) configured.Admission {
	return configured.Next(steps, 12, w.all, id(name), "r-"+name, w.now)
}

// next returns the services that may enter now, in order.
func (w *world) next() (out string) {
	for _, c := range w.all {
		_, name, _ := protocol.ParseServiceID(c.Service)
		if c.Waiting && w.admission(name).Allowed {
			out += name
		}
	}
	return out
}

// enter lets these services enter; then they succeed or fail.
func (w *world) enter(names string) {
	for _, name := range names {
		c := w.service(string(name))
		c.Entered, c.Waiting = true, false
	}
}

func (w *world) succeed(names string) {
	w.enter(names)
	for _, name := range names {
		c := w.service(string(name))
		c.Succeeded, c.Failed, c.Since = true, false, w.now
	}
}

func (w *world) fail(names string) {
	w.enter(names)
	for _, name := range names {
		c := w.service(string(name))
		c.Failed, c.Since = true, w.now
	}
}

// The canary goes first, by name; the next services wait for its success and its pause.
func TestServicesInSteps_D24(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 6)
	require.Equal(t, "a", w.next())
	require.Equal(t, "0 of 6 services have incarnation 12; next shop/a", w.admission("b").Reason)
	w.enter("a")
	require.Empty(t, w.next())
	require.Equal(t, "1 of 6 services have incarnation 12; next 2 once shop/a has succeeded", w.admission("b").Reason)
	require.Equal(t, "it already has incarnation 12", w.admission("a").Reason)
	w.succeed("a")
	require.Equal(t, "1 of 6 services have incarnation 12; next 2 at 12:10:00 UTC", w.admission("b").Reason)
	require.Equal(t, noon.Add(10*time.Minute), w.admission("b").At)
	w.now = noon.Add(10*time.Minute - 1)
	require.Empty(t, w.next())
	w.now = noon.Add(10 * time.Minute)
	require.Equal(t, "bc", w.next())
	w.enter("c")
	require.Equal(t, "b", w.next(), "the step continues and selects no more")
	w.succeed("bc")
	require.Empty(t, w.next())
	w.now = w.now.Add(5 * time.Minute)
	require.Equal(t, "def", w.next())
}

// The rollout continues up to the allowed number of failures. One more stops it, until the failed services are fixed.
func TestFailuresStopServices_D24(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 6)
	w.fail("a")
	require.Empty(t, w.next(), "the pause counts from the failure")
	w.now = w.now.Add(10 * time.Minute)
	require.Equal(t, "bc", w.next())
	w.succeed("b")
	w.fail("c")
	w.now = w.now.Add(time.Hour)
	require.Empty(t, w.next())
	require.Equal(t, configured.Admission{
		Halted: true, Reason: "2 of 6 services failed with incarnation 12: shop/a, shop/c; held until they are fixed or a newer configuration is published",
	}, w.admission("f"))
	w.succeed("c")
	w.now = w.now.Add(5 * time.Minute)
	require.Equal(t, "def", w.next())
}

// A service that people hold, or that waits for others itself, blocks no other: another one goes first, and it follows.
func TestHeldServiceBlocksNoOther_D24_A16(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.service("a").HoldReason = "staging is paused by carol"
	require.Equal(t, "b", w.next())
	require.Equal(t, "0 of 4 services have incarnation 12; next others, because this one is held: staging is paused by carol", w.admission("a").Reason)
	w.succeed("b")
	w.service("a").HoldReason = ""
	w.now = w.now.Add(10 * time.Minute)
	require.Equal(t, "a", w.next())
	w.service("a").HoldReason = "staging is paused by carol"
	w.succeed("c")
	w.now = w.now.Add(5 * time.Minute)
	require.Equal(t, "d", w.next())
	w.succeed("d")
	w.service("a").HoldReason = ""
	require.Equal(t, "a", w.next())
}

// A service that is added or removed midway, or that releases nothing, needs no special case: the next service follows from the present
// ones.
func TestAddedAndRemovedServices_D23(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 6)
	w.all = append(w.all, protocol.Configured{Service: id("z")}) // nothing of it changed
	w.succeed("a")
	w.now = w.now.Add(10 * time.Minute)
	w.all = w.all[1:] // the canary is no longer declared
	require.Equal(t, "b", w.next(), "another service is the canary")
	w.succeed("b")
	for n := range 5 {
		w.add(fmt.Sprintf("n%d", n))
	}
	w.now = w.now.Add(10 * time.Minute)
	require.Equal(t, "cdef", w.next(), "half of ten")
}

// No service goes before all have reported: otherwise two could both count as the first.
func TestServicesThatDoNotReport_D23(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	*w.service("a") = protocol.Configured{Service: id("a"), Behind: true}
	*w.service("b") = protocol.Configured{Service: id("b"), Opening: true}
	require.Equal(t, "0 of 1 services have incarnation 12; next once shop/a, shop/b have processed it", w.admission("c").Reason)
	*w.service("a") = protocol.Configured{Service: id("a"), Err: "no worker"}
	require.Equal(t, "0 of 1 services have incarnation 12; next once shop/a can be reached", w.admission("c").Reason)
	require.Empty(t, w.next())
	*w.service("c") = protocol.Configured{Service: id("c"), Err: "no worker"}
	require.Equal(t, "0 of 0 services have incarnation 12; next once shop/c can be reached", w.admission("c").Reason, "also for itself")
	*w.service("c") = protocol.Configured{Service: id("c"), Release: "r-c", Waiting: true}
	*w.service("a"), *w.service("b") = protocol.Configured{Service: id("a")}, protocol.Configured{Service: id("b")}
	require.Equal(t, "c", w.next())
}

// A release of a version by people or CI does not wait for other services, nor does a release of a newer configuration: that one counts by
// itself.
func TestOnlyConfigReleasesAreHeld_B9(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	w.fail("ab")
	require.True(t, w.admission("c").Halted)
	require.True(t, configured.Next(steps, 12, w.all, id("c"), "r-of-ci", w.now).Allowed)
	require.True(t, configured.Next(steps, 12, w.all, id("unknown"), "r", w.now).Allowed)
	newer := newWorld(t, 3) // no service has failed with incarnation 13
	require.Equal(t, "a", newer.next())
}
