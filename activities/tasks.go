package activities

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
)

// Tasks reads, on a worker's connection, what the Temporal server says about its tasks: which workflow tasks are complete, and which
// activities arrived with the response that started them. The zero value is ready.
type Tasks struct {
	eager eager

	mu        sync.Mutex
	connected bool
	began     map[string]workflowTask             // by task token: workflow tasks of this worker that have not ended
	reports   map[int]func(workflowTask, TaskEnd) // of the workers of the connection
	nextID    int
}

// workflowTask is a workflow task, or a query alone, of a run since it arrived.
type workflowTask struct {
	run   string
	since time.Time
}

// TaskEnd is how a workflow task ended.
type TaskEnd struct {
	// Complete: its events are in the history. Discarded: they never will be. Neither: it is not known, because the server did not answer, or
	// refused the answer, perhaps since it has it already.
	Complete, Discarded bool
	// Event is the event of the last complete task, where the server completed a task without events, since it changed nothing; 0 otherwise.
	Event int64
}

const (
	// manyTasks is when old tasks are forgotten, which this worker dropped without an answer.
	manyTasks   = 10_000
	forgetAfter = 10 * time.Minute
)

// DialOption adds the reading to a connection.
func (t *Tasks) DialOption() grpc.DialOption {
	t.mu.Lock()
	t.connected = true
	t.mu.Unlock()
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		requested := time.Now()
		err := invoke(ctx, method, request, reply, c, o...)
		t.read(request, reply, requested, err)
		return err
	})
}

// Connected reports whether a connection has its DialOption. Nil has none.
func (t *Tasks) Connected() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.connected
}

func (t *Tasks) read(request, reply any, requested time.Time, err error) {
	switch r := request.(type) {
	case *workflowservice.PollWorkflowTaskQueueRequest:
		if task, ok := reply.(*workflowservice.PollWorkflowTaskQueueResponse); ok && err == nil {
			t.begin(task)
		}
	case *workflowservice.RespondWorkflowTaskCompletedRequest:
		answer, _ := reply.(*workflowservice.RespondWorkflowTaskCompletedResponse)
		t.end(r.GetTaskToken(), TaskEnd{Complete: true, Event: answer.GetResetHistoryEventId()}, err)
		if err == nil {
			t.eager.record(answer, requested)
			t.begin(answer.GetWorkflowTask())
		}
	case *workflowservice.RespondQueryTaskCompletedRequest: // of a query alone, which has no events
		t.end(r.GetTaskToken(), TaskEnd{Complete: true}, nil)
	case *workflowservice.RespondWorkflowTaskFailedRequest:
		t.end(r.GetTaskToken(), TaskEnd{Discarded: true}, nil)
	}
}

func (t *Tasks) begin(task *workflowservice.PollWorkflowTaskQueueResponse) {
	if len(task.GetTaskToken()) == 0 {
		return
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.began) >= manyTasks {
		maps.DeleteFunc(t.began, func(_ string, old workflowTask) bool { return now.Sub(old.since) > forgetAfter })
	}
	if t.began == nil {
		t.began = map[string]workflowTask{}
	}
	t.began[string(task.GetTaskToken())] = workflowTask{task.GetWorkflowExecution().GetRunId(), now}
}

// end reports how a task ended. After an error the worker may answer again.
func (t *Tasks) end(token []byte, how TaskEnd, err error) {
	t.mu.Lock()
	task, known := t.began[string(token)]
	reports := slices.Collect(maps.Values(t.reports))
	if err == nil {
		delete(t.began, string(token))
	} else {
		how = TaskEnd{}
	}
	t.mu.Unlock()
	if !known {
		return
	}
	for _, ended := range reports {
		ended(task, how)
	}
}

// report reports each end of a workflow task until stop is called. The workers of a process may share a connection.
func (t *Tasks) report(ended func(workflowTask, TaskEnd)) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reports == nil {
		t.reports = map[int]func(workflowTask, TaskEnd){}
	}
	t.nextID++
	id := t.nextID
	t.reports[id] = ended
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.reports, id)
	}
}

// takeEager is eager.take; nil has no records.
func (t *Tasks) takeEager(token []byte) (requested time.Time, ok bool) {
	if t == nil {
		return requested, false
	}
	return t.eager.take(token)
}
