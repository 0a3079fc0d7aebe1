// Package timeline says what was and is where and when: for each of the newest releases of a service, and each channel, when it
// waited, went out, ran and failed; and what that comes to over a period, in the numbers of software delivery. It reads an
// audit trail and the status, and decides nothing; what no line says it leaves out. It imports entities, the protocol, the words of explain and the chart
// that it makes.
package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/chart"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
)

// Input is what a timeline is made of.
type Input struct {
	// Lines of the audit trail, oldest first: the service's own, and pauses of what is wider.
	Lines []entities.AuditLine
	// Status of the service; of one that is gone the zero value.
	Status protocol.Status
	// Needs are the channels that a release must have succeeded in first, by channel.
	Needs map[string][]string
	Now   time.Time
	// Last is how many releases are shown, the newest; 0 is all.
	Last int
}

// Entry is a release in a channel.
type Entry struct {
	Version string       `json:"version"`
	Release string       `json:"release"` // id
	Channel string       `json:"channel"`
	Spans   []chart.Span `json:"spans"` // To is zero of what goes on
}

// Of makes the timeline: the newest release first, and of each the channels in order.
func Of(in Input) []Entry {
	m := &maker{Input: in, held: map[string][]hold{}}
	m.read()
	releases := m.releases
	if in.Last > 0 {
		releases = releases[max(0, len(releases)-in.Last):]
	}
	var out []Entry
	for _, r := range slices.Backward(releases) {
		for _, channel := range m.channels {
			if spans := m.spans(r, channel); len(spans) > 0 {
				out = append(out, Entry{Version: r.version, Release: r.id, Channel: channel, Spans: spans})
			}
		}
	}
	return out
}

// maker reads a trail.
type maker struct {
	Input
	channels []string
	releases []*release        // oldest first
	runs     []run             // what was the target of a channel, oldest first
	held     map[string][]hold // by channel; "" is the whole service
}

// release is one that the trail tells of.
type release struct {
	id, version string
	aspect      string // that it gives values to: a line of its own
	at          time.Time
	over        map[string]time.Time // channels in which it was called off, and "" for all
	returns     bool                 // somebody takes another one back by it
}

// run is a time that a channel had a release as its target.
type run struct {
	channel, version string
	line             string    // the aspect that it is of
	of               *release  // nil: none, or one that the trail does not tell of
	from, to         time.Time // to is zero while it has
	// succeeded, failed and cancelled are zero where it did not, or was not.
	succeeded, failed, cancelled time.Time

	back  bool                // it was returned to
	steps int                 // after the first, in which it went through a fleet
	taken *entities.AuditLine // that took it back
}

// hold is something that held a channel.
type hold struct {
	what     string
	key      string // of a pause or a pin: what begins it names it as what ends it does
	release  string // that it held; "" is any
	from, to time.Time
}

func (m *maker) read() {
	for _, c := range m.Status.Channels {
		m.channels = append(m.channels, c.Name)
	}
	for _, l := range m.Lines {
		if old, renamed := l.Renamed(); renamed {
			m.rename(old, l.Channel)
		}
		if l.Channel != "" && !slices.Contains(m.channels, l.Channel) {
			m.channels = append(m.channels, l.Channel)
		}
		m.line(l)
	}
}

// rename has all that a channel did so far be that of its new name. Another one may bear the old one since.
func (m *maker) rename(old, name string) {
	if !slices.ContainsFunc(m.Status.Channels, func(c protocol.ChannelStatus) bool { return c.Name == old }) {
		m.channels = slices.DeleteFunc(m.channels, func(c string) bool { return c == old })
	}
	for n := range m.runs {
		if m.runs[n].channel == old {
			m.runs[n].channel = name
		}
	}
	for _, r := range m.releases {
		if at, over := r.over[old]; over {
			delete(r.over, old)
			r.over[name] = at
		}
	}
	m.held[name] = append(m.held[name], m.held[old]...)
	delete(m.held, old)
}

// line takes in a line of the trail.
func (m *maker) line(l entities.AuditLine) {
	switch l.Kind {
	case entities.EventRelease:
		r := &release{id: l.Release, version: l.Version, at: l.At, over: map[string]time.Time{}, returns: m.unpinned(l.At)}
		if entities.NamesValues(l.Version) {
			r.aspect = entities.AspectOf(l.Version)
		}
		m.releases = append(m.releases, r)
	case entities.EventCancel:
		m.cancel(l)
	case entities.EventTarget:
		m.target(l)
	case entities.EventSucceeded:
		m.succeeded(l)
	case entities.EventFailed:
		if at := m.of(l); at != nil {
			at.failed = cmp.Or(at.failed, l.At)
		}
	case entities.EventRollback:
		m.rollback(l)
	case entities.EventWaiting:
		m.held[l.Channel] = append(m.held[l.Channel], hold{what: l.Text, release: l.Release, from: l.At})
	case entities.EventApproval:
		m.approved(l)
	case entities.EventPause, entities.EventPin:
		m.toggle(l)
	}
}

