package workflows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
)

// tokenCall is a verb that is called with a token: the calls of others before it, each "VERB PAYLOAD", and the kind of its audit line.
type tokenCall struct {
	earlierCalls []string
	payload      string
	kind         string
	appliesFail  bool
	waitsAtStep  bool // an applied version waits at a step of its rollout
}

const releaseV1 = `release {"version":"v1","by":"ci"}`

// tokenCallsOfService are the verbs of a service that change something.
var tokenCallsOfService = map[string]tokenCall{
	protocol.Release:        {nil, `"version":"v1"`, entities.EventRelease, false, false},
	protocol.Pause:          {nil, `"channel":"staging"`, entities.EventPause, false, false},
	protocol.Resume:         {[]string{`pause {"channel":"staging","by":"ci"}`}, `"channel":"staging"`, entities.EventPause, false, false},
	protocol.Cancel:         {[]string{releaseV1}, `"version":"v1"`, entities.EventCancel, false, false},
	protocol.Retry:          {[]string{releaseV1}, `"version":"v1"`, entities.EventRetry, true, false},
	protocol.Approve:        {[]string{releaseV1}, `"version":"v1","topic":"go-live"`, entities.EventApproval, false, false},
	protocol.Reject:         {[]string{releaseV1}, `"version":"v1","topic":"go-live"`, entities.EventRejection, false, false},
	protocol.Bypass:         {[]string{releaseV1}, `"version":"v1","channel":"prod","condition":"approval/go-live","reason":"fire"`, entities.EventBypass, false, false},
	protocol.Pin:            {[]string{releaseV1}, `"version":"v1","channel":"staging"`, entities.EventPin, false, false},
	protocol.Unpin:          {[]string{releaseV1, `pin {"version":"v1","channel":"staging","by":"ci"}`}, `"channel":"staging"`, entities.EventPin, false, false},
	protocol.Rollback:       {[]string{releaseV1, `release {"version":"v2","by":"ci"}`}, `"version":"v2","channel":"staging"`, entities.EventRollback, false, false},
	protocol.RestartService: {[]string{releaseV1}, `"channel":"staging"`, entities.EventTarget, false, false},
	protocol.Adopt:          {nil, `"channel":"staging"`, entities.EventManage, false, false},
	protocol.Return:         {[]string{`adopt {"channel":"staging","by":"ci"}`}, `"channel":"staging"`, entities.EventManage, false, false},
	protocol.Promote:        {[]string{releaseV1}, `"channel":"staging"`, entities.EventRetry, false, true},
	protocol.Abort:          {[]string{releaseV1}, `"channel":"staging"`, entities.EventRetry, false, true},
	protocol.Delete:         {[]string{`publish {"incarnation":2,"hash":"h2","store":"s","by":"ci"}`}, "", entities.EventDelete, false, false},
}

var tokenCallsOfApplication = map[string]tokenCall{
	protocol.Publish:  {nil, `"hash":"h2","manifest":"m2","services":2,"store":"/store"`, entities.EventPublish, false, false},
	protocol.Release:  {nil, `"services":{"web":{"version":"v2"}}`, entities.EventRelease, false, false},
	protocol.Pause:    {nil, "", entities.EventPause, false, false},
	protocol.Resume:   {[]string{`pause {"by":"ci"}`}, "", entities.EventPause, false, false},
	protocol.Pin:      {nil, `"incarnation":1`, entities.EventPin, false, false},
	protocol.Unpin:    {[]string{`pin {"by":"ci","incarnation":1}`}, "", entities.EventPin, false, false},
	protocol.Unmanage: {nil, `"service":"web","reason":"moving"`, entities.EventManage, false, false},
	protocol.Manage:   {[]string{`unmanage {"by":"ci","service":"web","reason":"moving"}`}, `"service":"web"`, entities.EventManage, false, false},
}

const (
	leaseA = `request {"id":"a","holder":"service/shop/a","limit":1,"timeout":600000000000}`
	leaseB = `request {"id":"b","holder":"service/shop/b","limit":1,"timeout":600000000000}`
)

