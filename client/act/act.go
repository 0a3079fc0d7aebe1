// Package act carries out the verbs that people send, for the servers that receive them: the HTTP API and the board.
package act

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
)

// Request is one act.
type Request struct {
	Row        *verb.Row
	WorkflowID string                     // of the receiver
	Fields     map[string]json.RawMessage // of the payload, without the token and the request id
	RequestID  string                     // an act with the same id is carried out once; empty: one is made up
	Token      string                     // OIDC ID token that proves who acts; empty: none
}

// InvalidError is a request that no workflow has seen.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string { return e.Err.Error() }

// Unwrap returns the fault.
func (e *InvalidError) Unwrap() error { return e.Err }

const (
	timeout  = 30 * time.Second // for all attempts
	attempts = 3                // with one request id: the act is carried out once
)

// Perform carries out an act, and returns the answer of its receiver (verb.Row.Answer). The payload is checked here as the receiver checks it,
// so that an invalid one costs no event: an *InvalidError. Other errors are those of connection.API, with names of what there is instead of a
// missing receiver.
func Perform(ctx context.Context, c connection.API, r Request) (json.RawMessage, error) {
	r.RequestID = cmp.Or(r.RequestID, connection.NewRequestID())
	payload, err := r.payload()
	if err == nil {
		_, err = r.Row.Decode(payload)
	}
	if err != nil {
		return nil, &InvalidError{err}
	}
	answer, err := r.send(ctx, c, payload)
	if !errors.Is(err, connection.ErrNotFound) {
		return answer, err
	}
	if started, err := r.startRuntime(ctx, c); err != nil || !started {
		return nil, cmp.Or(err, r.missing(ctx, c))
	}
	return r.send(ctx, c, payload)
}

// Nonce is that of a token for this act. The request has an id.
func (r Request) Nonce(namespace string) (string, error) {
	payload, err := r.payload()
	if err != nil {
		return "", &InvalidError{err}
	}
	return protocol.Act{Namespace: namespace, Receiver: r.WorkflowID, Verb: r.Row.Name, Request: payload}.Nonce()
}

// payload returns the payload with the request id and the token.
func (r Request) payload() (json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	for name, value := range r.Fields {
		fields[name] = value
	}
	for name, text := range map[string]string{"requestId": r.RequestID, "token": r.Token} {
		if text != "" {
			fields[name], _ = json.Marshal(text) // a text is always valid
		}
	}
	return json.Marshal(fields)
}

// send sends an act, again if the connection was lost.
func (r Request) send(ctx context.Context, c connection.API, payload json.RawMessage) (answer json.RawMessage, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err = c.Update(ctx, r.WorkflowID, r.Row.Name, r.RequestID, payload, &answer)
		if !errors.Is(err, connection.ErrLost) || attempt == attempts || ctx.Err() != nil {
			return answer, err
		}
	}
}

// startRuntime starts the workflow of a runtime that is paused for the first time. A runtime that was never limited, paused or drained has none.
func (r Request) startRuntime(ctx context.Context, c connection.API) (started bool, err error) {
	name, ok := protocol.ParseRuntimeID(r.WorkflowID)
	if !ok || r.Row.Name != protocol.Pause {
		return false, nil
	}
	used, err := read.UsedRuntimes(ctx, c)
	if !slices.Contains(used, name) {
		return false, err
	}
	return true, connection.StartRuntime(ctx, c, name)
}

// missing says what there is instead of the receiver.
func (r Request) missing(ctx context.Context, c connection.API) error {
	if application, service, ok := protocol.ParseServiceID(r.WorkflowID); ok {
		return read.NotFound(ctx, c, connection.ServiceName{Application: application, Service: service})
	}
	if name, ok := protocol.ParseRuntimeID(r.WorkflowID); ok {
		return read.NoRuntime(ctx, c, name)
	}
	application, _ := protocol.TrailOf(r.WorkflowID)
	if r.WorkflowID == protocol.ApplicationID(application) {
		if _, err := read.Application(ctx, c, application); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: %w", r.WorkflowID, connection.ErrNotFound)
}
