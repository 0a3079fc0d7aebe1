package read

import (
	"context"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/trail"
	"github.com/converge-engine/converge/intent/store"
)

// verifyAttempts limits how often a growing trail is read.
const verifyAttempts = 5

// Verify compares all stored lines of a trail with the end that its workflow, or its newest checkpoint, states. It reads a trail between two queries of its workflow. It repeats this until no line was added in between.
func (t Trail) Verify(ctx context.Context, at *store.Store) (trail.Report, error) {
	application, service := protocol.TrailOf(t.ID)
	before, _, err := t.newest(ctx, t.ID)
	if err != nil {
		return trail.Report{}, err
	}
	for attempt := 1; ; attempt++ {
		lines, damaged, err := at.RawAudit(ctx, application, service)
		if err != nil {
			return trail.Report{}, err
		}
		after, running, err := t.newest(ctx, t.ID)
		if err != nil {
			return trail.Report{}, err
		}
		if running && after.Last != nil && (before.Last == nil || *after.Last != *before.Last) && attempt < verifyAttempts {
			before = after
			continue
		}
		end, pending, err := t.end(ctx, at, after, running)
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

// end returns the end of the trail according to the workflow, or according to the newest checkpoint if the workflow is gone. It also
// returns the lines that the workflow has and the store lacks.
func (t Trail) end(ctx context.Context, at *store.Store, answer protocol.HistoryAnswer, running bool) (trail.End, []entities.AuditEntry, error) {
	if running && answer.Last != nil {
		return trail.End{TrailEnd: *answer.Last, Exact: true}, nil, nil
	}
	c, err := at.Checkpoint(ctx, t.ID)
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