// tokenCallsOfRuntime omits the signals of services to a runtime: request and keep.
var tokenCallsOfRuntime = map[string]tokenCall{
	protocol.SignalGive: {[]string{leaseA}, `"id":"a"`, auditLease, false, false},
	protocol.Grant:      {[]string{leaseA, leaseB}, `"id":"b"`, auditLease, false, false},
	protocol.Pause:      {nil, "", entities.EventPause, false, false},
	protocol.Resume:     {[]string{`pause {"by":"ci"}`}, "", entities.EventPause, false, false},
	protocol.Drain:      {nil, "", entities.EventPause, false, false},
	protocol.Restore:    {[]string{`drain {"by":"ci","force":true}`}, "", entities.EventPause, false, false},
}

var tokenCallsOfInstallation = map[string]tokenCall{
	protocol.Pause:          {nil, "", entities.EventPause, false, false},
	protocol.Resume:         {[]string{`pause {"by":"ci"}`}, "", entities.EventPause, false, false},
	protocol.Configure:      {nil, `"grants":[{"verbs":["pause"],"to":["alice","ci"]}]`, entities.EventRules, false, false},
	protocol.PublishLibrary: {nil, `"name":"org","version":1,"content":"` + strings.Repeat("0", 64) + `"`, entities.EventPublish, false, false},
}

// An action with a token is audited as proven, for every action and any stated name, as an update and as a signal. Every verb of every
// workflow that changes something writes such a line, and no line has the stated name.
func TestActionsByTokenAreAuditedAsProven_A14_G7(t *testing.T) {
	for _, kind := range []struct {
		name  string
		rows  []verb.Row
		acts  map[string]tokenCall
		but   []string // verbs that change nothing, or are not for people
		plays func(*testing.T, tokenCall, string, bool) []entities.AuditEntry
	}{
		{"service", verb.Service(), tokenCallsOfService, []string{protocol.Refresh, protocol.Reserve, protocol.Conclude}, auditOfService},
		{"application", verb.Application(), tokenCallsOfApplication, nil, auditOfWorkflow},
		{"runtime", verb.Runtime(), tokenCallsOfRuntime, []string{protocol.SignalLease, protocol.SignalKeep}, auditOfWorkflow},
		{"installation", verb.Installation(), tokenCallsOfInstallation, nil, auditOfWorkflow},
	} {
		require.ElementsMatch(t, verb.Names(kind.rows), append(entities.SortedKeys(kind.acts), kind.but...), kind.name)
		for _, name := range entities.SortedKeys(kind.acts) {
			for _, update := range []bool{true, false} {
				as := map[bool]string{true: "update", false: "signal"}[update]
				t.Run(kind.name+"/"+name+" as "+as, func(t *testing.T) {
					lines := kind.plays(t, kind.acts[name], name, update)
					require.True(t, slices.ContainsFunc(lines, func(l entities.AuditEntry) bool {
						return l.Kind == kind.acts[name].kind && l.Who != nil && l.Who.Name == "alice" && l.Who.Proven
					}), "of %s", formatLines(lines))
					for _, l := range lines {
						require.False(t, l.Who != nil && (l.Who.Name == "mallory" || l.Who.Name == "alice" && !l.Who.Proven), "of %s", formatLines(lines))
					}
				})
			}
		}
	}
}

// One action that ends many releases writes one line per release, with the proven author.
func TestCancelByTokenIsAuditedForEachRelease_A18_G7(t *testing.T) {
	before := []string{releaseV1, `release {"version":"v2","by":"ci"}`, `release {"version":"v3","by":"ci"}`}
	for _, payload := range []string{`"olderThan":"v3"`, `"except":"v3"`, `"except":"v3","channel":"prod"`} {
		for _, update := range []bool{true, false} {
			ended := map[int64]string{} // by line
			for _, l := range auditOfService(t, tokenCall{before, payload, entities.EventCancel, false, false}, protocol.Cancel, update) {
				if l.Kind == entities.EventCancel {
					require.True(t, l.Who.Proven && l.Who.Name == "alice", "%s: %+v", payload, l)
					ended[l.N] = l.Version
				}
			}
			require.Equal(t, []string{"v1", "v2"}, slices.Sorted(maps.Values(ended)), payload)
		}
	}
}

func formatLines(lines []entities.AuditEntry) string {
	raw, err := json.MarshalIndent(lines, "", " ")
	return fmt.Sprint(string(raw), err)
}

