package main

import (
	"context"

	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file adds what an application does as a whole to the status of its services.

// problemOf returns the current problem of an application, for example that it could not notify its services of a new incarnation. It
// is additional output, like plansOf.
func (f *Factory) problemOf(ctx context.Context, application string) []string {
	if application == "" {
		return nil
	}
	s, err := f.applicationStatus(ctx, application)
	if err != nil || s.Problem == "" {
		return nil
	}
	return []string{"PROBLEM " + application + ": " + s.Problem}
}

// plansOf returns the progress of the running plans of an application, or of all. It is additional output, so it leaves out plans that
// do not answer.
func (f *Factory) plansOf(ctx context.Context, application string) (lines []string) {
	api, err := f.client(ctx)
	if err != nil {
		return nil
	}
	ids, err := api.Plans(ctx, application)
	if err != nil {
		return nil
	}
	for _, id := range ids {
		var s protocol.PlanStatus
		if api.Query(ctx, id, protocol.QueryStatus, &s) == nil {
			lines = append(append(lines, explain.Plan(s)), explain.PlanProblems(s)...)
		}
	}
	return lines
}
