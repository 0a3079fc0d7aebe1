package apiv1

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/converge-engine/converge/client/api"
	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/overview"
	"github.com/converge-engine/converge/client/serve/access"
	"github.com/converge-engine/converge/client/serve/session"
)

// The bounds of a stream of events.
const (
	maxStreams      = 1000
	maxBacklog      = 500 // changed services; a client that has missed more reads everything again
	heartbeat       = 15 * time.Second
	minEventGap     = 200 * time.Millisecond // between two writes, so that a burst of changes is few writes
	eventWriteLimit = 10 * time.Second       // a client that does not read is cut off
	maxWatched      = 50                     // services
)

// events streams what changes, as server-sent events (WHATWG HTML, 9.2). An event says what has changed and not what it is now: the client
// reads that.
func (a *operations) events(w http.ResponseWriter, r *http.Request) {
	select {
	case a.streams <- struct{}{}:
		defer func() { <-a.streams }()
	default:
		api.NewProblem(api.Unreachable, fmt.Errorf("%d streams are open; try again later", maxStreams)).Write(w)
		return
	}
	watched, err := parseWatched(r.URL.Query()["service"])
	if err != nil {
		api.NewProblem(api.Invalid, err).Write(w)
		return
	}
	defer a.Overview.Open()()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy passes each event on at once
	s := &stream{w: w, control: http.NewResponseController(w), overview: a.Overview, watched: watched, readers: a.Readers}
	after := r.Header.Get("Last-Event-ID")
	if after == "" {
		after = r.URL.Query().Get("after")
	}
	ctx := r.Context()
	if _, known := session.From(ctx); known { // it begins again, so that a sign-out is noticed
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, session.StreamTime)
		defer cancel()
	}
	if s.begin(ctx, after) == nil {
		s.follow(ctx, a.Stopping)
		if r.Context().Err() == nil {
			_ = s.send("end", struct{}{}) // the client is gone
		}
	}
}

// parseWatched reads the names of services that a client shows, so that they are queried more often than others.
func parseWatched(texts []string) (names []connection.ServiceName, err error) {
	if len(texts) > maxWatched {
		return nil, fmt.Errorf("query.service names %d services; at most %d", len(texts), maxWatched)
	}
	for _, text := range texts {
		application, service, ok := strings.Cut(text, "/")
		if !ok || !connection.IsName(application) || !connection.IsName(service) {
			return nil, fmt.Errorf("query.service: %q; expected APPLICATION/SERVICE", text)
		}
		names = append(names, connection.ServiceName{Application: application, Service: service})
	}
	return names, nil
}

// stream is one client.
type stream struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	overview *overview.Overview
	watched  []connection.ServiceName
	readers  *access.Readers
	revision overview.Revision
}

// begin tells the client where it is: where it wants to continue, or that it has to read everything again.
func (s *stream) begin(ctx context.Context, after string) error {
	state, _ := s.overview.State()
	revision, ok := s.overview.ParseRevision(after)
	if !ok {
		s.revision = state.Revision
		return s.sendReset(ctx, state)
	}
	s.revision = revision
	return s.send("", nil)
}

// follow sends changes until the client is gone or the server stops.
func (s *stream) follow(ctx context.Context, stopping <-chan struct{}) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		if len(s.watched) > 0 {
			s.overview.Want(func(l connection.ListedService) bool { return slices.Contains(s.watched, l.ServiceName) })
		}
		_, changed := s.overview.State()
		if s.sendChanges(ctx) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-stopping:
			return
		case <-changed:
			select {
			case <-ctx.Done():
				return
			case <-time.After(minEventGap):
			}
		case <-beat.C:
			state, _ := s.overview.State()
			if s.send("alive", api.Alive{AsOf: state.GoodAt}) != nil {
				return
			}
		}
	}
}

// sendReset tells the client to read everything again.
func (s *stream) sendReset(ctx context.Context, state overview.State) error {
	allowed, _ := s.readers.Allowed(ctx, s.overview.Applications())
	_, services := s.overview.Select(func(each *overview.Service) bool { return allowed(each.Application) }, connection.ServiceName{}, 0)
	return s.send("reset", api.Reset{Services: services, Complete: state.Complete})
}

// sendChanges sends what has changed since the last event.
func (s *stream) sendChanges(ctx context.Context) error {
	changed, now := s.overview.Since(s.revision)
	if now == s.revision {
		return nil
	}
	s.revision = now
	var applications []string
	for _, each := range changed {
		applications = append(applications, each.Application)
	}
	allowed, _ := s.readers.Allowed(ctx, applications)
	changed = slices.DeleteFunc(changed, func(each overview.Service) bool { return !allowed(each.Application) })
	switch {
	case len(changed) == 0:
		return nil
	case len(changed) > maxBacklog:
		state, _ := s.overview.State()
		return s.sendReset(ctx, state)
	}
	event := api.Changed{Services: []api.ServiceItem{}}
	for _, each := range changed {
		event.Services = append(event.Services, item(each))
	}
	return s.send("changed", event)
}

// send writes one event, or a comment.
func (s *stream) send(name string, data any) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(eventWriteLimit)) // without one, the server's own holds
	text := ": connected\n\n"
	if name != "" {
		body, err := json.Marshal(data)
		if err != nil {
			return err
		}
		text = fmt.Sprintf("event: %s\nid: %s\ndata: %s\n\n", name, s.revision, body)
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}

// describeEvents adds the stream to the OpenAPI document.
func (a *operations) describeEvents(document *huma.OpenAPI) {
	text := func() *huma.Schema { return &huma.Schema{Type: huma.TypeString} }
	schemas := document.Components.Schemas
	changed, reset := schemas.Schema(reflect.TypeOf(api.Changed{}), true, ""), schemas.Schema(reflect.TypeOf(api.Reset{}), true, "")
	alive := schemas.Schema(reflect.TypeOf(api.Alive{}), true, "")
	document.AddOperation(&huma.Operation{
		OperationID: "follow-events", Method: http.MethodGet, Path: prefix + "/events", Tags: []string{"service"},
		Summary: "Streams what changes",
		Description: "Server-sent events. The data of an event reset is a Reset: read everything again, and continue from here. The data of an event changed is a Changed. " +
			"An event alive, whose data is an Alive, comes every 15 seconds: a stream without one is dead. After an event end, and otherwise too, a client that connects again sends the id of its last event as Last-Event-ID.",
		Parameters: []*huma.Param{
			{Name: "Last-Event-ID", In: "header", Description: "The id of the last event that the client has", Schema: text()},
			{Name: "after", In: "query", Description: "The same, for clients that cannot set headers", Schema: text()},
			{
				Name: "service", In: "query", Description: "APPLICATION/SERVICE that the client shows, so that it is asked more often than others; repeatable",
				Schema: &huma.Schema{Type: huma.TypeArray, Items: text()},
			},
		},
		Responses: map[string]*huma.Response{
			"200":     {Description: "Events", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{AnyOf: []*huma.Schema{reset, changed, alive}}}}},
			"default": {Description: "Error", Content: map[string]*huma.MediaType{"application/problem+json": {Schema: schemas.Schema(reflect.TypeOf(api.Problem{}), true, "")}}},
		},
	})
}
