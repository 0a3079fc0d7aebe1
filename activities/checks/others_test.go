package checks_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/protocol"
)

// release returns a release of an incarnation, in a phase in prod.
func release(version string, incarnation int64, phase maestro.Phase) protocol.ReleaseStatus {
	return protocol.ReleaseStatus{ID: "id-" + version, Version: version, Incarnation: incarnation, Phases: map[string]string{"prod": string(phase)}}
}

// inProd returns a service in prod with that status. Releases are newest first.
func inProd(status entities.Status, target, desired string, releases ...protocol.ReleaseStatus) protocol.Status {
	return protocol.Status{
		Incarnation: 7, Releases: releases,
		Channels: []protocol.ChannelStatus{{Name: "prod", Status: string(status), Health: string(status), Target: target, Desired: desired}},
	}
}

// withConditions adds conditions that are not met.
func withConditions(s protocol.Status, conditions ...string) protocol.Status {
	for _, id := range conditions {
		s.Channels[0].Conditions = append(s.Channels[0].Conditions, protocol.ConditionStatus{ID: id, Kind: "check", Verdict: "WAIT"})
	}
	return s
}

// newWorld returns the application shop, in which web v2-i7 is evaluated.
func newWorld(others map[string]protocol.Status) World {
	w := World{Incarnation: 7, Statuses: map[string]protocol.Status{
		"web": {Incarnation: 7, Releases: []protocol.ReleaseStatus{{ID: "r3", Version: "v2-i7", Incarnation: 9}, {ID: "r2", Version: "v2-i7", Incarnation: 7}, {ID: "r1", Version: "v1", Incarnation: 4}}},
	}}
	for name, s := range others {
		w.Statuses[name] = s
	}
	return w
}

func dependencyRequest(kind entities.CheckKind, d entities.Dependency) checks.Request {
	return newRequest(kind, func(def *entities.CheckDefinition) { def.Dependency = &d })
}

func withAPI(s protocol.Status) checks.Sources {
	return newWorld(map[string]protocol.Status{"api": s}).Sources()
}

func TestServiceStable_D22(t *testing.T) {
	t.Parallel()
	a := dependencyRequest(entities.CheckServiceStable, entities.Dependency{Service: "api"})
	rows := []Row{
		{Name: "stable", Sources: withAPI(inProd(entities.StatusConverged, "v5", "v5")), Request: a, Want: entities.Pass, Reason: "api in prod is CONVERGED at v5"},
		{Name: "not started", Sources: newWorld(nil).Sources(), Request: a, Want: entities.Wait, Reason: "api has not started yet"},
		{Name: "in another channel", Sources: withAPI(inProd(entities.StatusConverged, "v5", "v5")), Request: dependencyRequest(entities.CheckServiceStable, entities.Dependency{Service: "api", Channel: "staging"}), Want: entities.Fail, Reason: "api does not deploy to staging"},
	}
	for status, verdict := range map[entities.Status]entities.Verdict{
		entities.StatusConverging: entities.Wait, entities.StatusDegraded: entities.Wait, entities.StatusUnknown: entities.Wait,
		entities.StatusRollingBack: entities.Wait, entities.StatusFailed: entities.Fail, entities.StatusFailedRollback: entities.Fail,
		entities.StatusRolledBack: entities.Fail, entities.StatusOrphaned: entities.Fail, entities.StatusDeleted: entities.Fail,
	} {
		rows = append(rows, Row{Name: string(status), Sources: withAPI(inProd(status, "v5", "v5")), Request: a, Want: verdict, Reason: "api in prod is " + string(status)})
	}
	paused := inProd(entities.StatusPaused, "v5", "v5")
	paused.Application, paused.Service = "shop", "api"
	paused.Pauses = []entities.Pause{{By: "bob", Reason: "incident 12", At: time.Date(2026, 11, 20, 10, 41, 0, 0, time.UTC)}}
	paused.Channels[0].Health = string(entities.StatusConverging)
	rows = append(rows, Row{
		Name: "paused by a person", Sources: withAPI(paused), Request: a, Want: entities.Wait,
		Reason: "api in prod is CONVERGING: api is paused by bob (incident 12) since 2026-11-20 10:41 UTC",
	})
	// Only health counts: a waiting or paused service may be healthy, or unhealthy.
	for _, status := range []entities.Status{entities.StatusPaused, entities.StatusPreconditions, entities.StatusManualApproval, entities.StatusBlocked} {
		says := inProd(status, "v5", "v6")
		for health, verdict := range map[entities.Status]entities.Verdict{
			entities.StatusConverged: entities.Pass, entities.StatusConverging: entities.Wait, entities.StatusDegraded: entities.Wait,
			entities.StatusUnknown: entities.Wait, entities.StatusFailed: entities.Fail, entities.StatusRolledBack: entities.Fail,
		} {
			of := says
			of.Channels = []protocol.ChannelStatus{says.Channels[0]}
			of.Channels[0].Health = string(health)
			want := "api in prod is " + string(health)
			if verdict == entities.Pass {
				want = "api in prod is healthy at v5, and " + string(status)
			}
			rows = append(rows, Row{Name: string(status + " and " + health), Sources: withAPI(of), Request: a, Want: verdict, Reason: want})
		}
	}
	Conform(t, Kind{Kind: entities.CheckServiceStable, Rows: rows})
}

