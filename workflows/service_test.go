package workflows

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

const minute = time.Minute

// A release without gates waits for no person or check: it goes straight through, as always.
func TestServiceWithoutGates(t *testing.T) {
	p := newServiceTest(t)
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.atStatus(minute, func(s protocol.Status) { require.Equal(t, "staging CONVERGED v1, prod CONVERGED v1", statusOf(s)) })
	p.run(firstInput, minute)
	require.Equal(t, []string{"apply v1 to staging", "apply v1 to prod", "keep lines 1-5"}, p.startedActivities())
}

// A release passes approval, check, extension, lease and preflight in order, with ends of runs at any point in between.
func TestReleasePassesItsGatesInOrder_A14_A20_A21_C10(t *testing.T) {
	gated := func(t *testing.T) *serviceTest {
		p := newServiceTest(t)
		p.addApproval("go-live", 2)
		p.addCheck("office-hours", entities.CheckAt{Stage: entities.PostApproval})
		p.spec.Channels[1].Extensions = []entities.Extension{{
			Name: "migrate", Stage: entities.PostApproval, Definition: "e", Key: "prod", Timeout: minute, MaxAttempts: 2, RetryBackoff: second, RetryMax: minute,
		}}
		rt := p.spec.Runtimes["edge"]
		rt.MaxApplies = 1
		p.spec.Runtimes["edge"] = rt
		return p
	}
	p := gated(t)
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.sendSignal(minute, protocol.SignalGranted, `{"id":"service/shop/web/staging/v1/1","runtime":"edge"}`)
	p.sendSignal(2*minute, protocol.Approve, `{"version":"v1","topic":"go-live","by":"alice"}`)
	p.atStatus(3*minute, func(s protocol.Status) {
		require.Equal(t, "staging CONVERGED v1, prod WAITING_MANUAL_APPROVAL ", statusOf(s))
		require.Equal(t, "v1 waits for approval `go-live` (1 of 2)", s.Headline)
		require.Len(t, s.Releases[0].Approvals, 1)
	})
	next := p.run(firstInput, minute)
	require.Equal(t, []string{
		"lease service/shop/web/staging/v1/1 of edge", "apply v1 to staging", "give service/shop/web/staging/v1/1 to edge",
	}, p.startedActivities("keep"))

	before := p
	p = gated(t)
	p.startAfter(before)
	p.setVerdict("office-hours", entities.Wait)
	p.sendSignal(second, protocol.Approve, `{"version":"v1","topic":"go-live","by":"bob"}`)
	p.atStatus(minute, func(s protocol.Status) {
		require.Equal(t, "staging CONVERGED v1, prod WAITING_PRECONDITIONS ", statusOf(s))
		require.Equal(t, "office-hours", s.Channels[1].Checks[0].ID)
		require.Equal(t, "WAIT", s.Channels[1].Checks[0].Verdict)
	})
	p.at(2*minute, func() { p.setVerdict("office-hours", entities.Pass) })
	p.sendSignal(4*minute, protocol.SignalGranted, `{"id":"service/shop/web/prod/v1/2"}`)
	p.atStatus(6*minute, func(s protocol.Status) {
		require.Equal(t, "staging CONVERGED v1, prod CONVERGED v1", statusOf(s))
		require.Equal(t, "done", s.Releases[0].Extensions[0].State)
		require.Empty(t, s.Refused)
	})
	p.run(next, minute)
	require.Equal(t, []string{
		"run migrate for v1 in prod", "lease service/shop/web/prod/v1/2 of edge", "preflight v1", "apply v1 to prod",
		"give service/shop/web/prod/v1/2 to edge",
	}, p.startedActivities("keep"))
	require.LessOrEqual(t, p.checksEnded, 2, "repeated evaluations with the same result write no history")
}

