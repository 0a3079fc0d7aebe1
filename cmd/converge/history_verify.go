package main

import (
	"context"
	"fmt"

	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/trail"
)

// runVerify compares all stored lines of a trail with the end that its workflow, or its newest checkpoint, states.
func (o *historyOptions) runVerify(ctx context.Context) error {
	at, _, _, err := o.trail.Open(ctx, o.f.stores(o.store))
	if err != nil {
		return err
	}
	defer at.Close() // only read
	report, err := o.trail.Verify(ctx, at)
	if err != nil {
		return fmt.Errorf("history of %s: %w", o.trail.Name, err)
	}
	if err := o.printReport(report); err != nil {
		return err
	}
	if len(report.Problems) > 0 {
		return exit(outcome.Error)
	}
	return nil
}

func (o *historyOptions) printReport(r trail.Report) error {
	if o.f.structured() {
		return o.f.screen().Document(map[string]any{"schema": "converge.history-verified/v1", "of": o.trail.ID, "report": r})
	}
	text := fmt.Sprintf("%s: %s", o.trail.Name, count(r.Lines, "line"))
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
