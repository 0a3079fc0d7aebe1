package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/chaos/record"
)

const (
	giveUp    = 3 * time.Minute  // on a verb that is not answered
	fewTries  = 5                // at least
	oneTry    = 10 * time.Second // of an update
	inBetween = 200 * time.Millisecond
)

// people send verbs, each lane one after the other, and note what became of them.
type people struct {
	world *world

	mu       sync.Mutex
	changed  *sync.Cond
	acts     []record.Act
	attacks  []record.Attack
	tokens   map[string]string // by whom
	released int
}

func newPeople(w *world) *people {
	p := &people{world: w, tokens: map[string]string{}}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// note keeps an act that is over.
func (p *people) note(a record.Act) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acts = append(p.acts, a)
	if a.Verb == protocol.Release {
		p.released++
		p.changed.Broadcast()
	}
}

// awaitReleases waits until so many were made.
func (p *people) awaitReleases(ctx context.Context, n int) error {
	defer context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.changed.Broadcast()
	})()
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.released < n && ctx.Err() == nil {
		p.changed.Wait()
	}
	return ctx.Err()
}

// settles is how long people wait for a service before they go on all the same.
const settles = 30 * time.Second

// lane does what was drawn for one service, or for the application.
func (p *people) lane(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if err := p.awaitReleases(ctx, s.after); err != nil {
			return err
		}
		if s.waits {
			if service := serviceOf(steps); service != "" {
				_, _ = p.world.awaitRest(ctx, service, settles, snapshot.restless) // what never rests is found in the end
			}
			continue
		}
		p.do(ctx, s)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

func serviceOf(steps []step) string {
	for _, s := range steps {
		if s.Service != "" {
			return s.Service
		}
	}
	return ""
}

// do asks until there is an answer, and where it was drawn once more, which has to change nothing.
func (p *people) do(ctx context.Context, s step) {
	a := s.Act
	switch {
	case s.clear:
		if a.Version = waiting(p.look(ctx, a.Service)); a.Version == "" {
			return
		}
	case a.Verb == protocol.Pin:
		a.Version = target(p.look(ctx, a.Service), a.Channel)
	}
	a.Sent = time.Now()
	err := p.ask(ctx, &a)
	if err == nil && s.twice {
		again := a
		err = p.ask(ctx, &again)
	}
	a.Done = time.Now()
	var refused *refusal
	switch {
	case err == nil:
		a.Outcome = record.Answered
	case errors.As(err, &refused):
		a.Outcome, a.Message = record.Refused, refused.Error()
	default:
		a.Outcome, a.Message = record.Unanswered, err.Error()
	}
	if ctx.Err() == nil {
		p.note(a)
	}
}

// look asks a service how it is until it answers.
func (p *people) look(ctx context.Context, service string) protocol.Status {
	ctx, cancel := context.WithTimeout(ctx, giveUp)
	defer cancel()
	for {
		s, err := p.world.status(ctx, service)
		if err == nil {
			return s
		}
		select {
		case <-ctx.Done():
			return s
		case <-time.After(inBetween):
		}
	}
}

// target of a channel.
func target(s protocol.Status, channel string) string {
	for _, c := range s.Channels {
		if c.Name == channel {
			return c.Target
		}
	}
	return ""
}

// waiting is the oldest release that nobody has said a word on yet.
func waiting(s protocol.Status) string {
	for _, r := range slices.Backward(s.Releases) {
		if r.Phases[record.Production] == string(maestro.Pending) && len(r.Approvals)+len(r.Bypasses) == 0 {
			return r.Version
		}
	}
	return ""
}

// refusal is an answer that nothing was done.
type refusal struct{ reason string }

func (r *refusal) Error() string { return r.reason }

// ask repeats an act under one request id until it is answered. An error is a *refusal, or that of the last try: nobody gives
// up before several, since the machine that all of this runs on may have stood still itself.
func (p *people) ask(ctx context.Context, a *record.Act) error {
	began := time.Now()
	try := p.update
	switch {
	case a.Service == "":
		try = p.command
	case a.Signal:
		try = p.signal
	}
	for {
		a.Tries++
		message, err := try(ctx, a)
		if err == nil {
			a.Message = cmp.Or(a.Message, message)
			return nil
		}
		if errors.As(err, new(*refusal)) {
			return err
		}
		if a.Tries >= fewTries && time.Since(began) > giveUp {
			return fmt.Errorf("after %d tries: %w", a.Tries, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %d tries: %w", a.Tries, err)
		case <-time.After(inBetween):
		}
	}
}

// token is the one of an act, which every try of it and every repetition carries: a token serves one request.
func (p *people) token(a *record.Act) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.tokens[a.By()]; known != "" {
		return known, nil
	}
	token, err := p.world.token(a.By())
	if err == nil {
		p.tokens[a.By()] = token
	}
	return token, err
}

// reason is that of everything that people do.
const reason = "chaos"

// payload of a verb of a service.
func payload(a *record.Act, token string) map[string]any {
	out := map[string]any{"token": token, "requestId": a.By(), "reason": reason}
	for name, value := range map[string]string{"channel": a.Channel, "version": a.Version} {
		if value != "" {
			out[name] = value
		}
	}
	switch a.Verb {
	case protocol.Release:
		delete(out, "channel")
	case protocol.Approve, protocol.Reject:
		out["topic"] = record.Production
	case protocol.Bypass:
		out["channel"], out["condition"] = record.Production, record.Approval
	}
	return out
}

func (p *people) signal(ctx context.Context, a *record.Act) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, oneTry)
	defer cancel()
	token, err := p.token(a)
	if err != nil {
		return "", err
	}
	return "", p.world.client.SignalWorkflow(ctx, protocol.ServiceID(application, a.Service), "", a.Verb, payload(a, token))
}

