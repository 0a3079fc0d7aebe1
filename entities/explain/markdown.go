package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
)

// MarkdownLimit is the most bytes that Markdown returns: it travels with every query of the
// Temporal UI.
const MarkdownLimit = 8 << 10

const markdownHead = "| channel | current | target | status | since | reason |\n|---|---|---|---|---|---|\n"

// Markdown is what the Temporal UI shows as the workflow's current details: a bold headline and a
// table. Times are UTC and absolute, because nothing renders it again while time passes; a day is
// named when it is not that of the newest thing in the status. When it would grow beyond
// MarkdownLimit, channels that converged are counted instead of listed, then the rest is cut.
func Markdown(s protocol.Status) string {
	if text := markdown(s, s.Channels, 0); len(text) <= MarkdownLimit {
		return text
	}
	var moving []protocol.ChannelStatus
	for _, c := range s.Channels {
		if c.Status != converged {
			moving = append(moving, c)
		}
	}
	for listed := len(moving); ; listed-- {
		text := markdown(s, moving[:listed], len(moving)-listed)
		if len(text) <= MarkdownLimit || listed == 0 {
			return text
		}
	}
}

// markdown lists the given channels; the others are counted, of which cut did not converge.
func markdown(s protocol.Status, listed []protocol.ChannelStatus, cut int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s** · incarnation %d\n", markdownText(or(s.Headline, name(s)), 300), s.Incarnation)
	if len(listed) > 0 {
		b.WriteString(markdownHead)
	}
	ref := newest(s)
	for _, c := range listed {
		b.WriteString(markdownRow(c, ref))
	}
	if converged := len(s.Channels) - len(listed) - cut; converged > 0 {
		fmt.Fprintf(&b, "\n%s CONVERGED, not listed\n", plural(converged, "more channel"))
	}
	if cut > 0 {
		fmt.Fprintf(&b, "\n%s not CONVERGED, not listed: see `converge status %s`\n", plural(cut, "more channel"), name(s))
	}
	return b.String()
}

func markdownRow(c protocol.ChannelStatus, ref time.Time) string {
	when := ""
	if !c.Since.IsZero() {
		when = clock(c.Since, ref, false)
	}
	cells := []string{c.Name, c.Current, c.Target, c.Status, when, waitsFor(withoutNext(c), ref)}
	for i := range cells {
		cells[i] = markdownText(cells[i], 80)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// withoutNext drops what only makes sense beside a running clock.
func withoutNext(c protocol.ChannelStatus) protocol.ChannelStatus {
	c.NextChange = time.Time{}
	return c
}

// newest is the latest time that the status holds: the day that others are told apart from.
func newest(s protocol.Status) time.Time {
	latest := s.ObservedAt
	later := func(t time.Time) {
		if t.After(latest) {
			latest = t
		}
	}
	for _, c := range s.Channels {
		later(c.Since)
		later(c.ObservedAt)
	}
	for _, j := range s.Journal {
		later(j.At)
	}
	return latest.UTC()
}

// markdownText keeps a value inside its cell.
func markdownText(text string, limit int) string {
	return strings.NewReplacer("|", "\\|", "<", "&lt;").Replace(oneLine(text, limit))
}