func TestVersionOrder_D22(t *testing.T) {
	t.Parallel()
	a := dependencyRequest(entities.CheckVersionOrder, entities.Dependency{Service: "api"})
	flags := release("flags.x577f1208", 7, maestro.Succeeded)
	flags.Aspect = "flags"
	row := func(name string, s protocol.Status, want entities.Verdict, says string) Row {
		return Row{Name: name, Sources: withAPI(s), Request: a, Want: want, Reason: says}
	}
	Conform(t, Kind{Kind: entities.CheckVersionOrder, Rows: []Row{
		row("newer", inProd(entities.StatusConverged, "v10", "v10", release("v10", 7, maestro.Succeeded)), entities.Pass, "api in prod has v10, which is at least v2 (by number)"),
		row("same version, other configuration", inProd(entities.StatusConverged, "v2-i3", "v2-i3"), entities.Pass, "api in prod has v2, which is at least v2 (the same)"),
		row("older", inProd(entities.StatusConverged, "v1", "v1", release("v1", 7, maestro.Succeeded)), entities.Wait, "api in prod has v1; expected at least v2 (by number)"),
		row("in progress", inProd(entities.StatusConverging, "v3", "v3", release("v3", 7, maestro.InProgress), release("v1", 6, maestro.Succeeded)), entities.Wait, "api in prod has v1; expected at least v2 (by number)"),
		row("failed", inProd(entities.StatusFailed, "v3", "v3", release("v3", 7, maestro.Failed), release("v1", 6, maestro.Succeeded)), entities.Fail, "api in prod has v1; expected at least v2 (by number), and api is FAILED"),
		row("rolled back", inProd(entities.StatusRolledBack, "v1", "v1", release("v3", 7, maestro.RolledBack), release("v1", 6, maestro.Succeeded)), entities.Fail, "api in prod has v1; expected at least v2 (by number), and api is ROLLED_BACK"),
		row("pinned to an older one", inProd(entities.StatusConverged, "v1", "v1", release("v3", 7, maestro.Succeeded), release("v1", 6, maestro.Succeeded)), entities.Wait, "api in prod has v1; expected at least v2 (by number)"),
		row("first release", inProd(entities.StatusConverging, "v3", "v3", release("v3", 7, maestro.InProgress)), entities.Wait, "the version of api in prod is not known yet; expected at least v2"),
		row("in progress, with values", inProd(entities.StatusConverging, "v3-flags.x577f1208", "v3-flags.x577f1208", flags, release("v3", 7, maestro.InProgress), release("v1", 6, maestro.Succeeded)), entities.Wait, "api in prod has v1; expected at least v2 (by number)"),
		row("of another form", inProd(entities.StatusConverged, "nightly-7", "nightly-7"), entities.Error, "api in prod has nightly-7, which cannot be compared with v2; expected two numbers, semantic versions or time stamps of one form"),
		row("unknown", inProd(entities.StatusUnknown, "v3", "v3"), entities.Wait, "the version of api in prod is not known yet; expected at least v2"),
	}})
}