// target takes in that a release goes to a channel, or on to further instances there.
func (m *maker) target(l entities.AuditLine) {
	at, of := m.of(l), m.release(l.Release)
	if at != nil && at.of != nil && at.of == of && at.succeeded.IsZero() && at.failed.IsZero() && at.cancelled.IsZero() {
		at.steps++
		return
	}
	for at != nil { // a pin, or its end, has all go
		at.to = l.At
		at = m.of(l)
	}
	m.runs = append(m.runs, run{channel: l.Channel, line: of.line(), of: of, version: l.Version, from: l.At})
}

// succeeded takes in that what a channel is at has arrived. What had failed, and was tried again, begins anew with that.
func (m *maker) succeeded(l entities.AuditLine) {
	at, of := m.of(l), m.release(l.Release)
	switch {
	case at == nil: // unchanged there
		m.runs = append(m.runs, run{channel: l.Channel, line: of.line(), of: of, version: l.Version, from: l.At, succeeded: l.At})
	case !at.succeeded.IsZero():
	case at.failed.IsZero():
		at.succeeded = l.At
	default:
		at.to = l.At
		m.runs = append(m.runs, run{channel: at.channel, line: at.line, of: at.of, version: at.version, from: l.At, succeeded: l.At, back: at.back})
	}
}

// approved takes in a word on an approval: until the last one it was waited for.
func (m *maker) approved(l entities.AuditLine) {
	for _, channel := range m.channels {
		for n := range m.held[channel] {
			if h := &m.held[channel][n]; h.release == l.Release && h.release != "" && (l.Channel == "" || l.Channel == channel) {
				h.to = l.At
			}
		}
	}
}

// cancel takes in that a release was called off, in a channel or everywhere: what was on its way goes no further.
func (m *maker) cancel(l entities.AuditLine) {
	r := m.release(l.Release)
	if r == nil {
		return
	}
	r.over[l.Channel] = l.At
	for n := range m.runs {
		if x := &m.runs[n]; x.of == r && x.to.IsZero() && (l.Channel == "" || l.Channel == x.channel) {
			x.cancelled = cmp.Or(x.cancelled, l.At)
		}
	}
}

// unpinned tells whether a pin ended at a moment: what is released by the same act returns to what was there before.
func (m *maker) unpinned(at time.Time) bool {
	for _, holds := range m.held {
		if slices.ContainsFunc(holds, func(h hold) bool { return strings.HasPrefix(h.key, entities.EventPin) && h.to.Equal(at) }) {
			return true
		}
	}
	return false
}

// toggle takes in that a pause or a pin begins, or ends the one that there is.
func (m *maker) toggle(l entities.AuditLine) {
	key, what := l.Kind, "paused"
	if l.Kind == entities.EventPin {
		key, what = l.Kind+" "+l.Version, "pinned to "+l.Version
	}
	if l.Who != nil {
		what += " by " + l.Who.Name
	}
	for n := range m.held[l.Channel] {
		h := &m.held[l.Channel][n]
		switch {
		case !h.to.IsZero():
		case h.key == key:
			h.to = l.At
			return
		case l.Kind == entities.EventPin && strings.HasPrefix(h.key, entities.EventPin): // another pin takes its place
			h.to = l.At
		}
	}
	m.held[l.Channel] = append(m.held[l.Channel], hold{what: what + entities.Because(l.Reason), key: key, from: l.At})
}

// rollback: what was there is taken back, and what had succeeded there before is the target again.
func (m *maker) rollback(l entities.AuditLine) {
	left := m.of(l)
	if left == nil || left.version != l.Version && (left.of == nil || left.of != m.release(l.Release)) {
		return // a release may be kept under another version than its own
	}
	left.failed, left.taken = cmp.Or(left.failed, l.At), &l
	asks := false
	for _, r := range m.releases {
		if l.Who != nil && r.at.Equal(l.At) { // by the same act: it passes the gates first, and is a target of its own then
			r.returns, r.aspect, asks = true, left.line, true
		}
	}
	if asks {
		return
	}
	left.to = l.At
	m.goBack(l, left.line)
}

