package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// MarkdownLimit is the maximum size in bytes of Markdown: it is part of every query of the Temporal UI.
const MarkdownLimit = 8 << 10

// gap ends every cell: the Temporal UI shows tables without space between columns, and drops ordinary spaces.
const gap = "\u00a0\u00a0"

const markdownHead = "| channel" + gap + " | current" + gap + " | target" + gap + " | status" + gap + " | since" + gap +
	" | reason |\n|---|---|---|---|---|---|\n"

// Markdown is the text that the Temporal UI shows as the workflow's current details: a bold headline, the approvals that can be given now, a
// table, reasons that are too long for it, the releases in flight, and objects with links. Times are absolute and in UTC, because the text is not rendered again as time passes. The day is shown if it differs
// from the day of the newest time in the status. Above MarkdownLimit, converged channels are counted instead of listed. Then the rest is
// cut.
func Markdown(s protocol.Status) string {
	ref := newest(s)
	head := fmt.Sprintf("**%s** · incarnation %d\n", markdownText(cmp.Or(s.Headline, name(s)), 300), s.Incarnation)
	if s.Board != "" {
		head += fmt.Sprintf("\n[Its page on the board](%s)\n", s.Board)
	}
	if approvals := markdownApprovals(s); approvals != "" {
		head += "\n" + approvals + "\n"
	}
	if rows, ok := markdownRows(s.Channels, ref, MarkdownLimit-len(head)); ok {
		text := head + rows.String()
		text += prefixed("\n", markdownReasons(s.Channels, ref, min(maxReasonsBytes, MarkdownLimit-len(text)-1)))
		text += prefixed("\n", markdownReleases(s, ref, min(maxReleasesBytes, MarkdownLimit-len(text)-1)))
		return text + prefixed("\n", markdownObjects(s.Channels, min(maxObjectsBytes, MarkdownLimit-len(text)-1)))
	}
	var unconverged []protocol.ChannelStatus
	for _, c := range s.Channels {
		if c.Status != converged {
			unconverged = append(unconverged, c)
		}
	}
	convergedCount := len(s.Channels) - len(unconverged)
	rows, _ := markdownRows(unconverged, ref, MarkdownLimit-len(head)-footReserve)
	text := head + rows.String()
	if convergedCount > 0 {
		text += fmt.Sprintf("\n%s CONVERGED, not listed\n", plural(convergedCount, "more channel"))
	}
	if cut := len(unconverged) - rows.listed; cut > 0 {
		text += fmt.Sprintf("\n%s not CONVERGED, not listed: see `converge status %s`\n", plural(cut, "more channel"), name(s))
	}
	return text
}

// maxApprovals limits how many approvals are listed above the table.
const maxApprovals = 5

// markdownApprovals lists the approvals that can be given now, each with the command.
func markdownApprovals(s protocol.Status) (text string) {
	all := OpenApprovals([]protocol.Status{s})
	for n, a := range all {
		if n == maxApprovals {
			return text + fmt.Sprintf("- %s: see `converge approvals %s`\n", plural(len(all)-n, "more approval"), name(s))
		}
		text += fmt.Sprintf("- **%s** of %s: %s", markdownText(a.Topic, 80), markdownText(a.Version, 80), markdownText(a.Reason, 160))
		text += prefixed("; ", markdownText(a.Command, 240)) + "\n"
	}
	return text
}

// maxReasonsBytes limits the bytes for reasons below the table.
const maxReasonsBytes = 2 << 10

// markdownReasons lists the reasons that are too long for a cell of the table, as far as they fit.
func markdownReasons(channels []protocol.ChannelStatus, ref time.Time, limit int) (text string) {
	for _, c := range channels {
		reason := reasonText(c, ref)
		if utf8.RuneCountInString(reason) <= cellLimit {
			continue
		}
		line := fmt.Sprintf("- %s: %s\n", markdownText(c.Name, cellLimit), markdownText(reason, 400))
		if len(text)+len(line) > limit {
			return text
		}
		text += line
	}
	return text
}

// reasonText is the reason for the status of a channel, without times that need a running clock.
func reasonText(c protocol.ChannelStatus, ref time.Time) string {
	c.NextChange, c.ApplyEnds = time.Time{}, time.Time{}
	return WaitsFor(c, ref)
}

// cellLimit is how many characters of a text a table shows.
const cellLimit = 80

// maxReleasesBytes limits the bytes for releases in flight. Of very many the newest are shown.
const maxReleasesBytes = 2 << 10

// markdownReleases is the matrix of releases in flight, as far as it fits.
func markdownReleases(s protocol.Status, ref time.Time, limit int) string {
	all := matrices([]protocol.Status{s}, func(protocol.Status) string { return "" }, ref)
	if len(all) == 0 {
		return ""
	}
	m := all[0]
	text := markdownCells(m.Header) + "|" + strings.Repeat("---|", len(m.Header)) + "\n"
	for n, row := range m.Rows {
		line, more := markdownCells(row), ""
		if remaining := len(m.Rows) - n; remaining > 1 {
			more = fmt.Sprintf("\n%d more not listed: see `converge status %s`\n", remaining, name(s))
		}
		if len(text)+len(line)+len(more) > limit {
			if n == 0 {
				return ""
			}
			return text + more
		}
		text += line
	}
	return text
}

// markdownCells formats a row of a table.
func markdownCells(cells []string) string {
	shown := make([]string, len(cells))
	for i, cell := range cells {
		shown[i] = markdownText(cell, cellLimit)
	}
	return "| " + strings.Join(shown, gap+" | ") + " |\n"
}

// maxObjectsBytes limits the bytes for objects.
const maxObjectsBytes = 3 << 10

// footReserve is reserved for the lines that count omitted entries.
const footReserve = 400

// rows is a table, as far as it fits.
type rows struct {
	strings.Builder
	listed int
}

// markdownRows writes the channels in order up to limit bytes, and reports whether all fit.
func markdownRows(channels []protocol.ChannelStatus, ref time.Time, limit int) (*rows, bool) {
	var b rows
	for _, c := range channels {
		row := markdownRow(c, ref)
		if b.listed == 0 {
			row = markdownHead + row
		}
		if b.Len()+len(row) > limit {
			return &b, false
		}
		b.WriteString(row)
		b.listed++
	}
	return &b, true
}

func markdownRow(c protocol.ChannelStatus, ref time.Time) string {
	when := ""
	if !c.Since.IsZero() {
		when = clock(c.Since, ref, false)
	}
	return markdownCells([]string{c.Name, c.Current, c.Target, c.Status, when, reasonText(c, ref)})
}

// newest returns the latest time in the status. Other times show their day if it differs from the day of this one.
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

// markdownEscapes escapes characters that begin Markdown syntax: a cell, HTML, a link or an image, emphasis. Code spans only look
// different, and an underscore inside a word has no effect.
var markdownEscapes = strings.NewReplacer(
	"\\", "\\\\", "|", "\\|", "<", "&lt;", "&", "&amp;", "[", "\\[", "]", "\\]", "*", "\\*", "~", "\\~",
)

// markdownText formats a value for a cell.
func markdownText(text string, limit int) string { return Plain(oneLine(text, limit)) }

// Plain returns text that the Temporal UI shows literally, on one line: without Markdown and without invisible characters.
func Plain(text string) string { return markdownEscapes.Replace(entities.Visible(text)) }