func TestStaticOrder_D22(t *testing.T) {
	t.Parallel()
	a := dependencyRequest(entities.CheckStaticOrder, entities.Dependency{Service: "api"})
	row := func(name string, want entities.Verdict, says string, releases ...protocol.ReleaseStatus) Row {
		return Row{Name: name, Sources: withAPI(inProd(entities.StatusConverging, "v1", "v1", releases...)), Request: a, Want: want, Reason: says}
	}
	flags := release("flags.x577f1208", 7, maestro.Pending)
	flags.Aspect = "flags"
	repair := a
	repair.Evaluation.Release, repair.Evaluation.FullVersion = "", "v1"
	Conform(t, Kind{Kind: entities.CheckStaticOrder, Rows: []Row{
		row("nothing", entities.Pass, "no release up to incarnation 7 is open for api in prod"),
		row("through", entities.Pass, "no release up to incarnation 7 is open for api in prod", release("v5", 7, maestro.Succeeded), release("v4", 6, maestro.Failed), release("v3", 6, maestro.Skipped)),
		row("pending, of the same", entities.Wait, "v5 (incarnation 7) is still open for api in prod, and goes before incarnation 7", release("v5", 7, maestro.Pending)),
		row("in progress, of an earlier incarnation", entities.Wait, "v4 (incarnation 6) is still open for api in prod, and goes before incarnation 7", release("v5", 7, maestro.Pending), release("v4", 6, maestro.InProgress)),
		row("values", entities.Pass, "no release up to incarnation 7 is open for api in prod", flags),
		row("of a later one", entities.Pass, "no release up to incarnation 7 is open for api in prod", release("v5", 8, maestro.Pending)),
		{Name: "a repair uses the current version", Sources: withAPI(inProd(entities.StatusConverging, "v1", "v1", release("v5", 7, maestro.Pending))), Request: repair, Want: entities.Pass, Reason: "no release up to incarnation 4 is open for api in prod"},
	}})
}

