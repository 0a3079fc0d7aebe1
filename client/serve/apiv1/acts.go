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

	"github.com/converge-engine/converge/client/act"
	"github.com/converge-engine/converge/client/api"
	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/serve/session"
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
		addAct(a, row, "service", servicePath, func(in *serviceActInput) (string, ActHeaders) {
			return protocol.ServiceID(in.Application, in.Service), in.ActHeaders
		})
	}
	for _, row := range verb.OfPeople(verb.Application()) {
		addAct(a, row, "application", applicationPath, func(in *applicationActInput) (string, ActHeaders) {
			return protocol.ApplicationID(in.Application), in.ActHeaders
		})
	}
	for _, row := range verb.OfPeople(verb.Runtime()) {
		addAct(a, row, "runtime", "/runtimes/{runtime}", func(in *runtimeActInput) (string, ActHeaders) {
			return protocol.RuntimeID(in.Runtime), in.ActHeaders
		})
	}
	for _, row := range verb.OfPeople(verb.Installation()) {
		addAct(a, row, "installation", "/installation", func(in *ActHeaders) (string, ActHeaders) {
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

// addAct adds the operation of one verb. receiver returns the workflow that a request goes to.
func addAct[I any](a *operations, row *verb.Row, of, path string, receiver func(*I) (workflowID string, in ActHeaders)) {
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

// perform carries out one act.
func (a *operations) perform(ctx context.Context, row *verb.Row, workflowID string, in ActHeaders) (json.RawMessage, error) {
	if a.ReadOnly {
		return nil, api.NewProblem(api.ReadOnly, fmt.Errorf("%s was not carried out: this server only reads; expected another one, or converge", row.Name))
	}
	r, err := requestOf(row, workflowID, in)
	if err != nil {
		return nil, api.NewProblem(api.Invalid, err)
	}
	who, known := session.From(ctx)
	if known && r.Token == "" { // a person who is signed in: the name is not up to the request
		setCaller(r.Fields, who.Name)
	}
	out, err := act.Perform(ctx, a.Calls, r)
	var refused *connection.RefusedError
	if known && r.Token != "" && errors.As(err, &refused) && strings.Contains(refused.Reason, protocol.NoIdentity) {
		r.Token = "" // the server has verified it, and the application proves nothing
		setCaller(r.Fields, who.Name)
		out, err = act.Perform(ctx, a.Calls, r)
	}
	var invalid *act.InvalidError
	if errors.As(err, &invalid) {
		err = api.NewProblem(api.Invalid, invalid.Err)
	}
	return out, err
}

// setCaller sets who acts, in place of what the body states in any case.
func setCaller(fields map[string]json.RawMessage, name string) {
	maps.DeleteFunc(fields, func(field string, _ json.RawMessage) bool { return strings.EqualFold(field, "by") })
	fields["by"], _ = json.Marshal(name) // a text is always valid
}

// cutBearer returns the token of an Authorization header. The name of the scheme has no case (RFC 9110, 11.1).
func cutBearer(header string) (token string, ok bool) {
	scheme, token, found := strings.Cut(header, " ")
	return token, found && strings.EqualFold(scheme, "Bearer")
}

// requestOf returns the act of a request: the fields of its body, with what its headers have.
func requestOf(row *verb.Row, workflowID string, in ActHeaders) (r act.Request, err error) {
	r = act.Request{Row: row, WorkflowID: workflowID, Fields: map[string]json.RawMessage{}, RequestID: in.IdempotencyKey}
	if len(bytes.TrimSpace(in.RawBody)) > 0 {
		if err := errors.Join(verb.CheckRaw(row.Name, in.RawBody), verb.CheckForm(row.Name, in.RawBody)); err != nil {
			return r, err
		}
		if err := json.Unmarshal(in.RawBody, &r.Fields); err != nil {
			return r, errors.New("the body is no JSON object; expected the payload of the verb as in docs/protocol.md")
		}
	}
	for name := range r.Fields {
		if slices.ContainsFunc(inHeaders, func(field string) bool { return strings.EqualFold(field, name) }) {
			return r, fmt.Errorf("the body has the field %q; expected the token in the header Authorization, and the request id in Idempotency-Key", name)
		}
	}
	if in.Authorization == "" {
		return r, nil
	}
	token, ok := cutBearer(in.Authorization)
	if r.Token = strings.TrimSpace(token); !ok || r.Token == "" {
		return r, errors.New("the header Authorization is invalid; expected: Bearer TOKEN")
	}
	return r, nil
}
