package board

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/timeline"
)

// historyContent is the content of the page of a history, newest first.
type historyContent struct {
	Tabs     tabs
	Entries  []read.HistoryEntry
	Kinds    []string
	Channels []string
	Kind     string
	Channel  string
	Before   string // query of the page with older entries; empty: there are none
	Problems []string
	Verified []string // what the check of the chain says
	Broken   bool
	Others   bool // there are entries of other trails
}

// history shows who did what, when and why, and whether the stored trail is whole.
func (b *board) history(r *http.Request) (page, error) {
	n, err := serviceOf(r)
	if err != nil {
		return page{}, err
	}
	q := r.URL.Query()
	c := historyContent{Tabs: tabs{n, "history"}, Kind: q.Get("kind"), Channel: q.Get("channel"), Kinds: entities.EventKinds()}
	t := read.ServiceTrail(r.Context(), b.Calls, n)
	t.Note = func(format string, args ...any) { c.Problems = append(c.Problems, fmt.Sprintf(format, args...)) }
	all, err := t.Entries(r.Context(), b.Stores, c.Channel == "")
	if err != nil {
		return page{}, err
	}
	for _, e := range all {
		if e.Channel != "" && !slices.Contains(c.Channels, e.Channel) {
			c.Channels = append(c.Channels, e.Channel)
		}
	}
	all = slices.DeleteFunc(all, func(e read.HistoryEntry) bool {
		return c.Channel != "" && e.Channel != c.Channel || c.Kind != "" && e.Kind != c.Kind
	})
	// Entries are counted from the oldest, so that a page keeps its entries when new ones come.
	end := len(all)
	if given, err := strconv.Atoi(q.Get("before")); err == nil {
		end = min(max(given, 0), len(all))
	}
	begin := max(0, end-pageLength)
	c.Entries = slices.Clone(all[begin:end])
	slices.Reverse(c.Entries)
	c.Others = slices.ContainsFunc(all, func(e read.HistoryEntry) bool { return e.Of != "" })
	if begin > 0 {
		q.Set("before", strconv.Itoa(begin))
		c.Before = "?" + q.Encode()
	}
	if q.Get("verify") != "" {
		c.Verified, c.Broken = b.verify(r.Context(), t)
	}
	return page{Name: "history", Title: "History of " + n.String(), Nav: "services", Watch: []string{n.String()}, Content: c}, nil
}

// verify checks the stored trail.
func (b *board) verify(ctx context.Context, t read.Trail) (text []string, broken bool) {
	at, _, _, err := t.Open(ctx, b.Stores)
	if err != nil {
		return []string{"The trail cannot be checked: " + err.Error()}, true
	}
	defer at.Close() // only read
	report, err := t.Verify(ctx, at)
	if err != nil {
		return []string{"The trail cannot be checked: " + err.Error()}, true
	}
	return report.Text(), len(report.Problems) > 0
}

// timelineContent is the content of the page of a timeline.
type timelineContent struct {
	Tabs     tabs
	Chart    template.HTML // made by package chart, which escapes texts
	Lines    []string
	Delivery []deliveryRow
	Problem  string
}

// deliveryRow are the metrics of software delivery of a channel.
type deliveryRow struct{ Channel, Deployed, PerWeek, LeadTime, FailureRate, Recovered string }

const (
	timelineReleases = 10
	deliveryPeriod   = 30 * 24 * time.Hour
)

// deliveryOf returns the metrics of the last channels of a service.
func deliveryOf(in timeline.Input) (rows []deliveryRow) {
	deliveries, _ := timeline.Report(in, in.Now.Add(-deliveryPeriod))
	for _, d := range deliveries {
		cells := d.Cells()
		rows = append(rows, deliveryRow{Channel: d.Channel, Deployed: cells[3], PerWeek: cells[4], LeadTime: cells[5], FailureRate: cells[7], Recovered: cells[9]})
	}
	return rows
}

// timeline shows when each release waited, was deployed, ran and failed in each channel.
func (b *board) timeline(r *http.Request) (page, error) {
	n, err := serviceOf(r)
	if err != nil {
		return page{}, err
	}
	now := b.Now()
	input, problem, err := read.ServiceTrail(r.Context(), b.Calls, n).Timeline(r.Context(), b.Stores, now)
	if err != nil {
		return page{}, err
	}
	c := timelineContent{Tabs: tabs{n, "timeline"}, Problem: problem, Delivery: deliveryOf(input)}
	input.Last = timelineReleases
	if entries := timeline.Of(input); len(entries) > 0 {
		drawn := timeline.Chart("", entries, now)
		c.Chart = template.HTML(drawn.Figure("Timeline of "+n.String(), time.UTC)) //nolint:gosec // escaped
		c.Lines = timeline.Lines(entries, now, time.UTC)
	}
	return page{Name: "timeline", Title: "Timeline of " + n.String(), Nav: "services", Watch: []string{n.String()}, Content: c}, nil
}

// logsContent is the content of the page of logs, newest first.
type logsContent struct {
	Tabs     tabs
	Entries  []read.Log
	Running  []string
	Channel  string
	Channels []string
}

const shownLogs = 20

// logs shows the output of the last commands.
func (b *board) logs(r *http.Request) (page, error) {
	n, err := serviceOf(r)
	if err != nil {
		return page{}, err
	}
	s, err := read.Status(r.Context(), b.Calls, n)
	if err != nil {
		return page{}, err
	}
	c := logsContent{Tabs: tabs{n, "logs"}, Channel: r.URL.Query().Get("channel")}
	for _, each := range s.Channels {
		c.Channels = append(c.Channels, each.Name)
	}
	if c.Channel != "" && !slices.Contains(c.Channels, c.Channel) {
		return page{}, &pageError{http.StatusNotFound, fmt.Sprintf("%s has no release channel %s.", n, c.Channel)}
	}
	at, err := b.Stores.Open(r.Context(), s.Store)
	if err != nil {
		return page{}, err
	}
	defer at.Close() // only read
	entries, err := read.Logs(r.Context(), at, s, c.Channel, map[string]bool{})
	if err != nil {
		return page{}, err
	}
	c.Entries = entries[max(0, len(entries)-shownLogs):]
	slices.Reverse(c.Entries)
	running, _ := b.Calls.Progress(r.Context(), n.ID()) // the rest does not depend on it
	c.Running = explain.Running(running, c.Channel, b.Now())
	return page{Name: "logs", Title: "Logs of " + n.String(), Nav: "services", Watch: []string{n.String()}, Content: c}, nil
}
