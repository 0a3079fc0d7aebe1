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
	go sendHeartbeats(ctx, nil)
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
	conn, in, err := a.preparePreview(ctx, r)
	if err != nil {
		return failedPreview(protocol.PreviewNotReady, err)
	}
	plan := previewFunc(conn, r.Item.Removal)
	if plan == nil {
		return noPlannerPreview(conn, r.Item.Removal)
	}
	changes, err := callPlanner(ctx, plan, in, r)
	var reading *entities.ReadingError
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return noPlannerPreview(conn, r.Item.Removal)
	case errors.Is(err, context.DeadlineExceeded):
		return failedPreview(protocol.PreviewTimeout, fmt.Errorf("runtime %s did not answer within %s", r.Item.Runtime, r.Timeout))
	case errors.As(err, &reading):
		return failedPreview(reading.Code, errors.New(reading.Message))
	case err != nil:
		return failedPreview(protocol.PreviewFailed, err)
	}
	return previewOf(changes)
}

// capabilities queries the cluster of a runtime for the capabilities that charts see.
func (a *Activities) capabilities(ctx context.Context, r protocol.PreviewRequest) (one protocol.ItemPreview) {
	conn, err := a.connect(ctx, r.Item.Runtime, r.Item.RuntimeDigest)
	if err == nil {
		err = a.checkRuntimeAccess(ctx, conn, &runtimes.Request{Owner: runtimes.Owner{Application: r.Application}}, 0)
	}
	if err != nil {
		return failedPreview(protocol.PreviewNotReady, a.withStoreURL(err))
	}
	capturer, ok := conn.Runtime.(runtimes.Capturer)
	if !ok {
		return failedPreview(protocol.PreviewNoPlanner, fmt.Errorf("runtime %s (%s) is not a Kubernetes cluster", conn.definition.Name, conn.definition.Kind))
	}
	_, err = callPlanner(ctx, func(ctx context.Context, _ runtimes.Request) ([]runtimes.Change, error) {
		version, apis, err := capturer.Capabilities(ctx)
		if err == nil {
			one.Capabilities = &protocol.Capabilities{KubeVersion: version, APIs: apis}
		}
		return nil, err
	}, runtimes.Request{}, r)
	if err != nil {
		return failedPreview(protocol.PreviewFailed, err)
	}
	return one
}

// previewFunc returns the runtime's function for previews; nil: it has none.
func previewFunc(conn connection, removal bool) func(context.Context, runtimes.Request) ([]runtimes.Change, error) {
	if removal {
		if planner, ok := conn.Runtime.(runtimes.RemovalPlanner); ok {
			return planner.PlanRemoval
		}
		return nil
	}
	if planner, ok := conn.Runtime.(runtimes.Planner); ok {
		return planner.Plan
	}
	return nil
}

func (a *Activities) preparePreview(ctx context.Context, r protocol.PreviewRequest) (connection, runtimes.Request, error) {
	conn, err := a.connect(ctx, r.Item.Runtime, r.Item.RuntimeDigest)
	if err != nil {
		return conn, runtimes.Request{}, a.withStoreURL(err)
	}
	owner := runtimes.Owner{Application: r.Application, Service: r.Item.Service, ID: entities.Only(r.Item.Channel)}
	if r.Item.Instance != "" {
		owner.ID.Name = r.Item.Instance
	}
	in, err := a.instance(ctx, runtimes.Request{
		Owner: owner, ServiceID: r.Item.ServiceID, FullVersion: r.Item.FullVersion,
		Key: fmt.Sprintf("%s/%s/preview", owner.Key(), r.Item.FullVersion),
	}, r.Item.Payload, true)
	in.Siblings = a.siblings(owner, r.Item.Runtime, r.Item.Incarnation)
	if err == nil {
		err = a.checkRuntimeAccess(ctx, conn, &in, 0)
	}
	if err == nil && !r.Item.Removal {
		err = a.decrypt(&in)
	}
	return conn, in, a.withStoreURL(err)
}

// withStoreURL adds the store's URL to an error about missing data, because the caller may have written to another store.
func (a *Activities) withStoreURL(err error) error {
	if store.IsNotFound(err) {
		return fmt.Errorf("%w; this worker reads the store %s", err, a.Store.URL())
	}
	return err
}

// callPlanner limits the duration of the call and abandons a runtime that ignores its deadline.
func callPlanner(ctx context.Context, call func(context.Context, runtimes.Request) ([]runtimes.Change, error), in runtimes.Request, r protocol.PreviewRequest) ([]runtimes.Change, error) {
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

func failedPreview(code string, err error) protocol.ItemPreview {
	return protocol.ItemPreview{Code: code, Message: clipError(err)}
}

func noPlannerPreview(conn connection, removal bool) protocol.ItemPreview {
	what := "changes"
	if removal {
		what = "a removal"
	}
	return failedPreview(protocol.PreviewNoPlanner, fmt.Errorf("runtime %s (%s) cannot preview %s", conn.definition.Name, conn.definition.Kind, what))
}

// previewOf limits and counts the changes that a runtime reported.
func previewOf(changes []runtimes.Change) protocol.ItemPreview {
	var one protocol.ItemPreview
	for _, c := range changes {
		one.Totals = one.Totals.Add(totals(c))
		out := protocol.PreviewChange{
			Action: string(c.Action), Type: c.Type, Name: c.Name, Namespace: c.Namespace,
			Message: runtimes.ClipMessage(c.Message, previewMessage),
		}
		if c.Replaces != nil {
			out.Replaces = &protocol.PreviewReplacement{What: c.Replaces.What, Why: runtimes.Clip(c.Replaces.Why, previewMessage)}
		}
		for _, f := range c.Fields[:min(len(c.Fields), previewFields)] {
			out.Fields = append(out.Fields, protocol.PreviewField{
				Path: runtimes.Clip(f.Path, previewValue), Old: runtimes.Clip(f.Old, previewValue), New: runtimes.Clip(f.New, previewValue),
			})
		}
		out.More = len(c.Fields) - len(out.Fields)
		for _, conflict := range c.Conflicts[:min(len(c.Conflicts), previewFields)] {
			out.Conflicts = append(out.Conflicts, runtimes.ClipMessage(conflict, previewValue))
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
