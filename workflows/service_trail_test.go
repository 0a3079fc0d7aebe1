package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/view"
)

func (p *serviceTest) auditHistory() protocol.HistoryAnswer {
	answer, err := p.env.QueryWorkflow(protocol.QueryHistory)
	require.NoError(p, err)
	var h protocol.HistoryAnswer
	require.NoError(p, answer.Get(&h))
	return h
}

// requireWholeTrail checks that the store and the carried state together have every line once.
func (p *serviceTest) requireWholeTrail(s *state.State) {
	for n := int64(1); n <= s.AuditCount-int64(len(s.Audit)); n++ {
		require.Contains(p, p.trail, n)
	}
}

// Audit lines are written to the store from time to time, and all of them when a run ends. None is lost if the store accepted them but the
// worker died before it got the answer.
func TestServiceLosesNoAuditLine(t *testing.T) {
	p := newServiceTest(t)
	p.publish(0)
	for n := range 9 {
		p.sendSignal(time.Duration(n+1)*minute, protocol.Release, fmt.Sprintf(`{"version":"v%d","by":"ci"}`, n+1))
	}
	p.at(90*time.Second, func() {
		h := p.auditHistory()
		require.Zero(t, h.Stored)
		require.Len(t, h.Entries, 5)
	})
	p.at(10*minute, func() {
		h := p.auditHistory()
		require.Positive(t, h.Stored)
		require.Equal(t, h.Stored+1, h.Entries[0].N)
		require.Less(t, len(h.Entries), state.AuditFlushSize)
		p.setErr(protocol.ActivityHistory, errors.New("the answer was lost"))
	})
	next := p.run(firstInput, minute)
	require.NotEmpty(t, p.stateOf(next).Audit, "lines that the store did not accept are carried to the next run")
	require.Empty(t, p.stateOf(next).Problem)
	p.requireWholeTrail(p.stateOf(next))

	before := p
	p = newServiceTest(t)
	p.startAfter(before)
	p.trail = before.trail
	p.atStatus(time.Second, func(s protocol.Status) { require.Equal(t, "staging CONVERGED v9, prod CONVERGED v9", statusOf(s)) })
	next = p.run(next, minute)
	require.Empty(t, p.stateOf(next).Audit)
	require.Len(t, p.trail, int(p.stateOf(next).AuditCount))
}

