package workflows

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/protocol"
)

func (r *runtime) status() (protocol.RuntimeStatus, error) {
	s := r.state
	return protocol.RuntimeStatus{
		Schema: "converge.runtime/v1", Runtime: r.name, Limit: s.Limit, Pause: s.Pause, Untold: s.Untold,
		Held: s.Held, Waiting: s.Waiting, Refused: s.Refused, Audit: s.Audit, Problem: s.Problem,
	}, nil
}

// show keeps what the Temporal UI shows up to date.
func (r *runtime) show() {
	if text := r.details(); text != r.shown {
		workflow.SetCurrentDetails(r.ctx, text)
		r.shown = text
	}
}

// maxRows bounds the table of the Temporal UI.
const maxRows = 20

func (r *runtime) details() string {
	s := r.state
	var b strings.Builder
	switch {
	case s.Pause != nil:
		fmt.Fprintf(&b, "**paused by %s** since %s", s.Pause.By, s.Pause.At.UTC().Format(time.DateTime))
		if s.Pause.Reason != "" {
			b.WriteString(": " + inCell(s.Pause.Reason))
		}
	case s.Limit == 0:
		b.WriteString("**open**: nobody has asked for a lease")
	default:
		fmt.Fprintf(&b, "**%d of %d places taken**, %d waiting", len(s.Held), s.Limit, len(s.Waiting))
	}
	if s.Untold {
		b.WriteString("\n\ntelling services")
	}
	if s.Problem != "" {
		b.WriteString("\n\n" + s.Problem)
	}
	if len(s.Held)+len(s.Waiting) == 0 {
		return b.String()
	}
	b.WriteString("\n\n| what | | since | |\n|---|---|---|---|\n")
	rows := 0
	row := func(h protocol.HeldLease, word string) {
		if rows++; rows > maxRows {
			return
		}
		note := ""
		switch {
		case h.Asks > 0:
			note = fmt.Sprintf("asked %d times whether it still holds it", h.Asks)
		case h.Rollback:
			note = "rollback"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", inCell(named(h)), word, h.Since.UTC().Format(time.TimeOnly), note)
	}
	for _, h := range s.Held {
		row(h, "applies")
	}
	for _, h := range s.Waiting {
		row(h, "waits")
	}
	if rows > maxRows {
		fmt.Fprintf(&b, "\nand %d more", rows-maxRows)
	}
	return b.String()
}

// inCell keeps text from ending a cell of a Markdown table.
func inCell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "\r", " ").Replace(text)
}
