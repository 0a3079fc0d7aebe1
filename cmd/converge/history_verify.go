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
	lines := r.Text()
	lines[0] = o.trail.Name + ": " + lines[0]
	return o.f.screen().Lines(lines...)
}
