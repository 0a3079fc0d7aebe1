package board

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/forecast"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/chart"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/simulate"
	"github.com/converge-engine/converge/entities/state"
)

// calendarContent is the content of the page of a calendar: when releases may enter, and what a release would do.
type calendarContent struct {
	Tabs   tabs
	Chart  template.HTML // made by package chart, which escapes texts
	Lines  []string
	WhatIf whatIf
}

// whatIf is a simulated release.
type whatIf struct {
	Version, At string
	Approved    bool
	Refused     string
	Chart       template.HTML // made by package chart, which escapes texts
	Lines       []string
	Assumed     string
}

const (
	// calendarPatience is how long a page is computed: rules that change at every minute take longer.
	calendarPatience = 3 * time.Second
	maxCalendars     = 2 // at once
	calendarSpan     = 4 * 7 * 24 * time.Hour
	simulatedTime    = 90 * 24 * time.Hour
	// atLayout is that of an input of type datetime-local.
	atLayout = "2006-01-02T15:04"
)

// calendar shows when the rules let releases enter in the weeks to come, and simulates a release. It starts nothing.
func (b *board) calendar(r *http.Request) (page, error) {
	n, err := serviceOf(r)
	if err != nil {
		return page{}, err
	}
	now := b.Now().UTC().Truncate(time.Minute)
	q := r.URL.Query()
	c := calendarContent{Tabs: tabs{n, "calendar"}}
	c.WhatIf = whatIf{Version: strings.TrimSpace(q.Get("version")), At: q.Get("at"), Approved: q.Get("approved") != ""}
	s, checks, err := b.rulesOf(r.Context(), n)
	if err != nil {
		return page{}, err
	}
	select {
	case b.calendars <- struct{}{}:
		defer func() { <-b.calendars }()
	case <-time.After(calendarPatience):
		return page{}, &pageError{http.StatusServiceUnavailable, "Others look at calendars now; load the page again."}
	case <-r.Context().Done():
		return page{}, r.Context().Err()
	}
	ctx, cancel := context.WithTimeout(r.Context(), calendarPatience)
	defer cancel()
	if s.Spec != nil {
		c.addClosed(n, checks.Calendar(ctx, s.Spec, now, now.Add(calendarSpan)), now)
	}
	switch {
	case c.WhatIf.Version != "":
		if err := simulateRelease(ctx, s, checks, &c.WhatIf, now); err != nil {
			c.WhatIf.Refused = err.Error()
		}
	case q.Has("version"):
		c.WhatIf.Refused = "Which version? Write its name."
	}
	return page{Name: "calendar", Title: "Calendar of " + n.String(), Nav: "services", Still: true, Content: c}, nil
}

// rulesOf returns the state of a service, and its checks.
func (b *board) rulesOf(ctx context.Context, n connection.ServiceName) (*state.State, *forecast.Checks, error) {
	var s state.State
	if err := read.Query(ctx, b.Calls, n, protocol.QueryState, &s); err != nil {
		return nil, nil, err
	}
	checks, err := forecast.Read(ctx, b.Stores, &s)
	return &s, checks, err
}

func (c *calendarContent) addClosed(n connection.ServiceName, all []forecast.Closed, from time.Time) {
	if len(all) == 0 {
		return
	}
	to := from.Add(calendarSpan)
	drawn := chart.Chart{Title: "When no release enters", From: from, To: to, End: to}
	for _, channel := range all {
		drawn.Rows = append(drawn.Rows, chart.Row{Name: channel.Channel, Spans: channel.Spans})
		for _, s := range channel.Spans {
			c.Lines = append(c.Lines, fmt.Sprintf("%s is closed from %s to %s: %s", channel.Channel,
				chart.Moment(s.From, from, time.UTC), chart.Moment(s.To, from, time.UTC), strings.Join(s.Reasons, "; ")))
		}
		if len(channel.Spans) == 0 {
			c.Lines = append(c.Lines, channel.Channel+" is open all the time")
		}
		if channel.Until.Before(to) {
			c.Lines = append(c.Lines, fmt.Sprintf("%s after %s is not shown: its times change too often to be listed", channel.Channel, chart.Moment(channel.Until, from, time.UTC)))
		}
	}
	c.Chart = template.HTML(drawn.Figure("When no release enters the channels of "+n.String(), time.UTC)) //nolint:gosec // escaped
}

// simulateRelease runs a release in virtual time, as converge simulate does.
func simulateRelease(ctx context.Context, s *state.State, checks *forecast.Checks, w *whatIf, now time.Time) error {
	if s.Spec == nil {
		return fmt.Errorf("%s has no configuration yet", s.Title())
	}
	at := now
	if w.At != "" {
		var err error
		if at, err = time.Parse(atLayout, w.At); err != nil {
			return fmt.Errorf("%q is no time; expected one such as 2026-12-23T16:00", entities.Clip(w.At, 40))
		}
	}
	if at.Before(now) {
		return errors.New("that time is over; expected one from now on")
	}
	t, err := simulate.Run(simulate.Input{
		State: s, Version: w.Version, At: at, Judge: checks.Judge, Until: simulatedTime, Approve: w.Approved, Stop: func() bool { return ctx.Err() != nil },
	})
	if err != nil {
		return err
	}
	w.Chart = template.HTML(t.Figure(time.UTC)) //nolint:gosec // escaped
	w.Lines, w.Assumed = t.Table(time.UTC), strings.Join(checks.Assumed, ", ")
	if ctx.Err() != nil {
		w.Lines = append(w.Lines, fmt.Sprintf("The rest was not simulated: it takes longer than %s.", calendarPatience))
	}
	return nil
}