func (p *people) update(ctx context.Context, a *record.Act) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, oneTry)
	defer cancel()
	token, err := p.token(a)
	if err != nil {
		return "", err
	}
	handle, err := p.world.client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		UpdateID: fmt.Sprintf("%s/%d", a.By(), a.Tries), WorkflowID: protocol.ServiceID(application, a.Service), UpdateName: a.Verb,
		Args: []any{payload(a, token)}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	var answer json.RawMessage
	if err == nil {
		err = handle.Get(ctx, &answer)
	}
	var said *temporal.ApplicationError
	if errors.As(err, &said) && said.Type() == protocol.ErrRefused {
		return "", &refusal{said.Message()}
	}
	return string(answer), err
}

// command asks for what concerns everything, by the command line. Each try is a request of its own, with a token of its own. A runtime
// belongs to no application, so that its people prove nothing.
func (p *people) command(ctx context.Context, a *record.Act) (string, error) {
	if a.Verb == protocol.Publish {
		return p.publish(ctx, a)
	}
	args, token := []string{"runtime", a.Verb, "site"}, ""
	if a.Channel == "" {
		proof, err := p.world.token(a.By())
		if err != nil {
			return "", err
		}
		args, token = []string{a.Verb, application}, proof
	}
	if a.Verb == protocol.Pause {
		args = append(args, "--reason", reason)
	}
	return "", refusedBy(p.world.convergeAs(ctx, a.By(), token, nil, append(args, "--yes")...))
}

// refusedBy tells a command's refusal from a failure.
func refusedBy(err error) error {
	if err == nil {
		return nil
	}
	if _, reason, ok := strings.Cut(err.Error(), "refused: "); ok {
		return &refusal{reason}
	}
	return err
}

// publish changes the configuration of all services.
func (p *people) publish(ctx context.Context, a *record.Act) (string, error) {
	if err := p.world.configure(a.N); err != nil {
		return "", err
	}
	token, err := p.world.token(a.By())
	if err != nil {
		return "", err
	}
	var result struct{ Incarnation int64 }
	err = refusedBy(p.world.convergeAs(ctx, a.By(), token, &result, "config", "publish", p.world.config(), "--output", "json"))
	a.Incarnation = result.Incarnation
	return fmt.Sprintf("incarnation %d", result.Incarnation), err
}