// Chosen events are announced, one after another, each until it is delivered; a run does not wait for that.
func TestServiceAnnounces(t *testing.T) {
	p := newServiceTest(t)
	p.spec.Notifications = []entities.Notification{{Name: "chat", Events: []string{entities.EventSucceeded, entities.EventRelease}}}
	p.publish(0)
	p.sendSignal(time.Second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.atStatus(minute, func(protocol.Status) { require.Len(t, p.announced, 3) })
	p.at(2*minute, func() { p.setErr(protocol.ActivityAnnounce, errors.New("404")) })
	p.sendSignal(3*minute, protocol.Release, `{"version":"v2","by":"ci"}`)
	next := p.run(firstInput, 3*minute)
	require.IsIncreasing(t, p.announced)
	require.Len(t, p.stateOf(next).Announcements, 3)
	require.Equal(t, map[string]string{"chat": "404"}, p.stateOf(next).NotTaken)
	require.Len(t, p.stateOf(next).Undelivered(p.spec.Notifications), 1)

	before := p
	p = newServiceTest(t)
	p.startAfter(before)
	p.atStatus(minute, func(protocol.Status) { require.Len(t, p.announced, 3) })
	next = p.run(next, minute)
	require.Empty(t, p.stateOf(next).Announcements)
	require.Empty(t, p.stateOf(next).NotTaken)
}

// An announcement of a release that waits for people, or that failed, has the command, too.
func TestAnnouncementsHaveTheCommand(t *testing.T) {
	p := newServiceTest(t)
	p.addApproval("go-live", 1)
	p.spec.Notifications = []entities.Notification{{Name: "chat", Events: []string{entities.EventWaiting, entities.EventFailed}}}
	p.publish(0)
	p.sendSignal(time.Second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.atStatus(minute, func(protocol.Status) {
		require.Equal(t, []string{"converge approve shop/web v1 go-live"}, p.announcedNext)
	})
	p.at(2*minute, func() { p.setErr(protocol.ActivityApply, errors.New("no")) })
	p.sendSignal(3*minute, protocol.Release, `{"version":"v2","by":"ci"}`)
	p.run(firstInput, minute)
	require.Equal(t, []string{"converge approve shop/web v1 go-live", "converge explain shop/web staging"}, slices.Compact(p.announcedNext)) // v2 failed, and the rollback did
}

// An undeclared service is removed when a person requests it. Then its trail is written and its workflow ends, even if a notification still
// does not answer.
func TestServiceEndsWhenDeleted_A24(t *testing.T) {
	p := newServiceTest(t)
	p.spec.Grants = []entities.Grant{{Verbs: []string{"delete"}, To: []string{"alice"}}}
	p.publish(0)
	p.sendSignal(time.Second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.sendSignal(minute, protocol.Publish, `{"incarnation":2,"hash":"h2","store":"s","by":"ci"}`)
	refused := p.sendUpdate(2*minute, protocol.Delete, `{"by":"bob"}`)
	p.atStatus(3*minute, func(s protocol.Status) { require.Equal(t, "prod ORPHANED v1, staging ORPHANED v1", statusOf(s)) })
	p.at(4*minute, func() { p.setErr(protocol.ActivityHistory, errors.New("the store is unavailable")) })
	taken := p.sendUpdate(5*minute, protocol.Delete, `{"by":"alice","reason":"no longer needed"}`)
	p.at(10*minute, func() {
		require.False(t, p.env.IsWorkflowCompleted(), "not before its trail is written")
		p.setErr(protocol.ActivityHistory, nil)
	})
	p.env.ExecuteWorkflow(Service, firstInput)
	require.True(t, p.env.IsWorkflowCompleted())
	require.NoError(t, p.env.GetWorkflowError())
	require.ErrorContains(t, refused.err, "bob may not delete")
	require.NoError(t, taken.err)
	require.Equal(t, []string{"apply v1 to staging", "apply v1 to prod", "remove v1 from prod on edge", "remove v1 from staging on edge"}, p.startedActivities("keep"))
	s := p.status()
	require.Equal(t, "DELETED", s.Status)
	require.Equal(t, p.auditHistory().Stored, int64(len(p.trail)))
}

// The search attribute has the people that the service waits for now.
func TestWaitingFor(t *testing.T) {
	pass := decide.Judgement{Kind: decide.KindChannelStable, ID: "channel-stable/staging", Verdict: entities.Pass}
	waits := func(topic string) decide.Judgement {
		return decide.Judgement{Kind: decide.KindApproval, ID: "approval/" + topic, Subject: topic, Verdict: entities.Wait, Code: decide.CodeOpen, Unblock: "x"}
	}
	early := waits("too-early")
	early.Code = ""
	check := func(id string) decide.Judgement {
		return decide.Judgement{Kind: decide.KindCheck, ID: id, Verdict: entities.Wait}
	}
	d := &decide.Decision{Channels: []decide.ChannelDecision{
		{Gates: []decide.Judgement{pass, waits("go-live"), waits("prod-eu"), check("office-hours")}},
		{Gates: []decide.Judgement{pass, waits("go-live")}},
		{Gates: []decide.Judgement{check("error-rate"), early}},
		{Gates: []decide.Judgement{waits("apply/prod-us")}},
	}}
	require.Equal(t, []string{"approval:apply/prod-us", "approval:go-live", "approval:prod-eu"}, view.WaitingFor(d))
}

// The server terminates a workflow with a search attribute that exceeds its limit.
func TestWaitingForFitsIntoASearchAttribute_A14(t *testing.T) {
	d := &decide.Decision{}
	for n := range 500 {
		topic := fmt.Sprintf("%s-%03d", strings.Repeat("c", 59), n)
		d.Channels = append(d.Channels, decide.ChannelDecision{Gates: []decide.Judgement{
			{Kind: decide.KindApproval, ID: "approval/" + topic, Subject: topic, Verdict: entities.Wait, Code: decide.CodeOpen},
		}})
		waits := view.WaitingFor(d)
		raw, err := json.Marshal(waits)
		require.NoError(t, err)
		require.LessOrEqual(t, len(raw), 2048)
		last := fmt.Sprintf("-%03d", n)
		kept := slices.ContainsFunc(waits, func(w string) bool { return strings.HasSuffix(w, last) })
		require.Equal(t, !kept, slices.Contains(waits, "more"), "the omission is shown")
	}
	require.Greater(t, len(view.WaitingFor(d)), 20)
}

// A token is removed from a payload in any spelling of the field, and nothing else is.
func TestWithoutToken(t *testing.T) {
	require.JSONEq(t, `{"by":"alice","version":"v1"}`, string(withoutToken(json.RawMessage(`{"Token":"x","TOKEN":"y","token":"z","version":"v1"}`), "alice")))
	require.JSONEq(t, `{"BY":"bob"}`, string(withoutToken(json.RawMessage(`{"BY":"bob","token":"z"}`), "alice")))
}

// A release that moves hundreds of channels at one moment writes a line for each.
func TestServiceLosesNoAuditLineOfManyChannels(t *testing.T) {
	p := newServiceTest(t)
	for n := range 300 {
		c := p.spec.Channels[0]
		c.Name = fmt.Sprintf("c%d", n)
		p.spec.Channels = append(p.spec.Channels, c)
	}
	p.publish(0)
	p.sendSignal(time.Second, protocol.Release, `{"version":"v1","by":"ci"}`)
	var lines int64
	p.at(minute, func() {
		lines = p.auditHistory().Stored + int64(len(p.auditHistory().Entries))
		require.Greater(t, lines, int64(600))
	})
	p.run(firstInput, minute)
	require.Len(t, p.trail, int(lines))
}

// The lines that the last workflow task of a run recorded are carried into the next run, which writes them: until then that task could be
// lost.
func TestAuditLinesOfTheLastTaskAreCarriedToNextRun(t *testing.T) {
	p := newServiceTest(t)
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.at(minute, func() {
		p.env.SetContinueAsNewSuggested(true)
		p.env.SignalWorkflow(protocol.Pause, json.RawMessage(`{"channel":"prod","by":"ann","reason":"the last"}`))
	})
	next := p.run(firstInput, minute)
	left := p.stateOf(next).Audit
	require.Len(t, left, 1)
	require.Equal(t, "the last", left[0].Reason)
	require.Len(t, p.trail, int(left[0].N)-1, "all earlier lines are written")

	before := p
	p = newServiceTest(t)
	p.startAfter(before)
	p.trail = before.trail
	p.sendSignal(second, protocol.Resume, `{"channel":"prod","by":"ann"}`)
	p.run(next, minute)
	require.Equal(t, left[0], p.trail[left[0].N])
}
