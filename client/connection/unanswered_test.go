package connection

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/worker/deployment"
)

type polledBy struct {
	client.Client
	last time.Time
	err  error
}

func (p polledBy) DescribeTaskQueue(_ context.Context, queue string, _ enumspb.TaskQueueType) (*workflowservice.DescribeTaskQueueResponse, error) {
	if queue != protocol.TaskQueue || p.err != nil {
		return nil, p.err
	}
	return &workflowservice.DescribeTaskQueueResponse{Pollers: []*taskqueuepb.PollerInfo{
		{LastAccessTime: timestamppb.New(p.last.Add(-time.Minute))}, {LastAccessTime: timestamppb.New(p.last)},
	}}, nil
}

func TestNextWithoutAnswer(t *testing.T) {
	require.Equal(t, "start one with: converge worker", NextWithoutAnswer(polledBy{}))
	require.Equal(t, "start one with: converge worker", NextWithoutAnswer(polledBy{last: time.Now().Add(-2 * deployment.DefaultPollTimeout)}))
	require.Equal(t, "start one with: converge worker", NextWithoutAnswer(polledBy{err: errors.New("unknown")}))
	require.Equal(t, "the Temporal server answers slowly; try again later", NextWithoutAnswer(polledBy{err: context.DeadlineExceeded}))
	require.Equal(t, "the last one polled 12s ago: it has ended since, or it or the Temporal server has more work than it can do; try again later, or start another one with: converge worker",
		NextWithoutAnswer(polledBy{last: time.Now().Add(-12 * time.Second)}))
}
