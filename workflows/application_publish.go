package workflows

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// check validates a publication against what is newest.
func (a *application) check(raw json.RawMessage) (protocol.PublishRequest, error) {
	var p protocol.PublishRequest
	if err := decodeStrictly(protocol.Publish, raw, &p); err != nil {
		return p, err
	}
	newest := a.newest()
	switch {
	case p.By == "":
		return p, errors.New(`"by" is missing; expected who publishes`)
	case checkAct(p.Act) != nil:
		return p, checkAct(p.Act)
	case p.Hash == "" || p.Manifest == "":
		return p, errors.New(`"hash" and "manifest" are needed; publish with: converge apply DIR`)
	case a.answered(p.RequestID) != nil:
		return p, nil
	case p.After != 0 && p.After != newest.Number:
		return p, fmt.Errorf("compiled against incarnation %d, but %d is newest; see: converge diff %s %d %d",
			p.After, newest.Number, a.name, p.After, newest.Number)
	case newest.Number != 0 && p.Origin.Path != a.state.Origin.Path && !p.TakeOver:
		return p, fmt.Errorf("%s comes from %s, not from %s; to move it here: --take-over", a.name, a.state.Origin.Path, p.Origin.Path)
	case newest.Number != 0 && p.Store != a.state.Store && !p.TakeOver:
		return p, fmt.Errorf("%s is kept in the store %s, not in %s; to move it: --take-over", a.name, a.state.Store, p.Store)
	}
	return p, nil
}

// publish makes an incarnation the newest. The same content as the newest gets no new number; old
// content again does (D5), and newest goes by number.
func (a *application) publish(raw json.RawMessage) (protocol.PublishAnswer, error) {
	p, err := a.check(raw)
	if err != nil {
		return protocol.PublishAnswer{}, refused(err)
	}
	if before := a.answered(p.RequestID); before != nil {
		return *before, nil
	}
	answer := protocol.PublishAnswer{Incarnation: a.newest().Number, Hash: p.Hash, Unchanged: p.Manifest == a.state.Manifest}
	if p.Hash != a.newest().Hash {
		answer.Incarnation, answer.Unchanged = max(a.newest().Number, p.Floor)+1, false
		a.state.Incarnations = keepNewest(append(a.state.Incarnations, protocol.Incarnation{
			Number: answer.Incarnation, Hash: p.Hash, Manifest: p.Manifest, Services: p.Services,
			At: workflow.Now(a.ctx), By: p.By, Origin: p.Origin, Causes: p.Causes,
		}), maxIncarnations)
	}
	a.state.Manifest, a.state.Store, a.state.Origin = p.Manifest, p.Store, p.Origin
	a.state.Identity, a.state.Grants = p.Identity, p.Grants
	if a.state.Pin != nil {
		answer.Pinned = a.state.Pin.Incarnation.Number
	}
	if out, err := json.Marshal(answer); err == nil && p.RequestID != "" {
		a.state.Requests = keepNewest(append(a.state.Requests, entities.Request{ID: p.RequestID, Verb: protocol.Publish, Answer: out}), entities.MaxRequests)
	}
	a.woken = true
	return answer, nil
}

func (a *application) answered(id string) *protocol.PublishAnswer {
	for _, r := range a.state.Requests {
		if id == "" || r.ID != id {
			continue
		}
		var answer protocol.PublishAnswer
		if json.Unmarshal(r.Answer, &answer) == nil {
			return &answer
		}
	}
	return nil
}

func (a *application) newest() protocol.Incarnation {
	if n := len(a.state.Incarnations); n > 0 {
		return a.state.Incarnations[n-1]
	}
	return protocol.Incarnation{}
}
