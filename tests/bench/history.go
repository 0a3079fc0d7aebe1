package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/bench/report"
)

// measureHistory counts what one release of a service at rest writes.
func measureHistory(ctx context.Context, b *bench) (err error) {
	w, err := newWorld(ctx, b.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	p, err := newPair(ctx, w, application{name: "one", channels: 1, services: serviceNames(1), steady: time.Hour})
	if err != nil {
		return err
	}
	defer p.bare.worker.Stop()
	two := application{name: "two", channels: 2, services: []string{"web"}, steady: time.Hour}
	if err := w.publish(ctx, two); err != nil {
		return err
	}
	bare, err := w.written(ctx, bareID(0), func(version string) error {
		_, _, err := p.bare.cycle(ctx, bareID(0), version)
		return err
	})
	if err != nil {
		return err
	}
	for _, c := range []struct {
		what string
		app  application
		send send
	}{
		{"release, one channel", p.app, signalRelease},
		{"release by update, one channel", p.app, updateRelease},
		{"release, two channels", two, signalRelease},
	} {
		service := c.app.services[0]
		h, err := w.written(ctx, protocol.ServiceID(c.app.name, service), func(version string) error {
			_, err := w.release(ctx, c.app, service, version, c.send)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		h.report(b, c.what, bare)
	}
	return nil
}

// written is what was added to a history.
type written struct {
	events  []*historypb.HistoryEvent
	actions map[string]int64 // by kind
	taken   int64            // of all kinds
	bytes   int64
	largest int    // payload, in bytes
	in      string // the kind of event that has it
}

// written returns what one cycle adds to the history of a workflow, after another one that brings it
// to rest.
func (w *world) written(ctx context.Context, id string, cycle func(version string) error) (written, error) {
	var h written
	stem := strings.ReplaceAll(id, "/", "-") + fmt.Sprint(time.Now().UnixNano()%1e6) // a known version would not be new
	if err := cycle(stem + "-before"); err != nil {
		return h, err
	}
	if err := w.rests(ctx, id); err != nil {
		return h, err
	}
	events, bytes, err := w.history(ctx, id)
	if err != nil {
		return h, err
	}
	before, err := w.server.used()
	if err != nil {
		return h, err
	}
	if err := cycle(stem + "-after"); err != nil {
		return h, err
	}
	if err := w.rests(ctx, id); err != nil {
		return h, err
	}
	after, err := w.server.used()
	if err != nil {
		return h, err
	}
	h.actions, h.taken = actionsSince(before, after)
	all, size, err := w.history(ctx, id)
	if err != nil {
		return h, err
	}
	h.events, h.bytes = all[len(events):], size-bytes
	for _, e := range h.events {
		if n := largestPayload(e.ProtoReflect()); n > h.largest {
			h.largest, h.in = n, kind(e)
		}
	}
	return h, nil
}

// rests waits until nothing has been added to a history for a while.
func (w *world) rests(ctx context.Context, id string) error {
	length := int64(-1)
	return until(ctx, 10*breath, func() (bool, error) {
		d, err := w.describe(ctx, id)
		now := d.GetWorkflowExecutionInfo().GetHistoryLength()
		same := now == length
		length = now
		return same, err
	})
}

// history reads a workflow's present run, and its size as the server counts it.
func (w *world) history(ctx context.Context, id string) ([]*historypb.HistoryEvent, int64, error) {
	var out []*historypb.HistoryEvent
	events := w.client.GetWorkflowHistory(ctx, id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		e, err := events.Next()
		if err != nil {
			return nil, 0, err
		}
		out = append(out, e)
	}
	d, err := w.describe(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	return out, d.GetWorkflowExecutionInfo().GetHistorySizeBytes(), nil
}

// growth is how many events the services have more than they had, and of which kinds those are that
// the one has which grew most.
func (w *world) growth(ctx context.Context, a application, had []int64) (grown int64, of string, err error) {
	lengths, err := w.lengths(ctx, a)
	if err != nil {
		return 0, "", err
	}
	most, by := 0, int64(0)
	for i, n := range lengths {
		grown += n - had[i]
		if n-had[i] > by {
			most, by = i, n-had[i]
		}
	}
	if by == 0 {
		return grown, "", nil
	}
	events, _, err := w.history(ctx, protocol.ServiceID(a.name, a.services[most]))
	if err != nil || int64(len(events)) < had[most] {
		return grown, "", err
	}
	return grown, fmt.Sprintf("most in %s: %s", a.services[most], kinds(events[had[most]:])), nil
}

func (w *world) describe(ctx context.Context, id string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return w.client.DescribeWorkflowExecution(ctx, id, "")
}

func (h written) report(b *bench, what string, bare written) {
	h.compare(b, what, bare, "bare workflow")
}

func (h written) compare(b *bench, what string, with written, against string) {
	n := report.Of(float64(len(with.events)), "events")
	b.Add(report.Line{
		Row: b.row, What: "events of a " + what, Measured: report.Of(float64(len(h.events)), "events"),
		Reference: &n, Against: against,
	})
	size := report.Of(float64(with.bytes), report.Bytes)
	b.Add(report.Line{
		Row: b.row, What: "bytes of a " + what, Measured: report.Of(float64(h.bytes), report.Bytes),
		Spread:    "largest payload " + report.Of(float64(h.largest), report.Bytes).String(),
		Reference: &size, Against: against,
	})
	b.Add(report.Line{
		Row: b.row, What: "actions of a " + what, Measured: report.Of(float64(h.taken), "actions"),
		Reference: report.Ref(report.Of(float64(with.taken), "actions")), Against: against,
	})
	b.Note(b.row, "%s: %s; largest payload in %s", what, kinds(h.events), h.in)
	b.Note(b.row, "%s: %s", what, kindsOf(h.actions))
}

// kinds counts events by kind, the most frequent first.
func kinds(events []*historypb.HistoryEvent) string {
	counts := map[string]int{}
	var order []string
	for _, e := range events {
		if counts[kind(e)]++; counts[kind(e)] == 1 {
			order = append(order, kind(e))
		}
	}
	slices.SortStableFunc(order, func(a, b string) int { return counts[b] - counts[a] })
	for i, k := range order {
		order[i] = fmt.Sprintf("%d %s", counts[k], k)
	}
	return strings.Join(order, ", ")
}

func kind(e *historypb.HistoryEvent) string { return e.GetEventType().String() }

// largestPayload is the size of the largest payload anywhere in a message, as it is stored.
func largestPayload(m protoreflect.Message) int {
	if p, ok := m.Interface().(*common.Payload); ok {
		return proto.Size(p)
	}
	largest := 0
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap() && field.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				largest = max(largest, largestPayload(v.Message()))
				return true
			})
		case field.IsList() && field.Message() != nil:
			for i := range v.List().Len() {
				largest = max(largest, largestPayload(v.List().Get(i).Message()))
			}
		case !field.IsMap() && !field.IsList() && field.Message() != nil:
			largest = max(largest, largestPayload(v.Message()))
		}
		return true
	})
	return largest
}
