// Package timeline reconstructs the history of releases: for each of the newest releases of a service, and each channel, when it waited,
// deployed, ran and failed; and the metrics of software delivery over a period. It reads an audit trail and the status. It decides nothing
// and adds nothing that no audit line says. It imports entities, the protocol, the texts of explain, and the chart package for its output.
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

// Input is the input of a timeline.
type Input struct {
	// Lines of the audit trail, oldest first: those of the service, and pauses of a wider scope.
	Lines []entities.AuditEntry
	// Status of the service; the zero value if the service is gone.
	Status protocol.Status
	// Needs lists, by channel, the channels in which a release must succeed first.
	Needs map[string][]string
	Now   time.Time
	// Last is how many of the newest releases are shown; 0 is all.
	Last int
}

// Entry is a release in a channel.
type Entry struct {
	Version string       `json:"version"`
	Release string       `json:"release"` // id
	Channel string       `json:"channel"`
	Spans   []chart.Span `json:"spans"` // To is zero for a span that has not ended
}

// Of returns the timeline: the newest release first, each with its channels in order.
func Of(in Input) []Entry {
	m := &reader{Input: in, holdsByChannel: map[string][]hold{}}
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

// reader reads a trail.
type reader struct {
	Input
	channels       []string
	releases       []*release        // oldest first
	runs           []run             // the targets of channels, oldest first
	holdsByChannel map[string][]hold // by channel; "" is the whole service
}

// release is a release in the trail.
type release struct {
	id, version string
	aspect      string // the aspect whose values it sets; each aspect is an independent line
	at          time.Time
	cancelledIn map[string]ending // channels in which it was cancelled or rejected, and "" for all
	rollsBack   bool              // a user rolls back another release with it
}

// ending is when a release ended before a channel, and why.
type ending struct {
	at  time.Time
	why string
}

// run is a period in which a release was the target of a channel.
type run struct {
	channel, version string
	aspect           string    // its aspect
	release          *release  // nil: none, or a release that is not in the trail
	from, to         time.Time // to is zero until the run ends
	// succeeded, failed and cancelled are zero if that did not happen.
	succeeded, failed, cancelled time.Time

	isRollback   bool                 // the target of a rollback
	steps        int                  // further rollout steps through a fleet
	rolledBackBy *entities.AuditEntry // the line that rolled it back
}

// hold is something that held a channel.
type hold struct {
	reason   string
	key      string // of a pause or a pin: the same for its begin and its end
	release  string // the release that it held; "" is any
	from, to time.Time
}

func (m *reader) read() {
	for _, c := range m.Status.Channels {
		m.channels = append(m.channels, c.Name)
	}
	for _, l := range m.Lines {
		if old, renamed := l.RenamedFrom(); renamed {
			m.rename(old, l.Channel)
		}
		if l.Channel != "" && !slices.Contains(m.channels, l.Channel) {
			m.channels = append(m.channels, l.Channel)
		}
		m.apply(l)
	}
}

// rename moves the history of a channel to its new name. Another channel may use the old name since.
func (m *reader) rename(old, name string) {
	if !slices.ContainsFunc(m.Status.Channels, func(c protocol.ChannelStatus) bool { return c.Name == old }) {
		m.channels = slices.DeleteFunc(m.channels, func(c string) bool { return c == old })
	}
	for n := range m.runs {
		if m.runs[n].channel == old {
			m.runs[n].channel = name
		}
	}
	for _, r := range m.releases {
		if at, over := r.cancelledIn[old]; over {
			delete(r.cancelledIn, old)
			r.cancelledIn[name] = at
		}
	}
	m.holdsByChannel[name] = append(m.holdsByChannel[name], m.holdsByChannel[old]...)
	delete(m.holdsByChannel, old)
}

// apply processes a line of the trail.
func (m *reader) apply(l entities.AuditEntry) {
	switch l.Kind {
	case entities.EventRelease:
		r := &release{id: l.Release, version: l.Version, at: l.At, cancelledIn: map[string]ending{}, rollsBack: m.pinEndedAt(l.At)}
		if entities.IsValuesName(l.Version) {
			r.aspect = entities.AspectOf(l.Version)
		}
		m.releases = append(m.releases, r)
	case entities.EventCancel:
		m.cancel(l)
	case entities.EventRejection:
		if r := m.release(l.Release); r != nil { // it waited there: nothing of it runs
			r.cancelledIn[l.Channel] = ending{l.At, l.Text + by(l.Who) + entities.Because(l.Reason)}
		}
	case entities.EventTarget:
		m.target(l)
	case entities.EventSucceeded:
		m.succeeded(l)
	case entities.EventFailed:
		if at := m.runOf(l); at != nil {
			at.failed = cmp.Or(at.failed, l.At)
		}
	case entities.EventRollback:
		m.rollback(l)
	case entities.EventWaiting:
		m.holdsByChannel[l.Channel] = append(m.holdsByChannel[l.Channel], hold{reason: l.Text, release: l.Release, from: l.At})
	case entities.EventApproval:
		m.approved(l)
	case entities.EventPause, entities.EventPin:
		m.toggle(l)
	}
}

// target records that a release goes to a channel, or to further instances there.
func (m *reader) target(l entities.AuditEntry) {
	current, rel := m.runOf(l), m.release(l.Release)
	if current != nil && current.release != nil && current.release == rel && current.succeeded.IsZero() && current.failed.IsZero() && current.cancelled.IsZero() {
		current.steps++
		return
	}
	for current != nil { // a pin, or its end, ends the runs of all aspects
		current.to = l.At
		current = m.runOf(l)
	}
	m.runs = append(m.runs, run{channel: l.Channel, aspect: rel.aspectName(), release: rel, version: l.Version, from: l.At})
}

// succeeded records a success of the current target. A failed run that was retried becomes a new run.
func (m *reader) succeeded(l entities.AuditEntry) {
	current, rel := m.runOf(l), m.release(l.Release)
	switch {
	case current == nil: // unchanged there
		m.runs = append(m.runs, run{channel: l.Channel, aspect: rel.aspectName(), release: rel, version: l.Version, from: l.At, succeeded: l.At})
	case rel != nil && current.release != rel && !current.succeeded.IsZero(): // unchanged there: the objects of the run before are its own
		current.to = l.At
		m.runs = append(m.runs, run{channel: l.Channel, aspect: rel.aspect, release: rel, version: l.Version, from: l.At, succeeded: l.At})
	case !current.succeeded.IsZero():
	case current.failed.IsZero():
		current.succeeded = l.At
	default:
		current.to = l.At
		m.runs = append(m.runs, run{channel: current.channel, aspect: current.aspect, release: current.release, version: current.version, from: l.At, succeeded: l.At, isRollback: current.isRollback})
	}
}

// approved records an approval. Until the last approval the release waited for it.
func (m *reader) approved(l entities.AuditEntry) {
	for _, channel := range m.channels {
		for n := range m.holdsByChannel[channel] {
			if h := &m.holdsByChannel[channel][n]; h.release == l.Release && h.release != "" && (l.Channel == "" || l.Channel == channel) {
				h.to = l.At
			}
		}
	}
}

func by(who *entities.Who) string {
	if who == nil {
		return ""
	}
	return " by " + who.Name
}

// cancel records that a release was cancelled, in a channel or everywhere. Runs in progress end.
func (m *reader) cancel(l entities.AuditEntry) {
	r := m.release(l.Release)
	if r == nil {
		return
	}
	r.cancelledIn[l.Channel] = ending{l.At, "cancelled"}
	for n := range m.runs {
		if x := &m.runs[n]; x.release == r && x.to.IsZero() && (l.Channel == "" || l.Channel == x.channel) {
			x.cancelled = cmp.Or(x.cancelled, l.At)
		}
	}
}

// pinEndedAt reports whether a pin ended at a time. A release of the same action returns to the version before the pin.
func (m *reader) pinEndedAt(at time.Time) bool {
	for _, holds := range m.holdsByChannel {
		if slices.ContainsFunc(holds, func(h hold) bool { return strings.HasPrefix(h.key, entities.EventPin) && h.to.Equal(at) }) {
			return true
		}
	}
	return false
}

// toggle records the begin of a pause or a pin, or the end of the current one.
func (m *reader) toggle(l entities.AuditEntry) {
	key, reason := l.Kind, "paused"
	if l.Kind == entities.EventPin {
		key, reason = l.Kind+" "+l.Version, "pinned to "+l.Version
	}
	reason += by(l.Who)
	for n := range m.holdsByChannel[l.Channel] {
		h := &m.holdsByChannel[l.Channel][n]
		switch {
		case !h.to.IsZero():
		case h.key == key:
			h.to = l.At
			return
		case l.Kind == entities.EventPin && strings.HasPrefix(h.key, entities.EventPin): // replaced by another pin
			h.to = l.At
		}
	}
	m.holdsByChannel[l.Channel] = append(m.holdsByChannel[l.Channel], hold{reason: reason + entities.Because(l.Reason), key: key, from: l.At})
}

// rollback records a rollback. The last successful version of the channel becomes the target again.
func (m *reader) rollback(l entities.AuditEntry) {
	current := m.runOf(l)
	if current == nil || current.version != l.Version && (current.release == nil || current.release != m.release(l.Release)) {
		return // a release may keep a version other than its own
	}
	current.failed, current.rolledBackBy = cmp.Or(current.failed, l.At), &l
	viaGates := false
	for _, r := range m.releases {
		if l.Who != nil && r.at.Equal(l.At) { // a release of the same action passes the gates first, and becomes a target of its own
			r.rollsBack, r.aspect, viaGates = true, current.aspect, true
		}
	}
	if viaGates {
		return
	}
	current.to = l.At
	m.startRollbackRun(l, current.aspect)
}

// startRollbackRun starts a run of the last successful version of an aspect.
func (m *reader) startRollbackRun(l entities.AuditEntry, aspect string) {
	for _, r := range slices.Backward(m.runs) {
		if r.channel == l.Channel && r.aspect == aspect && r.version != l.Version && !r.succeeded.IsZero() && r.failed.IsZero() {
			m.runs = append(m.runs, run{channel: l.Channel, aspect: aspect, release: r.release, version: r.version, from: l.At, isRollback: true})
			return
		}
	}
	// After a rollback of the first values of an aspect, their base version continues without values.
	if base := m.currentRun(l.Channel, nil); base != nil {
		m.runs = append(m.runs, run{channel: l.Channel, aspect: aspect, version: base.version, from: l.At, isRollback: true})
	}
}

// runOf returns the run that a line is about: of the aspect of its release, or else the latest run of the channel.
func (m *reader) runOf(l entities.AuditEntry) *run {
	if rel := m.release(l.Release); rel != nil {
		return m.currentRun(l.Channel, &rel.aspect)
	}
	return m.currentRun(l.Channel, nil)
}

// currentRun returns the latest run of a channel that has not ended, of one aspect if given.
func (m *reader) currentRun(channel string, aspect *string) *run {
	for n := range slices.Backward(m.runs) {
		if x := &m.runs[n]; x.channel == channel && x.to.IsZero() && (aspect == nil || x.aspect == *aspect) {
			return x
		}
	}
	return nil
}

// aspectName returns the aspect of a release. The release may be nil.
func (r *release) aspectName() string {
	if r == nil {
		return ""
	}
	return r.aspect
}

// release returns the newest release with an id. A recreated service numbers its releases from one again.
func (m *reader) release(id string) *release {
	for _, r := range slices.Backward(m.releases) {
		if r.id == id {
			return r
		}
	}
	return nil
}

// spans returns the spans of a release in a channel.
func (m *reader) spans(r *release, channel string) []chart.Span {
	var out []chart.Span
	for _, x := range m.runs {
		if x.channel != channel || x.release != r {
			continue
		}
		if len(out) == 0 && x.from.After(r.at) {
			out = append(out, m.waitSpan(r, channel, x.from))
		}
		out = append(out, m.runSpans(x)...)
	}
	if len(out) > 0 {
		return out
	}
	until, why, waited := m.waitedUntil(r, channel)
	if !waited {
		return nil
	}
	span := m.waitSpan(r, channel, until)
	if why != "" {
		span.Reasons = append([]string{why}, span.Reasons...)
	}
	return []chart.Span{span}
}

// runSpans returns the spans of a run.
func (m *reader) runSpans(x run) []chart.Span {
	settledAt := x.succeeded
	if settledAt.IsZero() || !x.failed.IsZero() && x.failed.Before(settledAt) {
		settledAt = x.failed
	}
	var out []chart.Span
	var steps []string
	if x.steps > 0 {
		steps = []string{fmt.Sprintf("in %d steps", x.steps+1)}
	}
	if from := x.from; settledAt.IsZero() || settledAt.After(from) {
		to := cmp.Or(settledAt, x.cancelled, x.to)
		if stableSince := m.stableSince(x); !stableSince.IsZero() && stableSince.After(from) {
			out, from = append(out, chart.Span{Kind: chart.Deploys, From: from, To: stableSince, Reasons: steps}), stableSince
			return append(out, chart.Span{Kind: chart.Soaks, From: from})
		}
		out = append(out, chart.Span{Kind: chart.Deploys, From: from, To: to, Reasons: steps})
	}
	if !x.succeeded.IsZero() && settledAt.Equal(x.succeeded) {
		out = append(out, chart.Span{Kind: chart.Runs, From: settledAt, To: cmp.Or(x.failed, x.to)})
	}
	if !x.failed.IsZero() {
		failed := chart.Span{Kind: chart.Fails, From: x.failed, To: x.to}
		if back := x.rolledBackBy; back != nil && back.Reason != "" {
			failed.Reasons = []string{back.Reason}
		}
		out = append(out, failed)
	}
	return out
}

// stableSince returns when the objects of a current run became stable and the phase after the deployment began.
func (m *reader) stableSince(x run) time.Time {
	for _, c := range m.Status.Channels {
		if c.Name == x.channel && c.Target == x.version && x.to.IsZero() && x.succeeded.IsZero() && x.cancelled.IsZero() {
			return c.StableSince
		}
	}
	return time.Time{}
}

// waitedUntil returns until when a release waited that never reached a channel, and why no longer: zero while it waits.
func (m *reader) waitedUntil(r *release, channel string) (until time.Time, why string, ok bool) {
	for _, s := range m.Status.Releases {
		if s.ID == r.id {
			if s.Phases[channel] == "" {
				return until, "", false
			}
			if s.Phases[channel] == "pending" {
				return until, "", true
			}
		}
	}
	if end := cmp.Or(r.cancelledIn[channel], r.cancelledIn[""]); !end.at.IsZero() {
		return end.at, end.why, true
	}
	n := slices.Index(m.releases, r)
	for _, x := range m.runs { // a newer release went there
		if x.channel == channel && x.release != nil && x.aspect == r.aspect && slices.Index(m.releases, x.release) > n {
			return x.from, "skipped, " + x.version + " went there", true
		}
	}
	return until, "", false
}

// waitSpan returns the span of a wait. Its reasons are sorted by duration, the longest first.
func (m *reader) waitSpan(r *release, channel string, until time.Time) chart.Span {
	type held struct {
		what string
		long time.Duration
	}
	var all []held
	for _, h := range m.possibleHolds(r, channel) {
		from, to := later(h.from, r.at), earlier(cmp.Or(h.to, m.Now), cmp.Or(until, m.Now))
		if duration := to.Sub(from); duration > 0 {
			n := slices.IndexFunc(all, func(x held) bool { return x.what == h.reason })
			if n < 0 {
				n, all = len(all), append(all, held{what: h.reason})
			}
			all[n].long += duration
		}
	}
	slices.SortStableFunc(all, func(a, b held) int { return cmp.Compare(b.long, a.long) })
	span := chart.Span{Kind: chart.Waits, From: r.at, To: until}
	for _, h := range all {
		span.Reasons = append(span.Reasons, h.what)
	}
	return span
}

// possibleHolds returns everything that may have held a release before a channel: actions of users, current conditions, channels that come
// first, and other releases in progress there. Of reasons with the same duration the most informative comes first.
func (m *reader) possibleHolds(r *release, channel string) []hold {
	var out []hold
	for _, h := range slices.Concat(m.holdsByChannel[channel], m.holdsByChannel[""]) {
		if h.release == "" || h.release == r.id {
			out = append(out, h)
		}
	}
	for _, c := range m.Status.Channels {
		for _, k := range c.Conditions {
			if c.Name == channel && c.Desired == r.version && k.Verdict != "PASS" && k.Code != "not-asked" {
				reason := k.Reason
				if !k.Plain {
					reason = k.ID + entities.Because(reason)
				}
				out = append(out, hold{reason: reason, from: cmp.Or(k.Since, m.Now)})
			}
		}
	}
	for _, first := range m.Needs[channel] {
		out = append(out, hold{reason: "not succeeded in " + first + " yet", from: r.at, to: m.succeededIn(r, first)})
	}
	for _, x := range m.runs {
		if x.channel == channel && x.release != r {
			out = append(out, hold{reason: x.version + " in progress in this channel", from: x.from, to: cmp.Or(x.succeeded, x.failed, x.to)})
		}
	}
	return out
}

// succeededIn returns when a release succeeded in a channel; zero if it has not.
func (m *reader) succeededIn(r *release, channel string) time.Time {
	for _, x := range m.runs {
		if x.channel == channel && x.release == r && !x.succeeded.IsZero() {
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

// Chart draws entries from their first time to now.
func Chart(title string, entries []Entry, now time.Time) chart.Chart {
	c := chart.Chart{Title: title, From: now, To: now}
	for _, e := range entries {
		c.Rows = append(c.Rows, chart.Row{Name: e.Name(), Spans: e.Spans})
		c.From = earlier(c.From, e.Spans[0].From)
	}
	c.End = now.Add(max(now.Sub(c.From)/20, time.Second)) // space for spans that have not ended
	return c
}

// Name is the name of an entry in a chart.
func (e Entry) Name() string { return e.Version + " " + e.Channel }

// columns is the width of the time axis in text.
const columns = 40

// Lines draws entries as text, in a time zone: the axis, a row per entry, and the legend.
func Lines(entries []Entry, now time.Time, zone *time.Location) []string {
	c := Chart("", entries, now)
	name := func(e Entry) string { return entities.Visible(e.Name()) }
	width := 0
	for _, e := range entries {
		width = max(width, utf8.RuneCountInString(name(e)))
	}
	lines := []string{fmt.Sprintf("%*s  from %s to %s", width, "", chart.Moment(c.From, now, zone), chart.Moment(now, now, zone))}
	for n, e := range entries {
		lines = append(lines, fmt.Sprintf("%-*s  %s  %s", width, name(e), c.TextRow(c.Rows[n], columns), summary(e, now, zone)))
	}
	return append(lines, fmt.Sprintf("%*s  %s", width, "", chart.Legend))
}

// summary says how long a release waited and for what, and its current or last activity.
func summary(e Entry, now time.Time, zone *time.Location) string {
	first, last := e.Spans[0], e.Spans[len(e.Spans)-1]
	text := ""
	if waited := first.To.Sub(first.From); first.Kind == chart.Waits && len(e.Spans) > 1 && waited >= time.Second {
		text = "waited " + explain.Duration(waited) + firstReason(first) + "; "
	}
	if last.To.IsZero() {
		return text + string(last.Kind) + " since " + chart.Moment(last.From, now, zone) + firstReason(last)
	}
	if last.Kind == chart.Fails && last.To.Equal(last.From) {
		return text + "failed and was taken back at once, " + chart.Moment(last.To, now, zone) + firstReason(last)
	}
	pastTense := map[chart.Kind]string{chart.Waits: "waited", chart.Deploys: "deployed", chart.Soaks: "soaked", chart.Runs: "ran", chart.Fails: "failed, in place"}
	return text + pastTense[last.Kind] + " until " + chart.Moment(last.To, now, zone) + firstReason(last)
}

// firstReason returns the longest reason of a span.
func firstReason(s chart.Span) string {
	if len(s.Reasons) == 0 {
		return ""
	}
	return entities.Because(s.Reasons[0])
}
