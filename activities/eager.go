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

// Eager records, on a worker's connection, the request time of each eagerly dispatched activity: the response to a completed workflow
// task includes the activities that it starts. The server cannot have dispatched such an attempt before the request. So an attempt that
// begins soon after it belongs to this worker for a while, and need not wait for its first heartbeat (F7). This is free, while a
// heartbeat took longer than all other steps before an apply.
//
// The zero value is ready. Nil has no records: each attempt waits for its first heartbeat.
type Eager struct {
	mu    sync.Mutex
	asked map[string]time.Time // request times, by task token
}

// DialOption adds the recording to a connection.
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

// outside are the activities that make external changes.
var outside = []string{protocol.ActivityApply, protocol.ActivityRemove, protocol.ActivityExtension}

func (e *Eager) note(answer *workflowservice.RespondWorkflowTaskCompletedResponse, asked time.Time) {
	for _, task := range answer.GetActivityTasks() {
		if slices.Contains(outside, task.GetActivityType().GetName()) {
			e.add(string(task.GetTaskToken()), asked)
		}
	}
}

// add records a request time. It drops old records of activities that never started, because their workflows had ended or the worker
// stops.
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

// take returns the request time of an attempt that begins now, if it is known and less than a beat ago. It also checks the wall clock,
// which advances while the machine is suspended.
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
