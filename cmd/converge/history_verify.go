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
	report, err := o.verifyTrail(ctx, at)
	if err != nil {
		return fmt.Errorf("history of %s: %w", o.name(), err)
	}
	if err := o.printReport(report); err != nil {
		return err
	}
	if len(report.Problems) > 0 {
		return exit(exitError)
	}
	return nil
}

func (o *historyOptions) printReport(r trail.Report) error {
	if o.f.structured() {
		return o.f.screen().Document(map[string]any{"schema": "converge.history-verified/v1", "of": o.id(), "report": r})
	}
	text := fmt.Sprintf("%s: %s", o.name(), count(r.Lines, "line"))
	if r.Forked > 0 {
		text += fmt.Sprintf(", %d of a terminated run, outside the chain", r.Forked)
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

// verifyAttempts limits how often a growing trail is read.
const verifyAttempts = 5

// verifyTrail reads a trail between two queries of its workflow. It repeats this until no line was added in between.
func (o *historyOptions) verifyTrail(ctx context.Context, at *store.Store) (trail.Report, error) {
	application, service := protocol.TrailOf(o.id())
	before, _, err := o.newestEntries(ctx, o.id())
	if err != nil {
		return trail.Report{}, err
	}
	for attempt := 1; ; attempt++ {
		lines, damaged, err := at.RawAudit(ctx, application, service)
		if err != nil {
			return trail.Report{}, err
		}
		after, running, err := o.newestEntries(ctx, o.id())
		if err != nil {
			return trail.Report{}, err
		}
		if running && after.Last != nil && (before.Last == nil || *after.Last != *before.Last) && attempt < verifyAttempts {
			before = after
			continue
		}
		end, pending, err := o.trailEnd(ctx, at, after, running)
		if err != nil {
			return trail.Report{}, err
		}
		for _, l := range slices.Concat(before.Entries, after.Entries, pending) {
			lines = append(lines, entities.StoredEntry{AuditEntry: l, Hash: l.Hash()})
		}
		report := trail.Verify(lines, end)
		for _, d := range damaged {
			report.Problems = append(report.Problems, trail.Problem{Kind: trail.Changed, Text: d.Error()})
		}
		return report, nil
	}
}

// trailEnd returns the end of the trail according to the workflow, or according to the newest checkpoint if the workflow is gone. It also
// returns the lines that the workflow has and the store lacks.
func (o *historyOptions) trailEnd(ctx context.Context, at *store.Store, answer protocol.HistoryAnswer, running bool) (trail.End, []entities.AuditEntry, error) {
	if running && answer.Last != nil {
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
		Lines int64                 `json:"auditLines"`
		Head  string                `json:"auditHead"`
		Audit []entities.AuditEntry `json:"audit"`
	}
	if err := c.State.Unpack(&last); err != nil {
		return trail.End{}, nil, fmt.Errorf("the newest checkpoint: %w", err)
	}
	return trail.End{TrailEnd: entities.TrailEnd{N: last.Lines, Hash: last.Head}}, last.Audit, nil
}