// A service of another application is queried like one of the same. If it does not exist, the reason says what was expected.
func TestServiceOfAnotherApplication_D22_A13(t *testing.T) {
	t.Parallel()
	evaluate := func(kind entities.CheckKind, on entities.Dependency, orders map[string]protocol.Status, here map[string]protocol.Status) string {
		w := newWorld(here)
		if orders != nil {
			w.Elsewhere = map[string]World{"orders": {Incarnation: 1, Statuses: orders}}
		}
		a := newRequest(kind, func(def *entities.CheckDefinition) { def.Dependency = &on })
		r := checks.Evaluate(t.Context(), w.Sources(), a)
		return string(r.Verdict) + " " + r.Reason
	}
	api := entities.Dependency{Service: "orders/api"}
	stable := func(orders map[string]protocol.Status) string {
		return evaluate(entities.CheckServiceStable, api, orders, map[string]protocol.Status{"api": inProd(entities.StatusFailed, "v1", "v1")})
	}
	require.Equal(t, "PASS orders/api in prod is CONVERGED at v5", stable(map[string]protocol.Status{"api": inProd(entities.StatusConverged, "v5", "v5")}))
	require.Equal(t, "WAIT application orders does not exist; expected one with the service api", stable(nil))
	require.Equal(t, "WAIT application orders has no started service api", stable(map[string]protocol.Status{}))
	require.Equal(t, "FAIL orders/api does not deploy to staging", evaluate(entities.CheckServiceStable, entities.Dependency{Service: "orders/api", Channel: "staging"},
		map[string]protocol.Status{"api": inProd(entities.StatusConverged, "v5", "v5")}, nil))
	require.Equal(t, "WAIT orders/api in prod has v1; expected at least v2 (by number)", evaluate(entities.CheckVersionOrder, api,
		map[string]protocol.Status{"api": inProd(entities.StatusConverged, "v1", "v1")}, nil))

	// The earlier release goes first, regardless of incarnation numbers.
	at := func(r protocol.ReleaseStatus, minutes int) protocol.ReleaseStatus {
		r.At = time.Date(2026, 11, 20, 10, minutes, 0, 0, time.UTC)
		return r
	}
	web := map[string]protocol.Status{"web": {Incarnation: 7, Releases: []protocol.ReleaseStatus{at(protocol.ReleaseStatus{ID: "r2", Version: "v2-i7", Incarnation: 7}, 30)}}}
	static := func(released int, phase maestro.Phase) string {
		return evaluate(entities.CheckStaticOrder, api, map[string]protocol.Status{
			"api": inProd(entities.StatusConverging, "v1", "v1", at(release("v5", 900, phase), released)),
		}, web)
	}
	require.Equal(t, "WAIT v5 is still open for orders/api in prod, and was released earlier", static(29, maestro.Pending))
	require.Equal(t, "WAIT v5 is still open for orders/api in prod, and was released earlier", static(30, maestro.InProgress))
	require.Equal(t, "PASS no earlier release is open for orders/api in prod", static(29, maestro.Succeeded))
	require.Equal(t, "PASS no earlier release is open for orders/api in prod", static(31, maestro.Pending))

	// A cycle is found through both applications; db of orders is not db of shop.
	pending := func(conditions ...string) protocol.Status {
		return withConditions(inProd(entities.StatusPreconditions, "v1", "v2"), conditions...)
	}
	circle := func(orders map[string]protocol.Status) string {
		return evaluate(entities.CheckServiceStable, api, orders, map[string]protocol.Status{"db": pending("service-stable/web")})
	}
	require.Equal(t, "FAIL deadlock: web in prod waits for orders/api, which waits for orders/db, which waits for web. orders/api in prod is WAITING_PRECONDITIONS",
		circle(map[string]protocol.Status{"api": pending("static-order/db"), "db": pending("version-order/shop/web@prod")}))
	require.Equal(t, "WAIT orders/api in prod is WAITING_PRECONDITIONS",
		circle(map[string]protocol.Status{"api": pending("static-order/db"), "db": pending("version-order/web@prod")}))
}

// For a capacity order each of two applications must have read its own newest incarnation.
func TestCapacityOfAnotherApplication_D20(t *testing.T) {
	t.Parallel()
	a := dependencyRequest(entities.CheckCapacityOrder, entities.Dependency{Service: "net/lb", Parameter: "replicas", OtherParameter: "weight", First: "shrinking"})
	a.Evaluation.Payload, a.Evaluation.CurrentPayload = "after", "before"
	lb := inProd(entities.StatusConverged, "l1", "l2", release("l1", 7, maestro.Succeeded))
	w := newWorld(nil)
	w.Stored = map[string]entities.Payload{"before": {Parameters: map[string]any{"replicas": 2}}, "after": {Parameters: map[string]any{"replicas": 4}}}
	net := World{
		Incarnation: 3, Statuses: map[string]protocol.Status{"lb": lb},
		Rendered: map[string]map[string]any{"lb@l1": {"weight": 2}, "lb@l2": {"weight": 4}},
	}
	w.Elsewhere = map[string]World{"net": net}
	r := checks.Evaluate(t.Context(), w.Sources(), a)
	require.Equal(t, entities.Wait, r.Verdict, r.Reason)
	require.Contains(t, r.Reason, "net/lb in prod changes from 2 to 4 and must go first when growing")
	net.Behind = map[string]bool{"lb": true}
	w.Elsewhere = map[string]World{"net": net}
	require.Equal(t, "net/lb has read incarnation 7, but 3 is the newest; both services must have read it", checks.Evaluate(t.Context(), w.Sources(), a).Reason)
}

