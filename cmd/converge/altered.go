package main

import (
	"context"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/worker/deployment"
)

// This file reports what operators did to workflows and activities in Temporal. The status of a service whose observation is paused looks
// as if nothing had changed, so it is an error in addition to the status.

// maxAltered is how many workflows are described at most for the status of several services.
const maxAltered = 20

// altered returns what operators did to the workflow of a service. An error is ignored: the rest of the output does not depend on it.
func (f *Factory) altered(ctx context.Context, n connection.ServiceName) []deployment.Alteration {
	api, err := f.client(ctx)
	if err != nil {
		return nil
	}
	all, _ := api.Altered(ctx, n.ID())
	return all
}

// alteredIn returns what operators did to the workflows of a target. Errors are ignored, as above.
func (f *Factory) alteredIn(ctx context.Context, t target) (all []deployment.Alteration) {
	if !t.all {
		return f.altered(ctx, t.ServiceName)
	}
	if api, err := f.client(ctx); err == nil {
		ids, _ := api.Paused(ctx, t.Application)
		for _, id := range ids[:min(len(ids), maxAltered)] {
			one, _ := api.Altered(ctx, id)
			all = append(all, one...)
		}
	}
	return all
}