// tokenPayload is a payload that states mallory, with a token of alice.
func tokenPayload(more string) json.RawMessage {
	payload := `{"by":"mallory","token":"token-of-alice/sre"`
	if more != "" {
		payload += "," + more
	}
	return json.RawMessage(payload + "}")
}

func auditOfService(t *testing.T, act tokenCall, name string, update bool) (lines []entities.AuditEntry) {
	p := newServiceTest(t)
	p.addApproval("go-live", 1)
	p.spec.Identity = &entities.Identity{Issuer: "https://id.shop.dev", Audience: "converge"}
	if act.appliesFail {
		p.setErr(protocol.ActivityApply, errors.New("no"))
	}
	if act.waitsAtStep {
		p.pauseRollouts()
	}
	if name == protocol.Adopt || name == protocol.Return {
		p.spec.Channels[0].SetReportOnly()
	}
	p.publish(0)
	at := second
	for _, one := range act.earlierCalls {
		before, payload, _ := strings.Cut(one, " ")
		p.sendSignal(at, before, payload)
		at += time.Minute
	}
	if update {
		p.sendUpdate(at, name, string(tokenPayload(act.payload)))
	} else {
		p.sendSignal(at, name, string(tokenPayload(act.payload)))
	}
	p.at(at+minute, func() { lines = p.auditHistory().Entries })
	p.env.RegisterDelayedCallback(func() {
		p.grow(4)
		p.env.SetContinueAsNewSuggested(true)
		p.env.SignalWorkflow(protocol.Refresh, json.RawMessage(`{"by":"the end"}`))
	}, at+2*minute)
	p.env.ExecuteWorkflow(Service, firstInput)
	for _, l := range p.trail {
		lines = append(lines, l)
	}
	return lines
}

// pauseRollouts makes the runtime observable, and each applied version wait for a person at a step of its rollout.
func (p *serviceTest) pauseRollouts() {
	p.spec.Runtimes["edge"].Observable, p.spec.Runtimes["edge"].Timing.GracePeriod = true, time.Hour
	p.readingAfterApply = func(version string) *entities.Reading {
		return &entities.Reading{At: p.env.Now(), Objects: []entities.Object{{
			Name: "web", Type: "Rollout", Status: entities.ObjectPending, Suspended: "step 1", Steerable: true,
			Versions: []entities.ObjectVersion{{Version: version, Active: true}},
		}}}
	}
	as := func(name string, f any) { p.env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name}) }
	looked := map[entities.InstanceID]bool{}
	as(protocol.ActivityObserve, func(_ context.Context, r protocol.ObserveRequest) (protocol.ObserveAnswer, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		news := map[entities.InstanceID]entities.Reading{}
		for _, i := range r.Instances {
			if !looked[i.ID] {
				looked[i.ID], news[i.ID] = true, entities.Reading{At: p.env.Now()}
			}
		}
		if len(news) == 0 {
			return protocol.ObserveAnswer{}, temporal.NewApplicationErrorWithOptions("unchanged", "", temporal.ApplicationErrorOptions{NextRetryDelay: time.Hour})
		}
		return protocol.ObserveAnswer{Readings: news}, nil
	})
	as(protocol.ActivitySteer, func(_ context.Context, r protocol.SteerRequest) (protocol.SteerAnswer, error) {
		return protocol.SteerAnswer{Actions: []string{r.Action + " Rollout/web"}}, nil
	})
}