// A cycle of waits is a deadlock whose reason names all members.
func TestDeadlock_D21(t *testing.T) {
	t.Parallel()
	a := dependencyRequest(entities.CheckServiceStable, entities.Dependency{Service: "api"})
	pending := inProd(entities.StatusPreconditions, "v1", "v2")
	evaluate := func(others map[string]protocol.Status) string {
		r := checks.Evaluate(t.Context(), newWorld(others).Sources(), a)
		return string(r.Verdict) + " " + r.Reason
	}
	clone := func() protocol.Status {
		s := pending
		s.Channels = append([]protocol.ChannelStatus(nil), pending.Channels...)
		return s
	}
	require.Equal(t, "FAIL deadlock: web in prod waits for api, which waits for web. api in prod is WAITING_PRECONDITIONS",
		evaluate(map[string]protocol.Status{"api": withConditions(clone(), "office-hours", "version-order/web")}))
	require.Equal(t, "FAIL deadlock: web in prod waits for api, which waits for db, which waits for web. api in prod is WAITING_PRECONDITIONS",
		evaluate(map[string]protocol.Status{"api": withConditions(clone(), "static-order/cache", "static-order/db"), "db": withConditions(clone(), "capacity-order/web@prod"), "cache": withConditions(clone(), "service-stable/api")}))
	require.Equal(t, "WAIT api in prod is WAITING_PRECONDITIONS",
		evaluate(map[string]protocol.Status{"api": withConditions(clone(), "static-order/db"), "db": withConditions(clone(), "static-order/cache"), "cache": withConditions(clone(), "static-order/db")}), "a cycle of others is not a deadlock of this service")
	require.Equal(t, "WAIT api in prod is WAITING_PRECONDITIONS",
		evaluate(map[string]protocol.Status{"api": withConditions(clone(), "version-order/web@staging", "static-order/gone")}), "web in another channel is another node")
	blocked := withConditions(clone(), "version-order/web")
	blocked.Channels[0].Status, blocked.Channels[0].Health = string(entities.StatusBlocked), string(entities.StatusBlocked)
	blocked.Channels[0].Conditions[0].Verdict = "FAIL"
	require.Equal(t, "FAIL deadlock: web in prod waits for api, which waits for web. api in prod is BLOCKED",
		evaluate(map[string]protocol.Status{"api": blocked}), "the first service to find it is blocked")
	passed := withConditions(clone(), "version-order/web")
	passed.Channels[0].Conditions[0].Verdict = "PASS"
	require.Equal(t, "WAIT api in prod is WAITING_PRECONDITIONS", evaluate(map[string]protocol.Status{"api": passed}))
}

// Two unhealthy services that depend on each other never repair each other. That is a deadlock too, whether the other waits with its repair
// or with its next release.
func TestDeadlockOfRepairs_D21(t *testing.T) {
	t.Parallel()
	ill := func(service string, checks ...protocol.CheckStatus) map[string]protocol.Status {
		s := inProd(entities.StatusDegraded, "v1", "v1")
		s.Channels[0].Checks = checks
		return map[string]protocol.Status{service: s}
	}
	of := func(id string, v entities.Verdict) protocol.CheckStatus {
		return protocol.CheckStatus{ID: entities.RepairKey(id), Verdict: string(v)}
	}
	repair := dependencyRequest(entities.CheckServiceStable, entities.Dependency{Service: "api"})
	repair.Evaluation.Release = ""
	evaluate := func(others map[string]protocol.Status) string {
		r := checks.Evaluate(t.Context(), newWorld(others).Sources(), repair)
		return string(r.Verdict) + " " + r.Reason
	}
	const waits = "WAIT api in prod is DEGRADED"
	deadlock := "FAIL deadlock: web in prod waits for api, which waits for web. api in prod is DEGRADED"
	require.Equal(t, waits, evaluate(ill("api")))
	require.Equal(t, waits, evaluate(ill("api", of("office-hours", entities.Wait), of("service-stable/web", entities.Pass))))
	require.Equal(t, waits, evaluate(ill("api", of("service-stable/web", entities.Error))), "unknown")
	require.Equal(t, waits, evaluate(ill("api", protocol.CheckStatus{ID: "service-stable/web", Verdict: "WAIT"})), "of a release that is not next")
	require.Equal(t, deadlock, evaluate(ill("api", of("service-stable/web", entities.Wait))))
	require.Equal(t, deadlock, evaluate(ill("api", of("service-stable/web", entities.Fail))), "the first service to find it")
	released := inProd(entities.StatusPreconditions, "v1", "v2")
	require.Equal(t, "FAIL deadlock: web in prod waits for api, which waits for web. api in prod is WAITING_PRECONDITIONS",
		evaluate(map[string]protocol.Status{"api": withConditions(released, "service-stable/web")}))
}