// goBack has what succeeded of an aspect before be there again.
func (m *maker) goBack(l entities.AuditLine, line string) {
	for _, r := range slices.Backward(m.runs) {
		if r.channel == l.Channel && r.line == line && r.version != l.Version && !r.succeeded.IsZero() && r.failed.IsZero() {
			m.runs = append(m.runs, run{channel: l.Channel, line: line, of: r.of, version: r.version, from: l.At, back: true})
			return
		}
	}
	if under := m.at(l.Channel, nil); under != nil { // the first values of an aspect: what they came to is there without any
		m.runs = append(m.runs, run{channel: l.Channel, line: line, version: under.version, from: l.At, back: true})
	}
}

// of is the run that a line of the trail is about: of the aspect of the release that it names, else what came to the channel last.
func (m *maker) of(l entities.AuditLine) *run {
	if of := m.release(l.Release); of != nil {
		return m.at(l.Channel, &of.aspect)
	}
	return m.at(l.Channel, nil)
}

// at is what came to a channel last, of one aspect if one is given, and is there.
func (m *maker) at(channel string, line *string) *run {
	for n := range slices.Backward(m.runs) {
		if x := &m.runs[n]; x.channel == channel && x.to.IsZero() && (line == nil || x.line == *line) {
			return x
		}
	}
	return nil
}

// line of a release that may be unknown.
func (r *release) line() string {
	if r == nil {
		return ""
	}
	return r.aspect
}

// release is the newest of an id: a service that was begun anew counts from one again.
func (m *maker) release(id string) *release {
	for _, r := range slices.Backward(m.releases) {
		if r.id == id {
			return r
		}
	}
	return nil
}

// spans is what a release did in a channel.
func (m *maker) spans(r *release, channel string) []chart.Span {
	var out []chart.Span
	for _, x := range m.runs {
		if x.channel != channel || x.of != r {
			continue
		}
		if len(out) == 0 && x.from.After(r.at) {
			out = append(out, m.wait(r, channel, x.from))
		}
		out = append(out, m.ran(x)...)
	}
	if len(out) > 0 {
		return out
	}
	if until, waited := m.waited(r, channel); waited {
		return []chart.Span{m.wait(r, channel, until)}
	}
	return nil
}

// ran is a run as spans.
func (m *maker) ran(x run) []chart.Span {
	settled := x.succeeded
	if settled.IsZero() || !x.failed.IsZero() && x.failed.Before(settled) {
		settled = x.failed
	}
	var out []chart.Span
	var how []string
	if x.steps > 0 {
		how = []string{fmt.Sprintf("in %d steps", x.steps+1)}
	}
	if from := x.from; settled.IsZero() || settled.After(from) {
		to := cmp.Or(settled, x.cancelled, x.to)
		if soaks := m.stableSince(x); !soaks.IsZero() && soaks.After(from) {
			out, from = append(out, chart.Span{Kind: chart.Deploys, From: from, To: soaks, Reasons: how}), soaks
			return append(out, chart.Span{Kind: chart.Soaks, From: from})
		}
		out = append(out, chart.Span{Kind: chart.Deploys, From: from, To: to, Reasons: how})
	}
	if !x.succeeded.IsZero() && settled.Equal(x.succeeded) {
		out = append(out, chart.Span{Kind: chart.Runs, From: settled, To: cmp.Or(x.failed, x.to)})
	}
	if !x.failed.IsZero() && !x.failed.Equal(x.to) {
		out = append(out, chart.Span{Kind: chart.Fails, From: x.failed, To: x.to})
	}
	return out
}

// stableSince is when the objects of a run that goes on became stable, and what follows the deployment began.
func (m *maker) stableSince(x run) time.Time {
	for _, c := range m.Status.Channels {
		if c.Name == x.channel && c.Target == x.version && x.to.IsZero() && x.succeeded.IsZero() && x.cancelled.IsZero() {
			return c.StableSince
		}
	}
	return time.Time{}
}

// waited tells until when a release waited that never came to a channel: zero while it does.
func (m *maker) waited(r *release, channel string) (until time.Time, ok bool) {
	for _, s := range m.Status.Releases {
		if s.ID == r.id {
			if s.Phases[channel] == "" {
				return until, false
			}
			if s.Phases[channel] == "pending" {
				return until, true
			}
		}
	}
	if at := cmp.Or(r.over[channel], r.over[""]); !at.IsZero() {
		return at, true
	}
	n := slices.Index(m.releases, r)
	for _, x := range m.runs { // something newer went there
		if x.channel == channel && x.of != nil && x.line == r.aspect && slices.Index(m.releases, x.of) > n {
			return x.from, true
		}
	}
	return until, false
}

