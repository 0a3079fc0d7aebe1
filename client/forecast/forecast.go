// Package forecast says what the rules of a service allow at times to come: for a simulated release, and for a calendar. It evaluates the checks
// that need no other system; the others are assumed to pass.
package forecast

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/chart"
	"github.com/converge-engine/converge/entities/selection"
	"github.com/converge-engine/converge/entities/state"
)

// Checks are the checks of a service.
type Checks struct {
	Assumed []string // CHANNEL/CHECK: they need another system, and are assumed to pass

	application, service string
	definitions          map[string]entities.CheckDefinition // by digest
	last                 map[lastKey]entities.CheckReading   // of allowed times
}

// lastKey is a check of allowed times in a channel.
type lastKey struct{ channel, definition string }

// Read reads the definitions of the checks that need no other system from the store of the service.
func Read(ctx context.Context, stores read.Store, s *state.State) (*Checks, error) {
	c := &Checks{definitions: map[string]entities.CheckDefinition{}, last: map[lastKey]entities.CheckReading{}, application: s.Application, service: s.Title()}
	if s.Spec == nil {
		return c, nil
	}
	at, err := stores.Open(ctx, s.Store)
	if err != nil {
		return nil, err
	}
	defer at.Close() // only read
	for _, channel := range s.Spec.Channels {
		for _, check := range channel.Checks {
			if !check.Kind.Offline() {
				c.Assumed = append(c.Assumed, channel.Name+"/"+check.ID)
				continue
			}
			definition, err := at.Check(ctx, check.Definition)
			if err != nil {
				return nil, fmt.Errorf("check %s of %s: %w", check.ID, channel.Name, err)
			}
			c.definitions[check.Definition] = definition
		}
	}
	return c, nil
}

// Judge evaluates a check at a moment (simulate.Input). A result of allowed times holds until the moment that it names: to find that takes long.
// A Checks is for one caller at a time.
func (c *Checks) Judge(e entities.Evaluation, at time.Time) entities.CheckReading {
	definition, known := c.definitions[e.Definition]
	key := lastKey{e.Channel, e.Definition}
	last, kept := c.last[key]
	switch {
	case known && kept && !at.Before(last.At) && at.Before(last.Next):
		last.At = at
		return last
	case known && e.Kind == entities.CheckAllowedTimes:
		reading := c.evaluate(definition, e, at)
		reading.At = at
		c.last[key] = reading
		return reading
	case known:
		return c.evaluate(definition, e, at)
	case e.Kind == entities.CheckSelection:
		return selection.SelectAll(e, at)
	}
	return entities.CheckReading{Verdict: entities.Pass, Reason: "assumed to pass", At: at}
}

func (c *Checks) evaluate(definition entities.CheckDefinition, e entities.Evaluation, at time.Time) entities.CheckReading {
	return checks.Evaluate(context.Background(), checks.Sources{}, checks.Request{Definition: definition.ForChannel(c.application, c.service, e.Channel), Evaluation: e, Now: at})
}

// Closed is when no release enters a channel, because of its allowed times: in order, and each span with the reasons.
type Closed struct {
	Channel string
	Spans   []chart.Span
	Until   time.Time // the spans after this moment are not listed
}

// maxMoments limits how often the checks of a channel are evaluated: times may change every minute.
const maxMoments = 500

// Calendar lists the channels with allowed times, and when these are closed between two moments. When ctx ends, the rest is left out.
func (c *Checks) Calendar(ctx context.Context, spec *entities.Spec, from, to time.Time) (all []Closed) {
	for _, channel := range spec.Channels {
		times := slices.DeleteFunc(slices.Clone(channel.Checks), func(check entities.Check) bool {
			return check.Kind != entities.CheckAllowedTimes || check.FirstGateStage() == ""
		})
		if len(times) > 0 {
			all = append(all, c.closed(ctx, channel.Name, times, from, to))
		}
	}
	return all
}

func (c *Checks) closed(ctx context.Context, channel string, times []entities.Check, from, to time.Time) Closed {
	out := Closed{Channel: channel, Until: to}
	at := from
	for n := 0; at.Before(to); n++ {
		if n == maxMoments || ctx.Err() != nil {
			out.Until = at
			break
		}
		next := to
		var reasons []string
		for _, check := range times {
			reading := c.Judge(entities.Evaluation{Channel: channel, ID: check.ID, Kind: check.Kind, Definition: check.Definition}, at)
			if reading.Verdict != entities.Pass {
				reasons = append(reasons, check.ID+": "+reading.Reason)
			}
			if reading.Next.After(at) && reading.Next.Before(next) {
				next = reading.Next
			}
		}
		out.add(chart.Span{Kind: chart.Waits, From: at, To: next, Reasons: reasons})
		at = next
	}
	return out
}

// add adds a span, or extends the last one if its reasons are the same. A span without reasons is open, and not listed.
func (o *Closed) add(s chart.Span) {
	switch last := len(o.Spans) - 1; {
	case len(s.Reasons) == 0:
	case last >= 0 && o.Spans[last].To.Equal(s.From) && slices.Equal(o.Spans[last].Reasons, s.Reasons):
		o.Spans[last].To = s.To
	default:
		o.Spans = append(o.Spans, s)
	}
}