// capacities returns a world in which web has replicas, before and after, and the versions of routes have a weight.
func capacities(s protocol.Status, mine [2]any, others map[string]any) World {
	w := newWorld(map[string]protocol.Status{"routes": s})
	w.Stored = map[string]entities.Payload{
		"before": {Parameters: map[string]any{"replicas": mine[0]}},
		"after":  {Parameters: map[string]any{"replicas": mine[1]}},
	}
	w.Rendered = map[string]map[string]any{}
	for version, n := range others {
		w.Rendered["routes@"+version] = map[string]any{"weight": n}
	}
	return w
}

func TestCapacityOrder_D20(t *testing.T) {
	t.Parallel()
	job := dependencyRequest(entities.CheckCapacityOrder, entities.Dependency{Service: "routes", Parameter: "replicas", OtherParameter: "weight", First: "growing"})
	next := inProd(entities.StatusPreconditions, "v1", "v2", release("v2", 7, maestro.Pending), release("v1", 6, maestro.Succeeded))
	weights := func(before, after any) map[string]any { return map[string]any{"v1": before, "v2": after} }
	row := func(name string, w World, want entities.Verdict, says string) Row {
		return Row{Name: name, Sources: w.Sources(), Request: job, Want: want, Reason: says}
	}
	moved := func(status entities.Status, phase maestro.Phase) protocol.Status {
		return inProd(status, "v2", "v2", release("v2", 7, phase), release("v1", 6, maestro.Succeeded))
	}
	behind := capacities(next, [2]any{4, 2}, weights(40, 20))
	behind.Behind = map[string]bool{"routes": true}
	selfBehind := capacities(next, [2]any{4, 2}, weights(40, 20))
	selfBehind.Behind = map[string]bool{"web": true}
	first := job
	first.Evaluation.CurrentPayload = ""
	Conform(t, Kind{Kind: entities.CheckCapacityOrder, Rows: []Row{
		row("the balancer shrinks first", capacities(next, [2]any{4, 2.0}, weights(40, 20)), entities.Wait, "routes in prod changes from 40 to 20 and must go first when shrinking; this one changes from 4 to 2"),
		row("in progress", capacities(moved(entities.StatusConverging, maestro.InProgress), [2]any{4, 2}, weights(40, 20)), entities.Wait, "routes in prod changes from 40 to 20 and must go first when shrinking; this one changes from 4 to 2"),
		row("failed", capacities(moved(entities.StatusFailed, maestro.Failed), [2]any{4, 2}, weights(40, 20)), entities.Fail, "routes in prod changes from 40 to 20 and must go first when shrinking; this one changes from 4 to 2, and routes is FAILED"),
		row("succeeded", capacities(moved(entities.StatusConverged, maestro.Succeeded), [2]any{4, 2}, weights(40, 20)), entities.Pass, "this one changes from 4 to 2, routes in prod stays at 20: it need not wait"),
		row("the job grows first", capacities(next, [2]any{2, 4}, weights(20, 40)), entities.Pass, "this one changes from 2 to 4, routes in prod changes from 20 to 40: it need not wait"),
		row("no change needs no query", World{Stored: capacities(next, [2]any{4, 4}, nil).Stored}, entities.Pass, "the capacity stays at 4, so nothing depends on it"),
		row("the other service is behind", behind, entities.Wait, "routes has read incarnation 7, but 7 is the newest; both services must have read it"),
		row("this service is behind", selfBehind, entities.Wait, "web has read incarnation 7, but 7 is the newest; both services must have read it"),
		row("not rendered", capacities(next, [2]any{4, 2}, map[string]any{"v1": 1}), entities.Error, "parameters of v2 of routes in prod: routes v2 is not stored"),
		row("no number", capacities(next, [2]any{4, 2}, weights(1, true)), entities.Error, "v2 of routes in prod: parameter weight is not a number"),
		{Name: "the first release starts at zero", Sources: capacities(next, [2]any{9, 2}, weights(20, 40)).Sources(), Request: first, Want: entities.Pass, Reason: "this one changes from 0 to 2, routes in prod changes from 20 to 40: it need not wait"},
	}})
}

