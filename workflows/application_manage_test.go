package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

func manageAs(service, by, why string) protocol.ManageRequest {
	return protocol.ManageRequest{RequestMeta: protocol.RequestMeta{By: by, Reason: why}, Service: service}
}

// An unmanaged service is ended and gets no announcements. It is started again, with the reason, once it is managed again: a single
// service, and all of them.
func TestUnmanagedServiceIsEndedUntilManaged(t *testing.T) {
	h := newApplicationTest(t)
	h.publish(0, 1)
	h.sendUpdate(10*second, protocol.Unmanage, manageAs("web", "alice", "moving"),
		"shop/web is unmanaged: it is neither observed nor applied until: converge config manage shop/web")
	h.publish(20*second, 2)
	h.sendUpdate(30*second, protocol.Unmanage, manageAs("", "bob", "drill"),
		"shop is unmanaged: it is neither observed nor applied until: converge config manage shop")
	h.sendUpdate(31*second, protocol.Manage, manageAs("api", "bob", ""), "all of shop is unmanaged, not shop/api alone; instead: converge config manage shop")
	h.sendUpdate(40*second, protocol.Manage, manageAs("", "bob", ""), "shop is managed again; unmanaged individually: web")
	h.sendUpdate(50*second, protocol.Manage, manageAs("web", "carol", "moved"), "shop/web is managed again")
	next := h.run(nil)
	require.Len(t, h.answers, 5)
	require.Equal(t, []string{
		"m1 web unmanaged by alice: moving",
		"m2 * unmanaged by bob: drill web unmanaged by alice: moving",
		"m2 web unmanaged by alice: moving",
	}, h.unmanageRequests)
	require.Equal(t, []string{
		" → m1 as 1", "m1 → m2 as 2, without web",
		"m2 → m2 as 2, without web, * managed again by bob",
		"m2 → m2 as 2, web managed again by carol: moved",
	}, h.notified)
	require.Equal(t, []string{
		"1 alice: shop/web unmanaged: moving", "2 bob: shop unmanaged: drill",
		"3 bob: shop managed again", "4 carol: shop/web managed again: moved",
	}, h.auditTrail)
	require.Equal(t, []string{"web", "", "", "web"}, h.auditServices, "lines of one service name it")
	require.Empty(t, next.Unmanaged)
	require.Empty(t, next.PendingStarts)
	require.False(t, next.Ending)
}

// Invalid requests are refused, and there are never more entries than services.
func TestUnmanageRefused(t *testing.T) {
	h := newApplicationTest(t)
	h.sendUpdate(second, protocol.Unmanage, manageAs("web", "alice", "x"), "nothing was published yet")
	h.publish(2*second, 1) // of two services
	h.sendUpdate(3*second, protocol.Unmanage, manageAs("web", "alice", " "), `"reason" is missing; expected why the service is not managed`)
	h.sendUpdate(4*second, protocol.Manage, manageAs("web", "alice", ""), "shop/web is not unmanaged")
	h.sendUpdate(5*second, protocol.Unmanage, manageAs("web", "alice", "x"),
		"shop/web is unmanaged: it is neither observed nor applied until: converge config manage shop/web")
	h.sendUpdate(6*second, protocol.Unmanage, manageAs("web", "bob", "x"), "shop/web is unmanaged already, by alice")
	h.sendUpdate(7*second, protocol.Manage, manageAs("", "bob", ""), "shop is not unmanaged; unmanaged individually: web")
	h.sendUpdate(8*second, protocol.Unmanage, manageAs("api", "alice", "x"),
		"shop/api is unmanaged: it is neither observed nor applied until: converge config manage shop/api")
	h.sendUpdate(9*second, protocol.Unmanage, manageAs("wbe", "alice", "x"), "2 services are unmanaged already, which are all")
	next := h.run(nil)
	require.Len(t, h.answers, 8)
	require.Len(t, next.Unmanaged, 2)
}

// An undeclared service is not recorded, and the request is refused; a service that cannot be ended is tried again.
func TestUnmanageOfUndeclaredAndUnreachedServices(t *testing.T) {
	h := newApplicationTest(t)
	h.publish(0, 1)
	h.onUnmanage = func(r protocol.UnmanageRequest) (out protocol.UnmanageAnswer, _ error) {
		if _, odd := r.Services["wbe"]; odd {
			out.Undeclared = []string{"wbe"}
		} else if len(h.unmanageRequests) < 3 {
			out.Unreached = protocol.Unreached{Services: []string{"web"}, Why: "web: no answer"}
		}
		return out, nil
	}
	h.sendSignal(second, protocol.Unmanage, manageAs("wbe", "alice", "x"))
	h.sendSignal(5*second, protocol.Unmanage, manageAs("web", "alice", "x"))
	h.env.RegisterDelayedCallback(func() {}, time.Minute)
	h.last = time.Minute
	next := h.run(nil)
	require.Equal(t, []string{"m1 wbe unmanaged by alice: x", "m1 web unmanaged by alice: x", "m1 web unmanaged by alice: x"}, h.unmanageRequests)
	require.Contains(t, next.Unmanaged, "web")
	require.NotContains(t, next.Unmanaged, "wbe")
	require.Equal(t, `shop declares no service "wbe"`, next.Refused[0].Reason)
	require.Empty(t, next.Problem)
}

// The next run does the work that a run did not complete.
func TestUnmanageContinuesInTheNextRun(t *testing.T) {
	first := newApplicationTest(t)
	first.publish(0, 1)
	first.sendSignal(second, protocol.Unmanage, manageAs("web", "alice", "x"))
	state := first.run(nil)
	state.Ending = true // as if it had ended before the workflow was
	state.PendingStarts = map[string]string{"api": "managed again by bob"}

	again := newApplicationTest(t)
	last := again.run(state)
	require.Equal(t, []string{"m1 web unmanaged by alice: x"}, again.unmanageRequests)
	require.Equal(t, []string{"m1 → m1 as 1, without web, api managed again by bob"}, again.notified)
	require.False(t, last.Ending)
	require.Empty(t, last.PendingStarts)
}
