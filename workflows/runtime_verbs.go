package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// runtimeVerbs are Updates and Signals of the same name (DESIGN section 3). Services send request,
// keep and release; people send the others, and release to take a lease back.
var runtimeVerbs = [...]string{
	protocol.SignalLease, protocol.SignalGrant, protocol.SignalGive, protocol.Grant, protocol.Pause, protocol.Resume,
}

// auditLease is the kind of line about what became of a lease other than by its holder.
const auditLease = "lease"

// maxRuntimeAudit bounds the audit lines that a Runtime keeps.
const maxRuntimeAudit = 50

func (r *runtime) listen() error {
	for _, verb := range runtimeVerbs {
		options := workflow.UpdateHandlerOptions{
			Validator: func(_ workflow.Context, raw json.RawMessage) error {
				_, err := decodeRuntime(verb, raw)
				return refused(err)
			},
			Description: verb + " (the signal of the same name takes the same JSON)",
		}
		handler := func(ctx workflow.Context, raw json.RawMessage) (protocol.Answer, error) {
			if err := workflow.Await(ctx, func() bool { return r.restored }); err != nil {
				return protocol.Answer{}, err
			}
			message, err := r.perform(verb, raw)
			r.woken = true
			return protocol.Answer{Message: message}, refused(err)
		}
		if err := workflow.SetUpdateHandlerWithOptions(r.ctx, verb, handler, options); err != nil {
			return err
		}
	}
	return workflow.SetQueryHandler(r.ctx, protocol.QueryStatus, r.status)
}

// collect carries out the signals that have come, in the order in which they came.
func (r *runtime) collect() {
	noted, rest := arrived(r.ctx)
	for _, name := range noted {
		r.take(name)
	}
	for _, name := range rest {
		for r.take(name) {
		}
	}
}

// take receives one signal, if there is one of that name. What is refused is kept for `status`.
func (r *runtime) take(name string) bool {
	var raw json.RawMessage
	if !workflow.GetSignalChannel(r.ctx, name).ReceiveAsync(&raw) {
		return false
	}
	err := fmt.Errorf("no such verb; expected one of %s", strings.Join(runtimeVerbs[:], ", "))
	if slices.Contains(runtimeVerbs[:], name) {
		_, err = r.perform(name, raw)
	}
	if err != nil {
		r.state.Refused = keepNewest(append(r.state.Refused, entities.Refusal{
			Verb: clip(name, maxName), By: by(raw), Reason: clip(errorText(err), maxRefusal), At: workflow.Now(r.ctx),
		}), entities.MaxRefused)
	}
	r.woken = true
	return true
}

// runtimeRequest is the payload of any of a Runtime's verbs; which part is filled depends on the verb.
type runtimeRequest struct {
	lease protocol.LeaseRequest // of request
	named protocol.LeaseSignal  // of keep, release and grant
	act   protocol.Act          // of pause, resume and grant, and of release by a person
}

func decodeRuntime(verb string, raw json.RawMessage) (q runtimeRequest, err error) {
	switch verb {
	case protocol.SignalLease:
		if err := decodeStrictly(verb, raw, &q.lease); err != nil {
			return q, err
		}
		return q, checkLease(q.lease)
	case protocol.Pause, protocol.Resume:
		if err := decodeStrictly(verb, raw, &q.act); err != nil {
			return q, err
		}
		return q, checkAct(q.act)
	}
	var act protocol.LeaseAct
	if err := decodeStrictly(verb, raw, &act); err != nil {
		return q, err
	}
	q.named, q.act = act.LeaseSignal, act.Act
	if q.named.ID == "" {
		return q, errors.New(`"id" is missing; expected that of a lease`)
	}
	if verb == protocol.Grant || q.act.By != "" {
		return q, checkAct(q.act)
	}
	return q, nil
}

// perform carries out one verb. The answer to a repeated request id is the one given then.
func (r *runtime) perform(verb string, raw json.RawMessage) (string, error) {
	q, err := decodeRuntime(verb, raw)
	if err != nil {
		return "", err
	}
	for _, before := range r.state.Requests {
		var message string
		if q.act.RequestID != "" && before.ID == q.act.RequestID && before.Verb == verb && json.Unmarshal(before.Answer, &message) == nil {
			return message, nil
		}
	}
	message, err := r.act(verb, q)
	if err != nil || q.act.RequestID == "" {
		return message, err
	}
	if answer, err := json.Marshal(message); err == nil {
		r.state.Requests = keepNewest(append(r.state.Requests, entities.Request{ID: q.act.RequestID, Verb: verb, Answer: answer}), entities.MaxRequests)
	}
	return message, nil
}