// Of two services that list each other, at most one waits, whatever their changes, unless their declarations contradict each other. Then,
// once each finds the other waiting, it is a deadlock that names both.
func TestCapacityOrderBlocksAtMostOne_D21(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 3)
		web, routes := [2]any{n.Draw(t, "web"), n.Draw(t, "web next")}, [2]any{n.Draw(t, "routes"), n.Draw(t, "routes next")}
		way := rapid.SampledFrom([]string{"growing", "shrinking"})
		webFirst, routesFirst := way.Draw(t, "web first"), way.Draw(t, "routes first")
		w := World{
			Incarnation: 7, Statuses: map[string]protocol.Status{}, Rendered: map[string]map[string]any{}, Stored: map[string]entities.Payload{},
		}
		for name, size := range map[string][2]any{"web": web, "routes": routes} {
			w.Statuses[name] = inProd(entities.StatusPreconditions, "v1", "v2", release("v2", 7, maestro.Pending), release("v1", 6, maestro.Succeeded))
			for i, version := range []string{"v1", "v2"} {
				w.Rendered[name+"@"+version] = map[string]any{"size": size[i]}
				w.Stored[name+version] = entities.Payload{Parameters: map[string]any{"size": size[i]}}
			}
		}
		evaluate := func(me, you, first string) entities.CheckReading {
			a := dependencyRequest(entities.CheckCapacityOrder, entities.Dependency{Service: you, Parameter: "size", First: first})
			a.Definition.Service = me
			a.Evaluation = entities.Evaluation{Release: "id-v2", FullVersion: "v2", Payload: me + "v2", CurrentPayload: me + "v1"}
			return checks.Evaluate(t.Context(), w.Sources(), a)
		}
		one, other := evaluate("web", "routes", webFirst), evaluate("routes", "web", routesFirst)
		blocks := func(r entities.CheckReading) bool { return r.Verdict != entities.Pass }
		if webFirst != routesFirst {
			require.False(t, blocks(one) && blocks(other), "%s; %s", one.Reason, other.Reason)
		}
		if !blocks(one) || !blocks(other) {
			return
		}
		w.Statuses["web"] = withConditions(w.Statuses["web"], "capacity-order/routes")
		w.Statuses["routes"] = withConditions(w.Statuses["routes"], "capacity-order/web")
		one, other = evaluate("web", "routes", webFirst), evaluate("routes", "web", routesFirst)
		require.Equal(t, entities.Fail, one.Verdict)
		require.Contains(t, one.Reason, "deadlock: web in prod waits for routes, which waits for web.")
		require.Equal(t, entities.Fail, other.Verdict)
		require.Contains(t, other.Reason, "deadlock: routes in prod waits for web, which waits for routes.")
	})
}
