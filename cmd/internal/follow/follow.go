// Package follow keeps up with many services for little: it asks Temporal once for all of them, and a service itself only when that says
// that something happened, or while it moves. What costs nothing to ask is not asked often either: while nothing changes, ever later.
//
// It knows how services are asked and when, and nothing of how they are shown.
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

// How often services are looked at: soon after something happened, and ever later while nothing does.
const (
	soon = 400 * time.Millisecond
	late = 2 * time.Second
)

// How many services are asked at a look: of those that move or changed, in turns, and of those at rest, one after the other, in case
// that something happened to them that the list does not tell.
const (
	movingAtOnce = 20
	restingOnce  = 3
)

// Services are the services of an application, as they were last seen.
type Services struct {
	client      client.Client
	application string
	keys        []string // in the order in which they are shown
	seen        map[string]*service
	next        int // of those at rest
	wait        time.Duration
}

// service is what is known of one.
type service struct {
	row    string // as it was listed when it was asked last
	listed string // as it is now
	status protocol.Status
	known  bool
	turn   int
}

// New follows nothing yet.
func New(c client.Client) *Services { return &Services{client: c, seen: map[string]*service{}} }

// Of says which services there are, by the names that workflows have, in the order in which they are shown. They are looked at soon.
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

// Wait is how long to wait until the next look.
func (f *Services) Wait() time.Duration { return max(f.wait, soon) }

// Look asks once, and returns the services that were asked themselves, since they may have changed. All are known once every one was
// asked.
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

// All are the services as they were last seen, when all were.
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

// list asks what Temporal lists of all services: what they show there changes when something happens.
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

// due are the services to be asked now.
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

// Moves tells whether something goes on by itself.
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

// row is what is listed of a service, as text: of another run it is another one.
func row(run string, attributes map[string]*commonpb.Payload) string {
	text := run
	for _, name := range []string{protocol.AttrStatus, protocol.AttrVersion, protocol.AttrWaitingFor} {
		text += "\n" + string(attributes[name].GetData())
	}
	return text
}
