package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/chaos/record"
)

// Mallory is who none of whose messages may do anything. She has an account of the issuer whom everybody proves themselves with, and is in
// no group that a grant names; and she reads every history, with the tokens in it. She sends hints of workflows that are not so, verbs that
// are malformed or say two things, names that there are none of, what somebody else has sent once more, starts with a state of her own,
// and well-formed verbs and pins of the application: unproven, with her own token, with a token that somebody else has sent, and under
// request ids of others.

// attack is one message, drawn beforehand.
type attack struct {
	after         int // releases
	id, name      string
	payload       string
	update, start bool
	replay        bool // of what somebody sent to this service, whatever it was
	identity      identity
	from          string // service that a stolen token was sent to
	same          bool   // a stolen token comes with all that it was sent with
}

// identity is what an attack carries to prove who sends it.
type identity string

const (
	unproven identity = ""
	own      identity = "own token"
	stolen   identity = "stolen token"
)

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
	text := fmt.Sprintf("after %d: %s of %s: %s %q %.60q", a.after, record.Mallory, a.id, kind, a.name, a.payload)
	if a.identity != unproven {
		text += " with a " + string(a.identity)
	}
	if a.from != "" {
		text += " of " + a.from
	}
	if a.same {
		text += " and its content"
	}
	return text
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
	case d.percent(12):
		a.replay = true
		return a
	case d.percent(8):
		a.start, a.id = true, d.one(service, protocol.ServiceID(application, "evil"), protocol.ApplicationID(application), protocol.RuntimeID("evil"))
		return a
	case d.percent(45):
		return d.posing(a, s)
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

// posing is a well-formed request that would count if it were somebody else's: of a service, or a pin of the whole application. It has the
// request id of an act of somebody, who has sent it or will, or one of its own.
func (d *drawing) posing(a attack, s size) attack {
	a.update = d.percent(60)
	a.identity = identity(d.one(string(unproven), string(own), string(stolen), string(stolen)))
	if a.identity == stolen {
		a.from = d.one(serviceNames(s.services)...)
		a.same = protocol.ServiceID(application, a.from) != a.id && d.percent(50) // to the same service it would be the same request
	}
	somebody := fmt.Sprintf("c%d", 1+d.rand.IntN(4*s.releases))
	request := fmt.Sprintf(`"by":%q,"reason":"mine","requestId":%q`, somebody, d.one(somebody, fmt.Sprintf("%s-%d", record.Mallory, d.rand.IntN(1_000_000))))
	if d.percent(35) {
		a.id, a.same = protocol.ApplicationID(application), a.same && d.percent(50)
		a.name = d.one(protocol.Pin, protocol.Pin, protocol.Unpin, protocol.Pause)
		a.payload = fmt.Sprintf(`{"incarnation":%s,%s}`, d.one("1", "1", "2"), request)
		if a.name != protocol.Pin {
			a.payload = fmt.Sprintf(`{%s}`, request)
		}
		return a.documented()
	}
	version := fmt.Sprintf("v%d", 1+d.rand.IntN(max(1, s.releases/s.services)))
	a.name = d.one(protocol.Release, protocol.Approve, protocol.Approve, protocol.Bypass, protocol.Reject, protocol.Cancel, protocol.Rollback,
		protocol.Pin, protocol.Refresh)
	a.payload = map[string]string{
		protocol.Release:  fmt.Sprintf(`{"version":%q,%s}`, version+d.one("", "m"), request),
		protocol.Approve:  fmt.Sprintf(`{"version":%q,"topic":"production",%s}`, version, request),
		protocol.Reject:   fmt.Sprintf(`{"version":%q,"topic":"production",%s}`, version, request),
		protocol.Bypass:   fmt.Sprintf(`{"version":%q,"channel":"production","condition":%q,%s}`, version, record.Approval, request),
		protocol.Cancel:   fmt.Sprintf(`{"version":%q,%s}`, version, request),
		protocol.Rollback: fmt.Sprintf(`{"channel":"production",%s}`, request),
		protocol.Pin:      fmt.Sprintf(`{"channel":"production","version":%q,%s}`, version, request),
		protocol.Refresh:  fmt.Sprintf(`{%s}`, request),
	}[a.name]
	return a.documented()
}

// documented is the attack with mallory's own token where docs/threat-model.md says that one that she has read may count: while the store
// does not answer, a pause and a rollback wait for nothing.
func (a attack) documented() attack {
	if a.identity == stolen && !a.same && isUrgent(a.name) {
		a.identity, a.from = own, ""
	}
	return a
}

// isUrgent tells whether a verb is accepted before its token is noted as used.
func isUrgent(verb string) bool { return verb == protocol.Pause || verb == protocol.Rollback }

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
