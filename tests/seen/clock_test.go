package seen

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/deployment"
	"github.com/converge-engine/converge/worker/embedded"
	"github.com/converge-engine/converge/worker/monitor"
)

// apart is how far the clock of a worker is ahead of the server's. A process cannot have a clock of its own, so the times of the server in
// the tasks that the worker gets are moved instead: to the worker there is no difference.
type apart struct{ ahead atomic.Int64 }

func (a *apart) option() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		err := invoke(ctx, method, request, reply, c, o...)
		switch r := reply.(type) {
		case *workflowservice.PollActivityTaskQueueResponse:
			a.moveActivityTask(r)
		case *workflowservice.PollWorkflowTaskQueueResponse:
			a.moveWorkflowTask(r)
		case *workflowservice.RespondWorkflowTaskCompletedResponse:
			for _, task := range r.GetActivityTasks() {
				a.moveActivityTask(task)
			}
		}
		return err
	})
}

func (a *apart) moveActivityTask(task *workflowservice.PollActivityTaskQueueResponse) {
	for _, t := range []*timestamppb.Timestamp{task.GetStartedTime(), task.GetScheduledTime(), task.GetCurrentAttemptScheduledTime()} {
		a.moveTime(t)
	}
}

func (a *apart) moveWorkflowTask(task *workflowservice.PollWorkflowTaskQueueResponse) {
	a.moveTime(task.GetStartedTime())
	a.moveTime(task.GetScheduledTime())
}

func (a *apart) moveTime(t *timestamppb.Timestamp) {
	if t.GetSeconds() > 0 {
		t.Seconds -= a.ahead.Load()
	}
}

// A worker whose clock is far ahead applies nothing, and doctor names it, its offset and what follows; so it does with one that is behind.
// Once the clock is right, the same worker applies, and nothing is found.
func TestDoctorFindsAWrongClock_F10(t *testing.T) {
	t.Parallel()
	w := shared.Unserved(t, embedded.Options{})
	clock, polls, tasks := &apart{}, &monitor.Polls{}, &worker.Tasks{}
	clock.ahead.Store(int64((20 * time.Minute).Seconds()))
	c, err := client.Dial(client.Options{HostPort: w.Address, Logger: stage.Quiet{}, ConnectionOptions: client.ConnectionOptions{
		DialOptions: []grpc.DialOption{tasks.DialOption(), polls.DialOption(), clock.option()},
	}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	stop, err := worker.Start(t.Context(), c, worker.Options{Store: w.Store, Polls: polls, Tasks: tasks, Factories: map[entities.RuntimeKind]activities.Factory{
		entities.RuntimeFake: func(entities.RuntimeDefinition) (runtimes.Runtime, error) { return w.Fake, nil },
	}})
	require.NoError(t, err)
	t.Cleanup(stop)

	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	w.Release("web", "v1")
	host, err := os.Hostname()
	require.NoError(t, err)
	find := func(offset, effect string) {
		t.Helper()
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			found, looked := doctor(t, "--address", w.Address)
			for _, f := range found[deployment.WrongClock] {
				if strings.Contains(f.Why, offset) && strings.Contains(f.Why, effect) {
					require.Equal(t, fmt.Sprintf("worker %d@%s", os.Getpid(), host), f.What)
					require.Contains(t, f.Next, "NTP")
					return true, ""
				}
			}
			return false, fmt.Sprint(found, looked, polls.ClockOffset())
		})
	}
	find("its clock is 20m0s ahead of the clock of the Temporal server", "it may apply nothing")
	require.Equal(t, string(entities.StatusConverging), w.Status("web").Channels[0].Status)
	require.Zero(t, w.Fake.At(w.App, "web", "staging").Applies())
	if testing.Short() {
		return
	}

	clock.ahead.Store(-int64((20 * time.Minute).Seconds()))
	find("its clock is 20m0s behind the clock of the Temporal server", "it refuses new tokens")

	clock.ahead.Store(0)
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		found, looked := doctor(t, "--address", w.Address)
		return len(found) == 0 && strings.Contains(looked, "clocks of workers: 1"), fmt.Sprint(found, looked)
	})
}
