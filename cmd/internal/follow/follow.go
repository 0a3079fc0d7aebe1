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
	minInterval = 400 * time.Millisecond
	maxInterval = 2 * time.Second
)

// The maximum number of services that one poll queries: moving or changed services take turns. Steady ones are queried one after the
// other, in case they changed in a way that the list does not show.
const (
	maxUnsettledPerPoll = 20
	settledPerPoll      = 3
)

// Poller polls the services of an application, and keeps their last known states.
type Poller struct {
	client      client.Client
	application string
	keys        []string // in display order
	byKey       map[string]*service
	nextSettled int // next steady service to query
	interval    time.Duration
}

// service is the known state of one service.
type service struct {
	queriedRow string // its list entry at the last query
	listedRow  string // its current list entry
	status     protocol.Status
	known      bool
	queries    int
}

// New returns a Poller without services.
func New(c client.Client) *Poller { return &Poller{client: c, byKey: map[string]*service{}} }

// SetServices sets the services to follow by their workflow names, in display order. The next poll is soon.
func (f *Poller) SetServices(application string, keys []string) {
	if application != f.application {
		f.byKey = map[string]*service{}
	}
	f.application, f.keys, f.interval = application, keys, 0
	for key := range f.byKey {
		if !slices.Contains(keys, key) {
			delete(f.byKey, key)
		}
	}
}

// Interval returns the time until the next poll.
func (f *Poller) Interval() time.Duration { return max(f.interval, minInterval) }

// Poll polls once, and returns the services that it queried, because they may have changed. All services are known once each was
// queried.
func (f *Poller) Poll(ctx context.Context) (polled []protocol.Status, err error) {
	if len(f.keys) == 0 {
		return nil, nil
	}
	if err := f.list(ctx); err != nil {
		return nil, err
	}
	changed := false
	for _, key := range f.due() {
		before, known := f.byKey[key].status, f.byKey[key].known
		s, err := f.query(ctx, key)
		if err != nil {
			return polled, err
		}
		polled = append(polled, s)
		changed = changed || !known || differs(before, s)
	}
	f.interval = min(max(f.interval, minInterval)*5/4, maxInterval)
	if changed {
		f.interval = minInterval
	}
	return polled, nil
}

// Statuses returns the last known state of all services, if all are known.
func (f *Poller) Statuses() (all []protocol.Status, known bool) {
	for _, key := range f.keys {
		s := f.byKey[key]
		if s == nil || !s.known || s.queriedRow != s.listedRow {
			return nil, false
		}
		all = append(all, s.status)
	}
	return all, len(all) > 0
}

// list reads Temporal's list of all services: its attributes change when something happens.
func (f *Poller) list(ctx context.Context) error {
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
			if f.byKey[key] == nil {
				f.byKey[key] = &service{}
			}
			f.byKey[key].listedRow = row(e.GetExecution().GetRunId(), e.GetSearchAttributes().GetIndexedFields())
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return nil
		}
	}
}

// due returns the services to query now.
func (f *Poller) due() []string {
	var unsettled, settled []string
	for _, key := range f.keys {
		switch s := f.byKey[key]; {
		case s == nil: // not listed yet
		case !s.known || s.queriedRow != s.listedRow || Unsettled(s.status):
			unsettled = append(unsettled, key)
		default:
			settled = append(settled, key)
		}
	}
	slices.SortStableFunc(unsettled, func(a, b string) int { return f.byKey[a].queries - f.byKey[b].queries })
	unsettled = unsettled[:min(len(unsettled), maxUnsettledPerPoll)]
	for n := range min(settledPerPoll, len(settled)) {
		unsettled = append(unsettled, settled[(f.nextSettled+n)%len(settled)])
	}
	f.nextSettled += settledPerPoll
	return unsettled
}

func (f *Poller) query(ctx context.Context, key string) (s protocol.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err = protocol.QueryWhole(func(q protocol.PartsQuery) (raw json.RawMessage, err error) {
		value, err := f.client.QueryWorkflow(ctx, protocol.ServiceID(f.application, key), "", protocol.QueryStatus, q)
		if err == nil {
			err = value.Get(&raw)
		}
		return raw, err
	}, &s)
	if err != nil {
		return s, err
	}
	entry := f.byKey[key]
	entry.queriedRow, entry.status, entry.known = entry.listedRow, s, true
	entry.queries++
	return s, nil
}

// Unsettled reports whether a service changes without a person.
func Unsettled(s protocol.Status) bool {
	return len(s.Channels) == 0 || slices.ContainsFunc(s.Channels, func(c protocol.ChannelStatus) bool {
		return entities.Status(c.Status).Row().Exit == entities.ExitWaiting
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
