package preview

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities/protocol"
)

const (
	previewTimeout = 5 * time.Minute  // of one workflow
	pickupTimeout  = 15 * time.Second // for a worker to start it, unless a Planner has its own
	cancelTimeout  = 5 * time.Second  // to cancel a workflow without a caller
	workflows      = 4                // in parallel
	writers        = 16               // writes to the store, or queries, in parallel
)

// preview queries all items, in as many workflows as needed, and returns the answers in the same order. When ctx ends, the workflows are
// cancelled.
func (p *Planner) preview(ctx context.Context, application, service, what string, items []protocol.PreviewItem) ([]protocol.ItemPreview, error) {
	parts := slices.Collect(slices.Chunk(items, protocol.MaxPreviewItems))
	answers := make([][]protocol.ItemPreview, len(parts))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workflows)
	for n, part := range parts {
		g.Go(func() (err error) {
			answers[n], err = p.run(ctx, options(application, service, what, p.By), protocol.PreviewInput{Application: application, Items: part})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(answers...), nil
}

func options(application, service, what, by string) client.StartWorkflowOptions {
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails (crypto/rand)
	return client.StartWorkflowOptions{
		ID: protocol.PreviewID(application, service, hex.EncodeToString(id)), TaskQueue: protocol.TaskQueue,
		WorkflowExecutionTimeout: previewTimeout,
		StaticSummary:            what,
		StaticDetails:            fmt.Sprintf("What %s would change; requested by %s. It changes nothing.", what, by),
		Memo:                     map[string]any{"by": by},
	}
}

// run starts one workflow and waits for its end.
func (p *Planner) run(ctx context.Context, o client.StartWorkflowOptions, in protocol.PreviewInput) ([]protocol.ItemPreview, error) {
	run, err := p.Client.ExecuteWorkflow(ctx, o, protocol.PreviewWorkflow, in)
	if ctx.Err() != nil { // it may have started in spite of the error
		p.cancel(o.ID)
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", o.ID, err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watcher := time.AfterFunc(cmp.Or(p.Pickup, pickupTimeout), func() {
		if !p.isStarted(ctx, o.ID) {
			stop(fmt.Errorf("%w; %s", connection.ErrNoWorker, connection.NextWithoutAnswer(p.Client)))
		}
	})
	defer watcher.Stop()
	var answer protocol.PreviewAnswer
	err = run.Get(ctx, &answer)
	if ctx.Err() != nil {
		p.cancel(o.ID)
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, runError(o.ID, err)
	}
	return answer.Previews()
}

// isStarted reports whether a worker started the workflow; it is true if that is not known.
func (p *Planner) isStarted(ctx context.Context, id string) bool {
	about, err := p.Client.DescribeWorkflowExecution(ctx, id, "")
	return err != nil || about.GetPendingWorkflowTask().GetState() != enumspb.PENDING_WORKFLOW_TASK_STATE_SCHEDULED
}

// cancel cancels a workflow without a caller. If that fails, it ends on its own a little later.
func (p *Planner) cancel(id string) {
	ctx, stop := context.WithTimeout(context.Background(), cancelTimeout)
	defer stop()
	_ = p.Client.CancelWorkflow(ctx, id, "")
}

// runError explains why a workflow did not answer.
func runError(id string, err error) error {
	var timeout *temporal.TimeoutError
	var application *temporal.ApplicationError
	switch {
	case errors.As(err, &timeout):
		return fmt.Errorf("%s did not end within %s; see it in the Temporal UI", id, previewTimeout)
	case temporal.IsCanceledError(err):
		return fmt.Errorf("%s was cancelled", id)
	case errors.As(err, &application):
		return fmt.Errorf("%s: %s", id, application.Message())
	}
	return fmt.Errorf("%s: %w", id, err)
}