// A request id is one action, also in the next run; a second approval of a person is refused.
func TestServiceAnswersARequestIDOnceAcrossRuns_A14_B7(t *testing.T) {
	p := newServiceTest(t)
	p.addApproval("go-live", 2)
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	act := `{"version":"v1","topic":"go-live","by":"alice","requestId":"r1"}`
	once := p.sendUpdate(minute, protocol.Approve, act)
	p.sendSignal(2*minute, protocol.Approve, act)
	next := p.run(firstInput, minute)
	require.NoError(t, once.err)
	p = newServiceTest(t)
	p.addApproval("go-live", 2)
	again := p.sendUpdate(second, protocol.Approve, act)
	twice := p.sendUpdate(2*second, protocol.Approve, `{"version":"v1","topic":"go-live","by":"alice"}`)
	p.atStatus(minute, func(s protocol.Status) {
		require.Len(t, s.Releases[0].Approvals, 1)
		require.Empty(t, s.Refused)
	})
	p.run(next, minute)
	require.Equal(t, once.message, again.message)
	require.True(t, twice.rejected)
	require.ErrorContains(t, twice.err, "alice")
}

// Invalid input is refused, as an update before any write, as a signal visibly; neither changes anything.
func TestServiceRefusesWithoutIO(t *testing.T) {
	for _, c := range []struct{ verb, payload, want string }{
		{"approve", `{"version":"v1","by":"bob"}`, `"topic" is missing`},
		{"approve", `{"version":"v1","topic":"go-life","by":"bob"}`, `go-life`},
		{"approve", `{"version":"v9","topic":"go-live","by":"bob"}`, `no release of version "v9"; expected one of v1`},
		{"approve", `{"version":"v1","topic":"go-live","by":"eve"}`, `eve`},
		{"approve", `{"version":"v1","topic":"go-live","by":"bob","comments":"x"}`, `unknown field "comments"`},
		{"approve", `{"version":"v1","topic":"go-live","by":"  "}`, `"by" is missing; expected the name of the caller`},
		{"approve", `{"version":"v1","topic":"go-live","by":"bob "}`, `"by" is "bob "; expected a name without surrounding blanks`},
		{"approve", `{"version":"v1","topic":"go-live","by":"bob\u200b"}`, `"by" is "bob\u200b"; expected a name without surrounding blanks`},
		{"reject", `{"version":"v1","by":"bob"}`, `"topic" is missing`},
		{"bypass", `{"version":"v1","channel":"prod","condition":"approval/go-live","by":"bob"}`, `"reason" is missing: a bypass needs one`},
		{"bypass", `{"version":"v1","channel":"prod","condition":"approval/go-live","by":"bob","reason":"  "}`, `"reason" is missing: a bypass needs one`},
		{"bypass", `{"version":"v1","channel":"prod","by":"bob","reason":"x"}`, `"condition" is missing`},
		{"bypass", `{"version":"v1","channel":"prodd","condition":"x","by":"bob","reason":"x"}`, `no release channel "prodd"`},
		{"bypass", `{"version":"v1","channel":"prod","condition":"x","by":"bob","reason":"x"}`, `no condition "x"`},
		{"pin", `{"by":"bob"}`, `"channel" is missing`},
		{"pin", `{"channel":"staging","version":"v7","by":"bob"}`, `expected one of v1`},
		{"unpin", `{"channel":"staging","version":"v7","by":"bob"}`, `"version" is not for unpin`},
		{"unpin", `{"channel":"staging","by":"bob"}`, `is not pinned`},
		{"rollback", `{"version":"v9","by":"bob"}`, `no release of version "v9"`},
		{"rollback", `{"channel":"staging","by":"bob"}`, `no earlier good target`},
		{"delete", `{"by":"bob"}`, `is still declared`},
		{"pause", `{"by":"bob","channel":"prodd"}`, `no release channel "prodd"`},
		{"approve", `{"version":"v1","topic":"go-live","by":"bob","token":"token-of-bob"}`, `this application declares no identity`},
	} {
		t.Run(c.verb+" "+c.want, func(t *testing.T) {
			p := newServiceTest(t)
			p.addApproval("go-live", 2, "bob", "alice")
			p.publish(0)
			p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
			update := p.sendUpdate(minute, c.verb, c.payload)
			p.sendSignal(2*minute, c.verb, c.payload)
			p.atStatus(3*minute, func(s protocol.Status) {
				require.Equal(t, "staging CONVERGED v1, prod WAITING_MANUAL_APPROVAL ", statusOf(s))
				require.Empty(t, s.Releases[0].Approvals)
				require.Empty(t, s.Releases[0].Bypasses)
				require.Empty(t, s.Pins)
				require.Empty(t, s.Pauses)
				require.Len(t, s.Refused, 1)
				require.Contains(t, s.Refused[0].Reason, c.want)
			})
			next := p.run(firstInput, minute)
			require.ErrorContains(t, update.err, c.want)
			require.True(t, update.rejected, "refused before any write")
			require.NotContains(t, p.carriedState(next), "token-of")
		})
	}
}

