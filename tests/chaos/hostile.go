package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/chaos/record"
)

// mallory is who none of whose messages may do anything. The people of a storm are known by what they say they are, so that a well-formed
// verb under a name of one's own is anybody's right; it sends all else: hints of workflows that are not so, verbs that are
// malformed or say two things, names that there are none of, what somebody else has sent once more, and starts with a state of its own.
const mallory = "mallory"

// attack is one message, drawn beforehand.
type attack struct {
	after         int // releases
	id, name      string
	payload       string
	update, start bool
	replay        bool // of what somebody sent to this service, whatever it was
}

// String is a line of the plan.
func (a attack) String() string {
	kind := "signal"
	switch {
	case a.start:
		kind = "start"
	case a.replay:
		kind = "replay"
	case a.update:
		kind = "update"
	}
	return fmt.Sprintf("after %d: %s of %s: %s %q %.60q", a.after, mallory, a.id, kind, a.name, a.payload)
}

// drawAttacks draws what mallory does from random numbers of its own, so that people and faults are those that the seed has always drawn.
func drawAttacks(seed uint64, s size) []attack {
	d := &drawing{rand: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // it has to be repeatable
	out := make([]attack, s.attacks)
	for n := range out {
		out[n] = d.attack(s)
		out[n].after = n * s.releases / len(out)
	}
	return out
}

func (d *drawing) one(of ...string) string { return of[d.rand.IntN(len(of))] }

func (d *drawing) attack(s size) attack {
	service := protocol.ServiceID(application, d.one(serviceNames(s.services)...))
	switch a := (attack{id: service, update: d.percent(40)}); {
	case d.percent(15):
		a.replay = true
		return a
	case d.percent(10):
		a.start, a.id = true, d.one(service, protocol.ServiceID(application, "evil"), protocol.ApplicationID(application), protocol.RuntimeID("evil"))
		return a
	case d.percent(45):
		a.name, a.payload = d.hint()
		return a
	default:
		a.id = d.one(service, service, protocol.ApplicationID(application), protocol.InstallationID())
		a.name = d.one(protocol.Release, protocol.Approve, protocol.Bypass, protocol.Rollback, protocol.Pause, protocol.Resume, protocol.Pin,
			protocol.Publish, "frobnicate", "__temporal_x", "lease-call", "checkpoint")
		a.payload = d.malformed()
		return a
	}
}

// hint is what workflows say to services, and is not so.
func (d *drawing) hint() (name, payload string) {
	number := d.one("1", "2", "99", "-1", "9223372036854775807")
	return d.one(protocol.Publish, protocol.SignalScopePause, protocol.SignalGranted, protocol.SignalHeld, protocol.SignalWake),
		d.one(
			fmt.Sprintf(`{"incarnation":%s,"hash":"00","spec":"","order":{"newest":%s,"count":%s},"at":"2099-01-01T00:00:00Z"}`, number, number, number),
			fmt.Sprintf(`{"incarnation":%s,"hash":"%064d","pinned":true,"store":"file:///tmp/elsewhere"}`, number, 7),
			`{}`, `{"scope":"application"}`, `{"scope":"installation","pause":{"by":"mallory","at":"2026-01-01T00:00:00Z"}}`,
			`{"scope":"runtime/site"}`, `{"id":"s1/production/1","runtime":"site"}`, `{"id":"x","runtime":"nowhere"}`)
}

// malformed is what no verb may be carried out of.
func (d *drawing) malformed() string {
	name := fmt.Sprintf("c%d", d.rand.IntN(50)) // of somebody else
	return d.one(
		fmt.Sprintf(`{"by":"mallory","by":%q,"version":"v1","topic":"production"}`, name),
		fmt.Sprintf(`{"by":%q,"BY":"mallory","version":"v1","channel":"production"}`, name),
		`{"by":"mallory","version":"v1","topic":"production","sudo":true}`,
		`{"version":"v1","topic":"production","channel":"production","condition":"approval/production","reason":"x"}`,
		`{"by":"mallory\u202e","version":"v1","topic":"production"}`,
		`{"by":" mallory","version":"v1","topic":"production"}`,
		`{"by":"mallory","version":7}`, `{"by":1e999}`, `null`, `[]`, `{"by":`,
		`{"by":"mallory","x":`+strings.Repeat("[", 9000)+strings.Repeat("]", 9000)+`}`,
		"{\"by\":\"mall\xffory\"}",
		`{"by":"mallory","version":"`+strings.Repeat("v", 70_000)+`"}`,
		`{"by":"mallory","version":"`+strings.Repeat("v", 700_000)+`"}`,
	)
}

// attack sends all of it, and notes what was answered as if it had been right.
func (p *people) attack(ctx context.Context, attacks []attack) error {
	for _, a := range attacks {
		if err := p.awaitReleases(ctx, a.after); err != nil {
			return err
		}
		did := record.Attack{What: a.String(), At: time.Now()}
		sent, err := p.world.attack(ctx, a, p.last(a.id))
		if err == nil {
			did.Sent = true
			did.Answered = sent
		}
		p.mu.Lock()
		p.attacks = append(p.attacks, did)
		p.mu.Unlock()
	}
	return ctx.Err()
}

// last is what somebody was answered by a service last.
func (p *people) last(id string) *record.Act {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range slices.Backward(p.acts) {
		if a.Service != "" && protocol.ServiceID(application, a.Service) == id && a.Outcome == record.Answered {
			return &a
		}
	}
	return nil
}

// attack sends one message. Answered is what an update was answered with that should have been refused.
func (w *world) attack(ctx context.Context, a attack, last *record.Act) (answered string, err error) {
	ctx, cancel := context.WithTimeout(ctx, oneTry/2)
	defer cancel()
	var arg any = converter.NewRawValue(&commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(a.payload)})
	switch {
	case a.start:
		_, err = w.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: a.id, TaskQueue: protocol.TaskQueue, WorkflowExecutionErrorWhenAlreadyStarted: true},
			protocol.ServiceWorkflow, protocol.ServiceInput{Application: application, Service: "evil", CarriedState: protocol.CarriedState{StateVersion: 1, State: json.RawMessage(`{}`)}})
		return "", err
	case a.replay && last == nil:
		return "", nil
	case a.replay:
		a.name, a.update, arg = last.Verb, false, payload(last)
	}
	if !a.update {
		return "", w.client.SignalWorkflow(ctx, a.id, "", a.name, arg)
	}
	handle, err := w.client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: a.id, UpdateName: a.name, Args: []any{arg}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	var answer json.RawMessage
	if err == nil {
		err = handle.Get(ctx, &answer)
	}
	if err == nil {
		return string(answer), nil
	}
	return "", ctx.Err() // refused, if there was an answer at all
}
