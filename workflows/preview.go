package workflows

import (
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

const (
	previewTimeout = time.Minute      // for a runtime to answer for one instance
	previewPickup  = 15 * time.Second // for a worker to take it
)

// Preview queries the runtimes for what applies would change, for each instance separately and in parallel. It changes nothing and ends on
// its own. A person waits for it at a terminal, so every failure for an instance is returned soon as the answer for that instance, and does
// not delay others.
func Preview(ctx workflow.Context, in protocol.PreviewInput) (protocol.PreviewAnswer, error) {
	workflow.SetCurrentDetails(ctx, fmt.Sprintf("previewing %d instances", len(in.Items)))
	futures := make([]workflow.Future, 0, len(in.Items))
	for _, item := range in.Items {
		futures = append(futures, preview(ctx, in.Application, item))
	}
	var all []protocol.ItemPreview
	for n, item := range in.Items {
		var answer protocol.PreviewAnswer
		err := futures[n].Get(ctx, &answer)
		if temporal.IsCanceledError(err) {
			return protocol.PreviewAnswer{}, err
		}
		one, err := previewOf(item, answer, err)
		if err != nil {
			return protocol.PreviewAnswer{}, err
		}
		all = append(all, one)
	}
	workflow.SetCurrentDetails(ctx, previewDetails(all))
	return protocol.PackPreview(all)
}

// preview queries one instance. It is tried on a second worker if the first is lost; there is no other retry.
func preview(ctx workflow.Context, application string, item protocol.PreviewItem) workflow.Future {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              taskQueueOf(item.Runtime, entities.RuntimeSpec{Remote: item.Remote}),
		ScheduleToStartTimeout: previewPickup,
		StartToCloseTimeout:    previewTimeout + margin,
		HeartbeatTimeout:       heartbeat,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, MaximumAttempts: 2},
		Summary:                previewSummary(item),
	})
	return workflow.ExecuteActivity(ctx, protocol.ActivityPreview, protocol.PreviewRequest{
		Application: application, Item: item, Timeout: previewTimeout,
	})
}

func previewSummary(item protocol.PreviewItem) string {
	if item.Capabilities {
		return "capabilities of the cluster of " + item.Runtime
	}
	if item.Removal {
		return fmt.Sprintf("preview the removal of %s in %s", item.FullVersion, item.Channel)
	}
	return fmt.Sprintf("preview the changes of %s in %s", item.FullVersion, item.Channel)
}

// previewOf is the answer for one instance; a failed activity gives an answer too.
func previewOf(item protocol.PreviewItem, answer protocol.PreviewAnswer, failed error) (protocol.ItemPreview, error) {
	one := protocol.ItemPreview{Service: item.Service, Channel: item.Channel, Removal: item.Removal}
	var timeout *temporal.TimeoutError
	switch {
	case errors.As(failed, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START:
		queue := taskQueueOf(item.Runtime, entities.RuntimeSpec{Remote: item.Remote})
		one.Code, one.Message = protocol.PreviewNoWorker, fmt.Sprintf("no worker polls %s", queue)
		if item.Remote {
			one.Message += "; start one with: converge worker --runtime " + item.Runtime
		}
		return one, nil
	case errors.As(failed, &timeout):
		one.Code, one.Message = protocol.PreviewTimeout, "the worker was lost, or did not answer in time"
		return one, nil
	case failed != nil:
		one.Code, one.Message = protocol.PreviewFailed, rootCause(failed)
		return one, nil
	}
	items, err := answer.Previews()
	if err != nil || len(items) != 1 {
		return one, temporal.NewNonRetryableApplicationError(
			fmt.Sprintf("answer about %s in %s: %d items, %v", item.Service, item.Channel, len(items), err), "Malformed", err)
	}
	return items[0], nil
}

// previewDetails is one line for the Temporal UI.
func previewDetails(all []protocol.ItemPreview) string {
	var totals protocol.PreviewTotals
	unknown := 0
	for _, i := range all {
		totals = totals.Add(i.Totals)
		if i.Code != "" {
			unknown++
		}
	}
	return fmt.Sprintf("%d objects would change, %d would be removed; %d instances could not be previewed", totals.Changed, totals.Removed, unknown)
}
