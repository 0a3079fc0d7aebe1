// Package follow tracks many services at low cost. It queries Temporal once for all of them. It queries a service only when the list
// shows a change, or while the service moves. Even the cheap query is not frequent: while nothing changes, its interval grows.
//
// The package knows how and when to query services, and nothing about their display.
package follow

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// The poll intervals: short after a change, and growing while nothing changes.
const (
	soon = 400 * time.Millisecond
	late = 2 * time.Second
)

// The maximum number of services that one poll queries: moving or changed services take turns. Steady ones are queried one after the
// other, in case they changed in a way that the list does not show.
const (
	movingAtOnce = 20
	restingOnce  = 3
)

// Services are the last known states of the services of an application.
type Services struct {
	client      client.Client
	application string
	keys        []string // in display order
	seen        map[string]*service
	next        int // next steady service to query
	wait        time.Duration
}

// service is the known state of one service.
type service struct {
	row    string // its list entry at the last query
	listed string // its current list entry
	status protocol.Status
	known  bool
	turn   int
}

// New returns Services without any service.
func New(c client.Client) *Services { return &Services{client: c, seen: map[string]*service{}} }

// Of sets the services to follow by their workflow names, in display order. The next poll is soon.
func (f *Services) Of(application string, keys []string) {
	if application != f.application {
		f.seen = map[string]*service{}
	}
	f.application, f.keys, f.wait = application, keys, 0
	for key := range f.seen {
		if !slices.Contains(keys, key) {
			delete(f.seen, key)
		}
	}
}

// Wait returns the time until the next poll.
func (f *Services) Wait() time.Duration { return max(f.wait, soon) }

// Look polls once, and returns the services that it queried, because they may have changed. All services are known once each was
// queried.
func (f *Services) Look(ctx context.Context) (asked []protocol.Status, err error) {
	if len(f.keys) == 0 {
		return nil, nil
	}
	if err := f.list(ctx); err != nil {
		return nil, err
	}
	changed := false
	for _, key := range f.due() {
		before, known := f.seen[key].status, f.seen[key].known
		s, err := f.ask(ctx, key)
		if err != nil {
			return asked, err
		}
		asked = append(asked, s)
		changed = changed || !known || differs(before, s)
	}
	f.wait = min(max(f.wait, soon)*5/4, late)
	if changed {
		f.wait = soon
	}
	return asked, nil
}

// All returns the last known state of all services, if all are known.
func (f *Services) All() (all []protocol.Status, known bool) {
	for _, key := range f.keys {
		s := f.seen[key]
		if s == nil || !s.known || s.row != s.listed {
			return nil, false
		}
		all = append(all, s.status)
	}
	return all, len(all) > 0
}

// list reads Temporal's list of all services: its attributes change when something happens.
func (f *Services) list(ctx context.Context) error {
	request := &workflowservice.ListWorkflowExecutionsRequest{PageSize: 1000, Query: fmt.Sprintf(
		"WorkflowType = '%s' AND %s = '%s' AND ExecutionStatus = 'Running'", protocol.ServiceWorkflow, protocol.AttrApplication, f.application)}
	prefix := protocol.ServiceID(f.application, "")
	for {
		page, err := f.client.ListWorkflow(ctx, request)
		if err != nil {
			return err
		}
		for _, e := range page.GetExecutions() {
			key := strings.TrimPrefix(e.GetExecution().GetWorkflowId(), prefix)
			if !slices.Contains(f.keys, key) {
				continue
			}
			if f.seen[key] == nil {
				f.seen[key] = &service{}
			}
			f.seen[key].listed = row(e.GetExecution().GetRunId(), e.GetSearchAttributes().GetIndexedFields())
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return nil
		}
	}
}

// due returns the services to query now.
func (f *Services) due() []string {
	var moving, resting []string
	for _, key := range f.keys {
		switch s := f.seen[key]; {
		case s == nil: // not listed yet
		case !s.known || s.row != s.listed || Moves(s.status):
			moving = append(moving, key)
		default:
			resting = append(resting, key)
		}
	}
	slices.SortStableFunc(moving, func(a, b string) int { return f.seen[a].turn - f.seen[b].turn })
	moving = moving[:min(len(moving), movingAtOnce)]
	for n := range min(restingOnce, len(resting)) {
		moving = append(moving, resting[(f.next+n)%len(resting)])
	}
	f.next += restingOnce
	return moving
}

func (f *Services) ask(ctx context.Context, key string) (s protocol.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err = protocol.Whole(func(q protocol.InParts) (raw json.RawMessage, err error) {
		value, err := f.client.QueryWorkflow(ctx, protocol.ServiceID(f.application, key), "", protocol.QueryStatus, q)
		if err == nil {
			err = value.Get(&raw)
		}
		return raw, err
	}, &s)
	if err != nil {
		return s, err
	}
	of := f.seen[key]
	of.row, of.status, of.known = of.listed, s, true
	of.turn++
	return s, nil
}

// Moves reports whether a service changes without a person.
func Moves(s protocol.Status) bool {
	return len(s.Channels) == 0 || slices.ContainsFunc(s.Channels, func(c protocol.ChannelStatus) bool {
		return entities.Status(c.Status).Row().Exit == entities.ExitGoesOn
	})
}

func differs(a, b protocol.Status) bool { return a.Status != b.Status || newest(a) != newest(b) }

func newest(s protocol.Status) int64 {
	if len(s.Journal) == 0 {
		return 0
	}
	return s.Journal[len(s.Journal)-1].N
}

// row returns a list entry as text. It differs for another run.
func row(run string, attributes map[string]*commonpb.Payload) string {
	text := run
	for _, name := range []string{protocol.AttrStatus, protocol.AttrVersion, protocol.AttrWaitingFor} {
		text += "\n" + string(attributes[name].GetData())
	}
	return text
}
