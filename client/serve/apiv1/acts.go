package apiv1

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/converge-engine/converge/client/api"
	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
)

// ActHeaders are the headers and the body of an act.
type ActHeaders struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"256" pattern:"^[ -~]+$" patternDescription:"printable ASCII" doc:"The request id: an act with the same key is carried out once, and answered again. Without it, one is made up."`
	Authorization  string `header:"Authorization" hidden:"true" doc:"Bearer and an OIDC ID token that proves who acts"`
	RawBody        []byte
}

type serviceActInput struct {
	ServicePath
	ActHeaders
}

type releaseInput struct {
	ServicePath
	ActHeaders
	Wait string `query:"wait" doc:"Wait this long, at most 60s, for the outcome of the release, such as 30s"`
}

type applicationActInput struct {
	ApplicationPath
	ActHeaders
}

type runtimeActInput struct {
	RuntimePath
	ActHeaders
}

// addActs adds an operation for every verb that people use: of services, applications, runtimes and the installation.
func (a *operations) addActs() {
	for _, row := range verb.OfPeople(verb.Service()) {
		if row.Name == protocol.Release {
			a.addRelease(row)
			continue
		}
		act(a, row, "service", servicePath, func(in *serviceActInput) (string, ActHeaders) {
			return protocol.ServiceID(in.Application, in.Service), in.ActHeaders
		})
	}
	for _, row := range verb.OfPeople(verb.Application()) {
		act(a, row, "application", applicationPath, func(in *applicationActInput) (string, ActHeaders) {
			return protocol.ApplicationID(in.Application), in.ActHeaders
		})
	}
	for _, row := range verb.OfPeople(verb.Runtime()) {
		registerAct(a, a.actOperation(row, "runtime", "/runtimes/{runtime}", row.Answer()), func(ctx context.Context, in *runtimeActInput) (*answer[json.RawMessage], error) {
			out, err := a.performOnRuntime(ctx, row, in)
			if err != nil {
				return nil, problemOf(err)
			}
			return &answer[json.RawMessage]{out}, nil
		})
	}
	for _, row := range verb.OfPeople(verb.Installation()) {
		act(a, row, "installation", "/installation", func(in *ActHeaders) (string, ActHeaders) {
			return protocol.InstallationID(), *in
		})
	}
}

// addRelease adds the operation of a service's release, which can wait for the outcome.
func (a *operations) addRelease(row *verb.Row) {
	operation := a.actOperation(row, "service", servicePath, api.ReleaseAnswer{})
	registerAct(a, operation, func(ctx context.Context, in *releaseInput) (*answer[json.RawMessage], error) {
		timeout, err := time.Duration(0), error(nil)
		if in.Wait != "" {
			timeout, err = parseWait("wait", in.Wait)
		}
		if err != nil {
			return nil, problemOf(err)
		}
		out, err := a.perform(ctx, row, in.name().ID(), in.ActHeaders)
		if err == nil && timeout > 0 {
			out, err = a.withOutcome(ctx, in.name(), out, timeout)
		}
		if err != nil {
			return nil, problemOf(err)
		}
		return &answer[json.RawMessage]{out}, nil
	})
}

// actOperation is the operation of a verb.
func (a *operations) actOperation(row *verb.Row, of, path string, answer any) huma.Operation {
	schemas := a.huma.OpenAPI().Components.Schemas
	return huma.Operation{
		OperationID: row.Name + "-" + of, Method: http.MethodPost, Path: prefix + path + "/" + row.Name, Tags: []string{of},
		Summary: strings.ToUpper(row.Description[:1]) + row.Description[1:], MaxBodyBytes: verb.MaxPayload,
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			"application/json": {Schema: bodySchema(schemas, row)},
		}},
		Security: []map[string][]string{{}, {idToken: {}}},
		Responses: map[string]*huma.Response{"200": {Description: "It was carried out", Content: map[string]*huma.MediaType{
			"application/json": {Schema: schemas.Schema(reflect.TypeOf(answer), true, "")},
		}}},
	}
}

// act adds the operation of one verb. receiver returns the workflow that a request goes to.
func act[I any](a *operations, row *verb.Row, of, path string, receiver func(*I) (workflowID string, in ActHeaders)) {
	registerAct(a, a.actOperation(row, of, path, row.Answer()), func(ctx context.Context, in *I) (*answer[json.RawMessage], error) {
		workflowID, given := receiver(in)
		out, err := a.perform(ctx, row, workflowID, given)
		if err != nil {
			return nil, problemOf(err)
		}
		return &answer[json.RawMessage]{out}, nil
	})
}

// registerAct adds an operation whose body is JSON, and is read as it is: the verb decodes it.
func registerAct[I any](a *operations, operation huma.Operation, handle func(context.Context, *I) (*answer[json.RawMessage], error)) {
	huma.Register(a.huma, operation, handle)
	delete(operation.RequestBody.Content, "application/octet-stream") // what huma says of every body that is read as it is
}

// bodySchema is the schema of the payload of a verb without what the headers of a request have.
func bodySchema(schemas huma.Registry, row *verb.Row) *huma.Schema {
	body := *huma.SchemaFromType(schemas, reflect.TypeOf(row.Payload()).Elem())
	body.Properties = maps.Clone(body.Properties)
	for _, field := range inHeaders {
		delete(body.Properties, field)
	}
	body.Required = slices.DeleteFunc(slices.Clone(body.Required), func(field string) bool { return field == "by" || slices.Contains(inHeaders, field) })
	body.PrecomputeMessages()
	return &body
}

// inHeaders are the fields of a payload that the headers of a request have: Authorization and Idempotency-Key.
var inHeaders = []string{"token", "requestId"}

// perform carries out one act. Its payload is checked here as the workflow checks it, so that an invalid one costs no event.
func (a *operations) perform(ctx context.Context, row *verb.Row, workflowID string, in ActHeaders) (json.RawMessage, error) {
	if a.ReadOnly {
		return nil, newProblem(api.ReadOnly, fmt.Errorf("%s was not carried out: this server only reads; expected another one, or converge", row.Name))
	}
	payload, requestID, err := withCaller(row.Name, in)
	if err == nil {
		_, err = row.Decode(payload)
	}
	if err != nil {
		return nil, newProblem(api.Invalid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	var out json.RawMessage
	for attempt := 1; ; attempt++ {
		err := a.Calls.Update(ctx, workflowID, row.Name, requestID, payload, &out)
		if errors.Is(err, connection.ErrNotFound) {
			return nil, a.missing(ctx, workflowID)
		}
		if !errors.Is(err, connection.ErrLost) || attempt == actAttempts || ctx.Err() != nil {
			return out, err
		}
	}
}

const (
	actTimeout  = 30 * time.Second // for all attempts
	actAttempts = 3                // with one request id: the act is carried out once
)

// performOnRuntime carries out a verb of a runtime. A runtime that was never limited, paused or drained has no workflow yet: a pause starts it.
func (a *operations) performOnRuntime(ctx context.Context, row *verb.Row, in *runtimeActInput) (json.RawMessage, error) {
	out, err := a.perform(ctx, row, protocol.RuntimeID(in.Runtime), in.ActHeaders)
	if !errors.Is(err, connection.ErrNotFound) {
		return out, err
	}
	used, usedErr := read.UsedRuntimes(ctx, a.Calls)
	switch {
	case !slices.Contains(used, in.Runtime):
		return nil, errors.Join(newProblem(api.NotFound, fmt.Errorf("no service uses runtime %s%s", in.Runtime, read.Suggestion(in.Runtime, used))), usedErr)
	case row.Name != protocol.Pause:
		return nil, newProblem(api.NotFound, fmt.Errorf("runtime %s was never limited, paused or drained", in.Runtime))
	}
	if err := connection.StartRuntime(ctx, a.Calls, in.Runtime); err != nil {
		return nil, err
	}
	return a.perform(ctx, row, protocol.RuntimeID(in.Runtime), in.ActHeaders)
}

// missing says which service or application there is instead of the receiver of an act.
func (a *operations) missing(ctx context.Context, workflowID string) error {
	if application, service, ok := protocol.ParseServiceID(workflowID); ok {
		return read.NotFound(ctx, a.Calls, connection.ServiceName{Application: application, Service: service})
	}
	application, _ := protocol.TrailOf(workflowID)
	if workflowID == protocol.ApplicationID(application) {
		if _, err := read.Application(ctx, a.Calls, application); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: %w", workflowID, connection.ErrNotFound)
}

// cutBearer returns the token of an Authorization header. The name of the scheme has no case (RFC 9110, 11.1).
func cutBearer(header string) (token string, ok bool) {
	scheme, token, found := strings.Cut(header, " ")
	return token, found && strings.EqualFold(scheme, "Bearer")
}

// withCaller returns the payload of a request with its id and the token of its caller, which its headers have.
func withCaller(name string, in ActHeaders) (payload json.RawMessage, requestID string, err error) {
	fields := map[string]json.RawMessage{}
	if len(bytes.TrimSpace(in.RawBody)) > 0 {
		if err := errors.Join(verb.CheckRaw(name, in.RawBody), verb.CheckForm(name, in.RawBody)); err != nil {
			return nil, "", err
		}
		if err := json.Unmarshal(in.RawBody, &fields); err != nil {
			return nil, "", errors.New("the body is no JSON object; expected the payload of the verb as in docs/protocol.md")
		}
	}
	for name := range fields {
		if slices.ContainsFunc(inHeaders, func(field string) bool { return strings.EqualFold(field, name) }) {
			return nil, "", fmt.Errorf("the body has the field %q; expected the token in the header Authorization, and the request id in Idempotency-Key", name)
		}
	}
	requestID = in.IdempotencyKey
	if requestID == "" {
		requestID = connection.NewRequestID()
	}
	set := func(field, value string) {
		fields[field], _ = json.Marshal(value) // a text is always valid
	}
	set("requestId", requestID)
	if in.Authorization != "" {
		token, ok := cutBearer(in.Authorization)
		if !ok || strings.TrimSpace(token) == "" {
			return nil, "", errors.New("the header Authorization is invalid; expected: Bearer TOKEN")
		}
		set("token", strings.TrimSpace(token))
	}
	payload, err = json.Marshal(fields)
	return payload, requestID, err
}
