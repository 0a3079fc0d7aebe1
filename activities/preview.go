package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

// Limits of a preview: bytes of a value, fields of one object, and bytes of a server's message.
const (
	previewValue   = 300
	previewFields  = 40
	previewMessage = 1000
)

// Preview queries one runtime for the changes of an apply or a removal. Errors are part of the answer. It returns an error only if the
// worker stops or the request was cancelled.
func (a *Activities) Preview(ctx context.Context, r protocol.PreviewRequest) (protocol.PreviewAnswer, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go heartbeats(ctx, nil)
	one := a.preview(ctx, r)
	if ctx.Err() != nil {
		return protocol.PreviewAnswer{}, ctx.Err()
	}
	one.Service, one.Channel, one.Removal = r.Item.Service, r.Item.Channel, r.Item.Removal
	return protocol.PackPreview([]protocol.ItemPreview{one})
}

func (a *Activities) preview(ctx context.Context, r protocol.PreviewRequest) protocol.ItemPreview {
	if r.Item.Capabilities {
		return a.capabilities(ctx, r)
	}
	line, in, err := a.preparePreview(ctx, r)
	if err != nil {
		return unknown(protocol.PreviewNotReady, err)
	}
	plan := planOf(line, r.Item.Removal)
	if plan == nil {
		return cannotPlan(line, r.Item.Removal)
	}
	changes, err := planWithin(ctx, plan, in, r)
	var reading *entities.ReadingError
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return cannotPlan(line, r.Item.Removal)
	case errors.Is(err, context.DeadlineExceeded):
		return unknown(protocol.PreviewTimeout, fmt.Errorf("runtime %s did not answer within %s", r.Item.Runtime, r.Timeout))
	case errors.As(err, &reading):
		return unknown(reading.Code, errors.New(reading.Message))
	case err != nil:
		return unknown(protocol.PreviewFailed, err)
	}
	return changed(changes)
}

// capabilities queries the cluster of a runtime for the capabilities that charts see.
func (a *Activities) capabilities(ctx context.Context, r protocol.PreviewRequest) (one protocol.ItemPreview) {
	line, err := a.connect(ctx, r.Item.Runtime, r.Item.RuntimeDigest)
	if err == nil {
		err = a.mayUse(ctx, line, &runtimes.Instance{Owner: runtimes.Owner{Application: r.Application}}, 0)
	}
	if err != nil {
		return unknown(protocol.PreviewNotReady, a.elsewhere(err))
	}
	capturer, ok := line.Runtime.(runtimes.Capturer)
	if !ok {
		return unknown(protocol.PreviewNoPlanner, fmt.Errorf("runtime %s (%s) is not a Kubernetes cluster", line.definition.Name, line.definition.Kind))
	}
	_, err = planWithin(ctx, func(ctx context.Context, _ runtimes.Instance) ([]runtimes.Change, error) {
		version, apis, err := capturer.Capabilities(ctx)
		if err == nil {
			one.Capabilities = &protocol.Capabilities{KubeVersion: version, APIs: apis}
		}
		return nil, err
	}, runtimes.Instance{}, r)
	if err != nil {
		return unknown(protocol.PreviewFailed, err)
	}
	return one
}

// planOf returns the runtime's function for previews; nil: it has none.
func planOf(line connection, removal bool) func(context.Context, runtimes.Instance) ([]runtimes.Change, error) {
	if removal {
		if planner, ok := line.Runtime.(runtimes.RemovalPlanner); ok {
			return planner.PlanRemoval
		}
		return nil
	}
	if planner, ok := line.Runtime.(runtimes.Planner); ok {
		return planner.Plan
	}
	return nil
}