func (r *runtime) act(verb string, q runtimeRequest) (string, error) {
	switch verb {
	case protocol.SignalLease:
		return r.request(q.lease)
	case protocol.SignalGrant:
		r.leases().keep(q.named.ID, workflow.Now(r.ctx))
		return "noted", nil
	case protocol.SignalGive:
		return r.give(q)
	case protocol.Grant:
		return r.grant(q)
	case protocol.Pause:
		return r.pause(q.act)
	case protocol.Resume:
		return r.resume(q.act)
	}
	return "", fmt.Errorf("no such verb %q", verb)
}

func (r *runtime) request(q protocol.LeaseRequest) (string, error) {
	held, err := r.leases().request(q, workflow.Now(r.ctx))
	if err != nil {
		return "", err
	}
	if held { // its holder may not have heard
		r.signal(r.state.Held[find(r.state.Held, q.ID)], protocol.SignalGranted)
		return "held already", nil
	}
	return fmt.Sprintf("%d of %d places are taken, %d wait", len(r.state.Held), r.state.Limit, len(r.state.Waiting)), nil
}

// give ends a lease. Giving back what is not held is no error: it is done.
func (r *runtime) give(q runtimeRequest) (string, error) {
	was, known := r.leases().give(q.named.ID)
	if q.act.By == "" {
		return "given back", nil
	}
	if !known {
		return "", fmt.Errorf("no lease %q; held are %s", q.named.ID, ids(r.state.Held))
	}
	r.note(auditLease, &q.act, "lease of "+named(was)+" taken back", q.act.Reason)
	return "lease of " + named(was) + " taken back", nil
}

// grant lets one that waits go now, whatever the limit.
func (r *runtime) grant(q runtimeRequest) (string, error) {
	place := find(r.state.Waiting, q.named.ID)
	switch {
	case find(r.state.Held, q.named.ID) >= 0:
		return "", fmt.Errorf("lease %q is granted already", q.named.ID)
	case place < 0:
		return "", fmt.Errorf("no lease %q waits; waiting are %s", q.named.ID, ids(r.state.Waiting))
	case r.state.Pause != nil:
		return "", fmt.Errorf("runtime %s is paused by %s; nothing is granted until it is resumed", r.name, r.state.Pause.By)
	}
	h := r.leases().admit(place, workflow.Now(r.ctx))
	r.signal(h, protocol.SignalGranted)
	r.note(auditLease, &q.act, named(h)+" goes out of turn", q.act.Reason)
	return named(h) + " goes out of turn", nil
}

func (r *runtime) pause(a protocol.Act) (string, error) {
	if p := r.state.Pause; p != nil {
		return "", fmt.Errorf("runtime %s is paused already, by %s", r.name, p.By)
	}
	r.state.Pause = &entities.Pause{Scope: protocol.RuntimeID(r.name), By: a.By, Reason: a.Reason, At: workflow.Now(r.ctx)}
	r.state.Untold = true
	r.note(entities.EventPause, &a, "runtime "+r.name+" paused", a.Reason)
	return "runtime " + r.name + " is paused; an apply in flight is left to finish", nil
}

func (r *runtime) resume(a protocol.Act) (string, error) {
	if r.state.Pause == nil {
		return "", fmt.Errorf("runtime %s is not paused", r.name)
	}
	r.state.Pause, r.state.Untold = nil, true
	r.note(entities.EventPause, &a, "runtime "+r.name+" resumed", a.Reason)
	return "runtime " + r.name + " goes on", nil
}

// note keeps an audit line; nobody in particular is Converge itself.
func (r *runtime) note(kind string, a *protocol.Act, text, reason string) {
	line := entities.AuditLine{N: 1, At: workflow.Now(r.ctx), Kind: kind, Text: clip(text, maxRefusal), Reason: clip(reason, maxRefusal)}
	if n := len(r.state.Audit); n > 0 {
		line.N = r.state.Audit[n-1].N + 1
	}
	if a != nil {
		line.Who = &entities.Who{Name: a.By}
	}
	r.state.Audit = keepNewest(append(r.state.Audit, line), maxRuntimeAudit)
}

// named is a lease as people know it.
func named(h protocol.HeldLease) string {
	if h.What == "" {
		return h.ID
	}
	return h.What
}

// ids lists some leases.
func ids(leases []protocol.HeldLease) string {
	const told = 8
	var names []string
	for i, h := range leases {
		if i == told {
			names = append(names, fmt.Sprintf("%d more", len(leases)-told))
			break
		}
		names = append(names, fmt.Sprintf("%q", h.ID))
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
