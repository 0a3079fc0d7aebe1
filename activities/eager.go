package activities

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"

	"github.com/converge-engine/converge/entities/protocol"
)

// Eager notes, on a worker's connection, when the worker asked for what came as the answer: the completion of a workflow
// task brings the activities that it starts along. The server cannot have handed one out before it was asked, so an attempt
// that begins soon after that is this worker's for a while, and need not wait until the server has heard of it (F7). It
// costs nothing, and a heartbeat before each apply took longer than all else that stands before an apply.
//
// The zero value is ready. Nil knows of none: each attempt waits for its first heartbeat.
type Eager struct {
	mu    sync.Mutex
	asked map[string]time.Time // by task token
}

// DialOption makes a connection note it.
func (e *Eager) DialOption() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		asked := time.Now()
		err := invoke(ctx, method, request, reply, c, o...)
		if answer, ok := reply.(*workflowservice.RespondWorkflowTaskCompletedResponse); ok && err == nil {
			e.note(answer, asked)
		}
		return err
	})
}

// outside are the activities that change something there.
var outside = []string{protocol.ActivityApply, protocol.ActivityRemove, protocol.ActivityExtension}

func (e *Eager) note(answer *workflowservice.RespondWorkflowTaskCompletedResponse, asked time.Time) {
	for _, task := range answer.GetActivityTasks() {
		if slices.Contains(outside, task.GetActivityType().GetName()) {
			e.add(string(task.GetTaskToken()), asked)
		}
	}
}

// add forgets those that were never taken: their workflows had ended by then, or the worker stops.
func (e *Eager) add(token string, asked time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.asked) >= 1000 {
		maps.DeleteFunc(e.asked, func(_ string, old time.Time) bool { return asked.Sub(old) > beat })
	}
	if e.asked == nil {
		e.asked = map[string]time.Time{}
	}
	e.asked[token] = asked
}

// take returns when an attempt that begins now was asked for, if that is known and less than a beat ago: by the clock on
// the wall, too, which goes on while the machine is suspended.
func (e *Eager) take(token []byte) (asked time.Time, ok bool) {
	if e == nil {
		return asked, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	asked, ok = e.asked[string(token)]
	delete(e.asked, string(token))
	now := time.Now()
	return asked, ok && now.Sub(asked) < beat && now.Round(0).Sub(asked.Round(0)).Abs() < beat
}