// Pauses of the application or runtime of a service reach it by signal, or with its configuration.
func TestScopePausesReachTheService_A16(t *testing.T) {
	p := newServiceTest(t)
	p.pauses = []protocol.ScopePause{{Scope: "runtime/edge", Pause: &entities.Pause{By: "ops"}}, {Scope: "runtime/else", Pause: &entities.Pause{By: "ops"}}}
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.atStatus(minute, func(s protocol.Status) {
		require.Equal(t, "staging PAUSED , prod PAUSED ", statusOf(s))
		require.Equal(t, "converge runtime resume edge", s.Channels[0].Reasons[0].Unblock)
		require.Len(t, s.Pauses, 1, "not that of a runtime that it does not use")
	})
	p.sendSignal(2*minute, protocol.SignalScopePause, `{"scope":"application","pause":{"by":"bob","at":"2026-01-01T00:00:00Z"}}`)
	p.sendSignal(2*minute, protocol.SignalScopePause, `{"scope":"","pause":{"by":"eve","at":"2026-01-01T00:00:00Z"}}`)
	p.sendSignal(2*minute, protocol.SignalScopePause, `{"scope":"runtime/","pause":{"by":"eve","at":"2026-01-01T00:00:00Z"}}`)
	p.sendSignal(2*minute, protocol.SignalScopePause, `{"scope":"runtime/edge","pause":{}}`)
	p.sendSignal(2*minute, protocol.SignalScopePause, `{"scope":"runtime/else","pause":{"by":"ops","at":"2026-01-01T00:00:00Z"}}`)
	p.sendSignal(3*minute, protocol.SignalScopePause, `{"scope":"runtime/edge"}`)
	p.atStatus(4*minute, func(s protocol.Status) {
		require.Equal(t, "staging PAUSED , prod PAUSED ", statusOf(s))
		require.Len(t, s.Pauses, 1, "no pause that no resume could end")
		require.Equal(t, []string{
			`scope-pause by : "scope" is ""; expected "application", "runtime/NAME" or "installation"`,
			`scope-pause by : "scope" is "runtime/"; expected "application", "runtime/NAME" or "installation"`,
			`scope-pause by : "pause" needs "by" and "at"; expected both`,
		}, refusals(s))
	})
	p.sendUnconfirmed(4*minute+10*second, protocol.SignalScopePause, `{"scope":"application"}`)
	p.sendUnconfirmed(4*minute+20*second, protocol.SignalScopePause, `{"scope":"installation","pause":{"by":"eve","at":"2026-01-01T00:00:00Z"}}`)
	p.atStatus(4*minute+30*second, func(s protocol.Status) {
		require.Equal(t, "staging PAUSED , prod PAUSED ", statusOf(s))
		require.Len(t, s.Pauses, 1)
		require.Equal(t, "bob", s.Pauses[0].By)
	})
	p.sendSignal(5*minute, protocol.SignalScopePause, `{"scope":"application"}`)
	p.atStatus(6*minute, func(s protocol.Status) { require.Equal(t, "staging CONVERGED v1, prod CONVERGED v1", statusOf(s)) })
	p.run(firstInput, minute)
}