// wait is a wait of a release, labelled by what held it, the longest first.
func (m *maker) wait(r *release, channel string, until time.Time) chart.Span {
	type held struct {
		what string
		long time.Duration
	}
	var all []held
	for _, h := range m.holds(r, channel) {
		from, to := later(h.from, r.at), earlier(cmp.Or(h.to, m.Now), cmp.Or(until, m.Now))
		if long := to.Sub(from); long > 0 {
			n := slices.IndexFunc(all, func(x held) bool { return x.what == h.what })
			if n < 0 {
				n, all = len(all), append(all, held{what: h.what})
			}
			all[n].long += long
		}
	}
	slices.SortStableFunc(all, func(a, b held) int { return cmp.Compare(b.long, a.long) })
	span := chart.Span{Kind: chart.Waits, From: r.at, To: until}
	for _, h := range all {
		span.Reasons = append(span.Reasons, h.what)
	}
	return span
}

// holds is all that may have held a release before a channel: what people did, what it waits for now, the channels that it had to
// succeed in, and other releases that were going out there. Of the same length the most telling comes first.
func (m *maker) holds(r *release, channel string) []hold {
	var out []hold
	for _, h := range slices.Concat(m.held[channel], m.held[""]) {
		if h.release == "" || h.release == r.id {
			out = append(out, h)
		}
	}
	for _, c := range m.Status.Channels {
		for _, k := range c.Conditions {
			if c.Name == channel && c.Desired == r.version && k.Verdict != "PASS" && k.Code != "not-asked" {
				what := k.Reason
				if !k.Plain {
					what = k.ID + entities.Because(what)
				}
				out = append(out, hold{what: what, from: cmp.Or(k.Since, m.Now)})
			}
		}
	}
	for _, first := range m.Needs[channel] {
		out = append(out, hold{what: "not through " + first + " yet", from: r.at, to: m.through(r, first)})
	}
	for _, x := range m.runs {
		if x.channel == channel && x.of != r {
			out = append(out, hold{what: x.version + " in progress there", from: x.from, to: cmp.Or(x.succeeded, x.failed, x.to)})
		}
	}
	return out
}

// through is when a release succeeded in a channel; zero: not yet.
func (m *maker) through(r *release, channel string) time.Time {
	for _, x := range m.runs {
		if x.channel == channel && x.of == r && !x.succeeded.IsZero() {
			return x.succeeded
		}
	}
	return time.Time{}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Chart draws entries from the first of their moments to now.
func Chart(title string, entries []Entry, now time.Time) chart.Chart {
	c := chart.Chart{Title: title, From: now, To: now}
	for _, e := range entries {
		c.Rows = append(c.Rows, chart.Row{Name: e.Name(), Spans: e.Spans})
		c.From = earlier(c.From, e.Spans[0].From)
	}
	c.End = now.Add(max(now.Sub(c.From)/20, time.Second)) // so that what goes on is seen to
	return c
}

// Name is what an entry is called in a chart.
func (e Entry) Name() string { return e.Version + " " + e.Channel }

// columns of text that a time axis has.
const columns = 40

// Lines draw entries as text, in a time zone: the axis, a row for each, and what the blocks stand for.
func Lines(entries []Entry, now time.Time, zone *time.Location) []string {
	c := Chart("", entries, now)
	name := func(e Entry) string { return entities.Visible(e.Name()) }
	width := 0
	for _, e := range entries {
		width = max(width, utf8.RuneCountInString(name(e)))
	}
	lines := []string{fmt.Sprintf("%*s  from %s to %s", width, "", chart.Moment(c.From, now, zone), chart.Moment(now, now, zone))}
	for n, e := range entries {
		lines = append(lines, fmt.Sprintf("%-*s  %s  %s", width, name(e), c.Line(c.Rows[n], columns), told(e, now, zone)))
	}
	return append(lines, fmt.Sprintf("%*s  %s", width, "", chart.Legend))
}

// told says how long a release waited for what, and what it does now, or did last.
func told(e Entry, now time.Time, zone *time.Location) string {
	first, last := e.Spans[0], e.Spans[len(e.Spans)-1]
	text := ""
	if long := first.To.Sub(first.From); first.Kind == chart.Waits && len(e.Spans) > 1 && long >= time.Second {
		text = "waited " + explain.Duration(long) + because(first) + "; "
	}
	if last.To.IsZero() {
		return text + string(last.Kind) + " since " + chart.Moment(last.From, now, zone) + because(last)
	}
	past := map[chart.Kind]string{chart.Waits: "waited", chart.Deploys: "went out", chart.Soaks: "soaked", chart.Runs: "ran", chart.Fails: "failed, was there"}
	return text + past[last.Kind] + " until " + chart.Moment(last.To, now, zone) + because(last)
}

// because is what held a span the longest.
func because(s chart.Span) string {
	if len(s.Reasons) == 0 {
		return ""
	}
	return entities.Because(s.Reasons[0])
}
