package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/trail"
	"github.com/converge-engine/converge/intent/store"
)

// runVerify compares all stored lines of a trail with the end that its workflow, or its newest checkpoint, states.
func (o *historyOptions) runVerify(ctx context.Context) error {
	at, _, _, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer at.Close() // only read
	report, err := o.verified(ctx, at)
	if err != nil {
		return fmt.Errorf("history of %s: %w", o.name(), err)
	}
	if err := o.say(report); err != nil {
		return err
	}
	if len(report.Problems) > 0 {
		return exit(exitError)
	}
	return nil
}

func (o *historyOptions) say(r trail.Report) error {
	if o.f.json() {
		return o.f.screen().JSON(map[string]any{"schema": "converge.history-verified/v1", "of": o.id(), "report": r})
	}
	text := fmt.Sprintf("%s: %s", o.name(), count(r.Lines, "line"))
	if r.Beside > 0 {
		text += fmt.Sprintf(", %d of a terminated run, outside the chain", r.Beside)
	}
	if r.Earlier > 0 {
		text += fmt.Sprintf(", %d from before line 1, which cannot be verified", r.Earlier)
	}
	switch {
	case len(r.Problems) > 0:
		text += fmt.Sprintf("; %s", count(len(r.Problems), "problem"))
	case r.End > 0:
		text += fmt.Sprintf("; verified up to line %d", r.End)
	default:
		text += "; consistent, but their end cannot be verified"
	}
	lines := []string{text}
	for _, p := range r.Problems {
		lines = append(lines, p.Text)
	}
	return o.f.screen().Lines(lines...)
}

// looks limits how often a growing trail is read.
const looks = 5

// verified reads a trail between two queries of its workflow. It repeats this until no line was added in between.
func (o *historyOptions) verified(ctx context.Context, at *store.Store) (trail.Report, error) {
	application, service := protocol.TrailOf(o.id())
	before, _, err := o.newest(ctx, o.id())
	if err != nil {
		return trail.Report{}, err
	}
	for look := 1; ; look++ {
		lines, damaged, err := at.KeptAudit(ctx, application, service)
		if err != nil {
			return trail.Report{}, err
		}
		after, runs, err := o.newest(ctx, o.id())
		if err != nil {
			return trail.Report{}, err
		}
		if runs && after.Last != nil && (before.Last == nil || *after.Last != *before.Last) && look < looks {
			before = after
			continue
		}
		end, carried, err := o.end(ctx, at, after, runs)
		if err != nil {
			return trail.Report{}, err
		}
		for _, l := range slices.Concat(before.Lines, after.Lines, carried) {
			lines = append(lines, entities.KeptLine{AuditLine: l, Hash: l.Hash()})
		}
		report := trail.Verify(lines, end)
		for _, d := range damaged {
			report.Problems = append(report.Problems, trail.Problem{What: trail.Changed, Text: d.Error()})
		}
		return report, nil
	}
}

// end returns the end of the trail according to the workflow, or according to the newest checkpoint if the workflow is gone. It also
// returns the lines that the workflow has and the store lacks.
func (o *historyOptions) end(ctx context.Context, at *store.Store, answer protocol.HistoryAnswer, runs bool) (trail.End, []entities.AuditLine, error) {
	if runs && answer.Last != nil {
		return trail.End{TrailEnd: *answer.Last, Exact: true}, nil, nil
	}
	c, err := at.Checkpoint(ctx, o.id())
	if store.IsNotFound(err) {
		return trail.End{}, nil, nil
	}
	if err != nil {
		return trail.End{}, nil, fmt.Errorf("the newest checkpoint: %w", err)
	}
	var last struct {
		Lines int64                `json:"auditLines"`
		Head  string               `json:"auditHead"`
		Audit []entities.AuditLine `json:"audit"`
	}
	if err := c.State.Unpack(&last); err != nil {
		return trail.End{}, nil, fmt.Errorf("the newest checkpoint: %w", err)
	}
	return trail.End{TrailEnd: entities.TrailEnd{N: last.Lines, Hash: last.Head}}, last.Audit, nil
}