// A lease is requested until the Runtime workflow is reached. A lease that is not needed is given back, and a queried one is kept or given
// back.
func TestServiceRequestsAndReturnsLeases_C10(t *testing.T) {
	p := newServiceTest(t)
	rt := p.spec.Runtimes["edge"]
	rt.MaxApplies = 1
	p.spec.Runtimes["edge"] = rt
	p.setErr(protocol.ActivityLease, errors.New("unavailable"))
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.sendSignal(30*second, protocol.Pause, `{"channel":"prod","by":"bob"}`)
	p.atStatus(minute, func(s protocol.Status) {
		require.Contains(t, s.Notes, "the workflow of the runtime cannot be reached: unavailable")
		require.Len(t, s.Pauses, 1, "no other request is blocked")
	})
	p.at(2*minute, func() { p.mu.Lock(); p.started = nil; p.activityErrs = map[string]error{}; p.mu.Unlock() })
	p.atStatus(5*minute, func(s protocol.Status) { require.Empty(t, s.Notes) })
	p.sendSignal(6*minute, protocol.SignalHeld, `{"id":"service/shop/web/staging/v1/1","runtime":"edge"}`)
	p.sendSignal(7*minute, protocol.SignalHeld, `{"id":"old","runtime":"edge"}`)
	p.sendUnconfirmed(7*minute, protocol.SignalGranted, `{"id":"service/shop/web/staging/v1/1","runtime":"edge"}`)
	p.sendUnconfirmed(7*minute, protocol.SignalGranted, `{"id":"service/shop/web/staging/v1/1"}`)
	p.atStatus(7*minute+30*second, func(s protocol.Status) {
		require.Len(t, s.Refused, 2)
		require.Equal(t, `runtime edge has not granted lease "service/shop/web/staging/v1/1"`, s.Refused[0].Reason)
	})
	p.sendSignal(8*minute, protocol.SignalGranted, `{"id":"old"}`)
	p.sendSignal(9*minute, protocol.SignalGranted, `{"id":"service/shop/web/staging/v1/1","runtime":"edge"}`)
	p.sendSignal(10*minute, protocol.SignalGranted, `{"id":"service/shop/web/staging/v1/1","runtime":"edge"}`)
	p.sendSignal(11*minute, protocol.SignalGranted, `{"lease":"x"}`)
	p.atStatus(12*minute, func(s protocol.Status) { require.Len(t, s.Refused, 3) })
	p.run(firstInput, minute)
	require.Equal(t, []string{
		"lease service/shop/web/staging/v1/1 of edge", "lease service/shop/web/staging/v1/1 of edge", // the first request may have been lost
		"lease service/shop/web/staging/v1/1 of edge", "keep service/shop/web/staging/v1/1 of edge", "give old to edge", "give old to edge",
		"lease service/shop/web/staging/v1/1 of edge", "apply v1 to staging", "give service/shop/web/staging/v1/1 to edge", "give service/shop/web/staging/v1/1 to edge",
	}, p.started[:10])
}

// Checks that cannot be evaluated are an ERROR that delays; the evaluation is started again with growing delays.
func TestFailedCheckDelaysTheRelease_D16(t *testing.T) {
	p := newServiceTest(t)
	p.addCheck("error-rate", entities.CheckAt{Stage: entities.PreApproval})
	p.setErr(protocol.ActivityCheck, temporalError("no such check"))
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.atStatus(10*minute, func(s protocol.Status) {
		require.Equal(t, "staging CONVERGED v1, prod WAITING_PRECONDITIONS ", statusOf(s))
		require.Equal(t, "ERROR", s.Channels[1].Checks[0].Verdict)
		require.Equal(t, "no such check", s.Channels[1].Checks[0].Reason)
	})
	p.at(11*minute, func() { p.setErr(protocol.ActivityCheck, nil) })
	p.atStatus(13*minute, func(s protocol.Status) { require.Equal(t, "staging CONVERGED v1, prod CONVERGED v1", statusOf(s)) })
	p.run(firstInput, minute)
	require.Less(t, p.checksEnded, 20)
}

