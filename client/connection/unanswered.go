package connection

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/worker/deployment"
)

const describeTimeout = 5 * time.Second

// NextWithoutAnswer says what a person can do when no worker answers: start one, or wait if workers poll and have more work than they or the
// Temporal server can do.
func NextWithoutAnswer(c client.Client) string {
	ctx, cancel := context.WithTimeout(context.Background(), describeTimeout)
	defer cancel()
	queue, err := c.DescribeTaskQueue(ctx, protocol.TaskQueue, enumspb.TASK_QUEUE_TYPE_WORKFLOW)
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*serviceerror.DeadlineExceeded)) {
		return "the Temporal server answers slowly; try again later"
	}
	var last time.Time
	for _, p := range queue.GetPollers() {
		if at := p.GetLastAccessTime().AsTime(); at.After(last) {
			last = at
		}
	}
	since := time.Since(last)
	if since > deployment.DefaultPollTimeout { // or the server does not say
		return "start one with: converge worker"
	}
	return fmt.Sprintf("the last one polled %s ago: it has ended since, or it or the Temporal server has more work than it can do; try again later, or start another one with: converge worker",
		since.Round(time.Second))
}