// auditOfWorkflow simulates an application, a runtime or the installation, by the name of the test.
func auditOfWorkflow(t *testing.T, act tokenCall, name string, update bool) (lines []entities.AuditEntry) {
	env := (&testsuite.WorkflowTestSuite{}).NewTestWorkflowEnvironment()
	env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{&Arrivals{}}})
	env.SetTestTimeout(time.Minute)
	env.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(nil).Maybe()
	grow := growHistory(env)
	identity := &entities.Identity{Issuer: "https://id.shop.dev", Audience: "converge"}
	rules := protocol.Rules{Number: 1, Rules: entities.Rules{Identity: identity}}
	var publishers []string // services that were notified, and who published
	as := func(name string, f any) { env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name}) }
	as(protocol.ActivityVerify, func(_ context.Context, r protocol.VerifyRequest) (protocol.VerifyAnswer, error) {
		return protocol.VerifyAnswer{Who: entities.Who{Name: "alice"}}, nil
	})
	as(protocol.ActivityAlone, func(context.Context, protocol.AloneRequest) (protocol.AloneAnswer, error) {
		return protocol.AloneAnswer{}, nil
	})
	as(protocol.ActivityDrain, func(_ context.Context, r protocol.AnnouncePause) (protocol.DrainAnswer, error) {
		d := *r.Pause.Drain
		d.Done = true
		return protocol.DrainAnswer{Drain: d}, nil
	})
	as(protocol.ActivityConfirm, func(context.Context, protocol.ConfirmRequest) (protocol.ConfirmAnswer, error) {
		return protocol.ConfirmAnswer{Identity: identity, Services: 2}, nil
	})
	as(protocol.ActivityNotify, func(_ context.Context, r protocol.NotifyRequest) (protocol.NotifyAnswer, error) {
		publishers = append(publishers, r.Newest.By)
		return protocol.NotifyAnswer{}, nil
	})
	as(protocol.ActivityPause, func(context.Context, protocol.AnnouncePause) error { return nil })
	as(protocol.ActivityUnmanage, func(context.Context, protocol.UnmanageRequest) (protocol.UnmanageAnswer, error) {
		return protocol.UnmanageAnswer{}, nil
	})
	as(protocol.ActivityPropose, func(_ context.Context, r protocol.ProposeRequest) (protocol.ProposeAnswer, error) {
		return protocol.ProposeAnswer{Joint: r.Joint}, nil
	})
	as(protocol.ActivityDecide, func(_ context.Context, r protocol.DecideRequest) (protocol.DecideAnswer, error) {
		return protocol.DecideAnswer{Decision: protocol.JointDecision{ID: r.ID, Committed: true}}, nil
	})
	as(protocol.ActivityRules, func(context.Context, protocol.RulesRequest) (protocol.Rules, error) { return rules, nil })
	as(protocol.ActivityLibrary, func(_ context.Context, r protocol.Library) (protocol.Library, error) { return r, nil })
	as(protocol.ActivityConfigure, func(_ context.Context, r protocol.Rules) (protocol.Rules, error) { return r, nil })
	as(protocol.ActivityHistory, func(_ context.Context, r protocol.HistoryRequest) error {
		lines = append(lines, r.Entries...)
		return nil
	})
	sendSignal := func(d time.Duration, name string, payload any) {
		env.RegisterDelayedCallback(func() { grow(4); env.SignalWorkflow(name, payload) }, d)
	}
	sendSignal(0, protocol.Publish, publication(1)) // other workflows do not have this verb
	at := 10 * second
	for _, one := range act.earlierCalls {
		before, payload, _ := strings.Cut(one, " ")
		sendSignal(at, before, json.RawMessage(payload))
		at += 10 * second
	}
	env.RegisterDelayedCallback(func() {
		grow(4)
		if !update {
			env.SignalWorkflow(name, tokenPayload(act.payload))
			return
		}
		env.UpdateWorkflow(name, "", &testsuite.TestUpdateCallback{
			OnAccept: func() {}, OnReject: func(err error) { require.NoError(t, err) },
			OnComplete: func(_ any, err error) { require.NoError(t, err) },
		}, tokenPayload(act.payload))
	}, at)
	env.RegisterDelayedCallback(func() {
		answer, err := env.QueryWorkflow(protocol.QueryHistory)
		require.NoError(t, err)
		var h protocol.HistoryAnswer
		require.NoError(t, answer.Get(&h))
		lines = append(lines, h.Entries...)
		grow(4)
		env.SetContinueAsNewSuggested(true)
		env.SignalWorkflow("end", protocol.RequestMeta{By: "the end"})
	}, at+time.Minute)
	switch strings.Split(t.Name(), "/")[1] {
	case "application":
		env.ExecuteWorkflow(Application, protocol.ApplicationInput{Application: "shop"})
	case "runtime":
		env.ExecuteWorkflow(Runtime, protocol.RuntimeInput{Runtime: "edge"})
	default:
		env.ExecuteWorkflow(Installation, protocol.InstallationInput{ID: "i"})
	}
	require.True(t, env.IsWorkflowCompleted())
	require.NotContains(t, publishers, "mallory")
	return lines
}