// A service that was not started by a publication has no state that a verb could refer to: each is refused, as an update and as a signal.
func TestServiceWithoutConfigurationRefusesVerbs(t *testing.T) {
	for _, c := range []struct{ verb, payload string }{
		{"release", `{"version":"v1","by":"bob"}`},
		{"pause", `{"by":"bob"}`},
		{"resume", `{"by":"bob"}`},
		{"refresh", `{"by":"bob"}`},
		{"cancel", `{"version":"v1","by":"bob"}`},
		{"retry", `{"version":"v1","by":"bob"}`},
		{"rollback", `{"by":"bob"}`},
		{"delete", `{"by":"bob"}`},
		{"approve", `{"version":"v1","topic":"go-live","by":"bob"}`},
		{"reject", `{"version":"v1","topic":"go-live","by":"bob"}`},
		{"bypass", `{"version":"v1","channel":"prod","condition":"x","by":"bob","reason":"x"}`},
		{"pin", `{"version":"v1","channel":"prod","by":"bob"}`},
		{"unpin", `{"channel":"prod","by":"bob"}`},
	} {
		t.Run(c.verb, func(t *testing.T) {
			p := newServiceTest(t)
			update := p.sendUpdate(second, c.verb, c.payload)
			p.sendSignal(2*second, c.verb, c.payload)
			p.atStatus(minute, func(s protocol.Status) {
				require.Len(t, s.Refused, 1)
				require.Contains(t, s.Refused[0].Reason, "shop/web has no configuration yet")
			})
			p.run(firstInput, minute)
			require.ErrorContains(t, update.err, "shop/web has no configuration yet")
		})
	}
}

// A release of a channel with several instances moves all of them, each with a separate apply, lease and removal.
func TestServiceOfAFleet(t *testing.T) {
	p := newServiceTest(t)
	lake := *p.spec.Runtimes["edge"]
	lake.MaxApplies = 1
	p.spec.Runtimes["lake"] = &lake
	p.spec.Channels[1].Instances = []entities.InstanceSpec{
		{Name: "eu", Runtime: "edge", Template: "t"}, {Name: "us", Runtime: "lake", Template: "t"},
	}
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.sendSignal(minute, protocol.SignalGranted, `{"id":"service/shop/web/prod/us/v1/1","runtime":"lake"}`)
	p.atStatus(2*minute, func(s protocol.Status) { require.Equal(t, "staging CONVERGED v1, prod CONVERGED v1", statusOf(s)) })
	p.sendSignal(3*minute, protocol.Publish, `{"incarnation":2,"hash":"h2","store":"s","by":"ci"}`)
	p.sendSignal(4*minute, protocol.Delete, `{"by":"alice"}`)
	p.env.ExecuteWorkflow(Service, firstInput)
	require.NoError(t, p.env.GetWorkflowError())
	require.ElementsMatch(t, []string{ // several run in parallel
		"apply v1 to staging", "lease service/shop/web/prod/us/v1/1 of lake", "apply v1 to prod/eu", "apply v1 to prod/us",
		"give service/shop/web/prod/us/v1/1 to lake",
		"remove v1 from prod/eu on edge", "remove v1 from prod/us on lake", "remove v1 from staging on edge",
	}, p.startedActivities("keep"))
}

// Signals of other workflows may come from a newer version: unknown fields are ignored, and known ones count.
func TestSignalsOfNewerVersionsAreAccepted(t *testing.T) {
	p := newServiceTest(t)
	rt := p.spec.Runtimes["edge"]
	rt.MaxApplies = 1
	p.spec.Runtimes["edge"] = rt
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.sendSignal(2*second, protocol.SignalGranted, `{"id":"service/shop/web/staging/v1/1","runtime":"edge","later":{"a":1}}`)
	p.sendSignal(minute, protocol.SignalScopePause, `{"scope":"application","pause":{"by":"bob","at":"2026-11-21T03:15:00Z","later":1},"later":2}`)
	p.sendSignal(minute, protocol.SignalHeld, `{"id":"service/shop/web/staging/v1/9","runtime":"edge","later":1}`)
	p.atStatus(2*minute, func(s protocol.Status) {
		require.Equal(t, "staging PAUSED v1, prod PAUSED ", statusOf(s))
		require.Empty(t, s.Refused)
	})
	p.run(firstInput, minute)
}