func (a *Activities) preparePreview(ctx context.Context, r protocol.PreviewRequest) (connection, runtimes.Instance, error) {
	line, err := a.connect(ctx, r.Item.Runtime, r.Item.RuntimeDigest)
	if err != nil {
		return line, runtimes.Instance{}, a.elsewhere(err)
	}
	owner := runtimes.Owner{Application: r.Application, Service: r.Item.Service, ID: entities.Only(r.Item.Channel)}
	if r.Item.Instance != "" {
		owner.ID.Name = r.Item.Instance
	}
	in, err := a.instance(ctx, runtimes.Instance{
		Owner: owner, ServiceID: r.Item.ServiceID, FullVersion: r.Item.FullVersion,
		Key: fmt.Sprintf("%s/%s/preview", owner.Key(), r.Item.FullVersion),
	}, r.Item.Payload, true)
	if err == nil {
		err = a.mayUse(ctx, line, &in, 0)
	}
	if err == nil && !r.Item.Removal {
		err = a.decrypt(&in)
	}
	return line, in, a.elsewhere(err)
}

// elsewhere adds the store's URL to an error about missing data, because the caller may have written to another store.
func (a *Activities) elsewhere(err error) error {
	if store.IsNotFound(err) {
		return fmt.Errorf("%w; this worker reads the store %s", err, a.Store.URL())
	}
	return err
}

// planWithin limits the duration of the call and abandons a runtime that ignores its deadline.
func planWithin(ctx context.Context, call func(context.Context, runtimes.Instance) ([]runtimes.Change, error), in runtimes.Instance, r protocol.PreviewRequest) ([]runtimes.Change, error) {
	type plan struct {
		changes []runtimes.Change
		err     error
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	done := make(chan plan, 1)
	go func() {
		changes, err := call(ctx, in)
		done <- plan{changes, err}
	}()
	select {
	case p := <-done:
		return p.changes, p.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func unknown(code string, err error) protocol.ItemPreview {
	return protocol.ItemPreview{Code: code, Message: runtimes.Clip(err.Error(), previewMessage)}
}

func cannotPlan(line connection, removal bool) protocol.ItemPreview {
	what := "changes"
	if removal {
		what = "a removal"
	}
	return unknown(protocol.PreviewNoPlanner, fmt.Errorf("runtime %s (%s) cannot preview %s", line.definition.Name, line.definition.Kind, what))
}

// changed limits and counts the changes that a runtime reported.
func changed(changes []runtimes.Change) protocol.ItemPreview {
	var one protocol.ItemPreview
	for _, c := range changes {
		one.Totals = one.Totals.Add(totals(c))
		out := protocol.PreviewChange{
			Action: string(c.Action), Type: c.Type, Name: c.Name, Namespace: c.Namespace,
			Message: runtimes.Clip(c.Message, previewMessage),
		}
		for _, f := range c.Fields[:min(len(c.Fields), previewFields)] {
			out.Fields = append(out.Fields, protocol.PreviewField{
				Path: runtimes.Clip(f.Path, previewValue), Old: runtimes.Clip(f.Old, previewValue), New: runtimes.Clip(f.New, previewValue),
			})
		}
		out.More = len(c.Fields) - len(out.Fields)
		for _, conflict := range c.Conflicts[:min(len(c.Conflicts), previewFields)] {
			out.Conflicts = append(out.Conflicts, runtimes.Clip(conflict, previewValue))
		}
		one.Changes = append(one.Changes, out)
	}
	return one
}

func totals(c runtimes.Change) protocol.PreviewTotals {
	switch {
	case c.Action == runtimes.ActionPrune, c.Action == runtimes.ActionRemove:
		return protocol.PreviewTotals{Removed: 1}
	case c.Action == runtimes.ActionOrphan, c.Action == runtimes.ActionKeep:
		return protocol.PreviewTotals{Orphaned: 1}
	case len(c.Conflicts) > 0:
		return protocol.PreviewTotals{Changed: 1, Conflicts: 1}
	case c.Action == runtimes.ActionRefuse:
		return protocol.PreviewTotals{Changed: 1, Refused: 1}
	}
	return protocol.PreviewTotals{Changed: 1}
}
