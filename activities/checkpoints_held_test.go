package activities

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/entities/protocol"
)

// heldTest is a worker's connection, and the checkpoints of its workflows that were accepted.
type heldTest struct {
	tasks    *Tasks
	held     *heldCheckpoints
	accepted []protocol.Checkpoint
	answers  []TaskEnd
}

func newHeldTest() *heldTest {
	h := &heldTest{tasks: &Tasks{}}
	h.held = &heldCheckpoints{accept: func(c pendingCheckpoint) { h.accepted = append(h.accepted, c.Checkpoint) }}
	h.tasks.report(h.held.ended)
	another := &heldCheckpoints{}
	h.tasks.report(another.ended) // of another worker in the process
	h.tasks.report(func(workflowTask, TaskEnd) { panic("it has ended") })()
	return h
}

var errNoAnswer = errors.New("context deadline exceeded")

// begin is an attempt of a workflow task of run r with a checkpoint.
func (h *heldTest) begin(token string, c protocol.Checkpoint) {
	h.tasks.read(&workflowservice.PollWorkflowTaskQueueRequest{}, taskOf(token), time.Now(), nil)
	h.held.hold(pendingCheckpoint{Checkpoint: c})
}

func taskOf(token string) *workflowservice.PollWorkflowTaskQueueResponse {
	return &workflowservice.PollWorkflowTaskQueueResponse{TaskToken: []byte(token), WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: "web", RunId: "r"}}
}

func (h *heldTest) complete(token string, answer *workflowservice.RespondWorkflowTaskCompletedResponse, err error) {
	h.tasks.read(&workflowservice.RespondWorkflowTaskCompletedRequest{TaskToken: []byte(token)}, answer, time.Now(), err)
}

// The checkpoint of a workflow task is accepted once the server has the task. One of an attempt that it did not record never is.
func TestCheckpointWaitsForItsTask_F1(t *testing.T) {
	var web changes
	at := time.Now()
	h := newHeldTest()
	ok := &workflowservice.RespondWorkflowTaskCompletedResponse{}
	first := web.next(at)
	h.begin("1", first)
	require.Empty(t, h.accepted)
	require.Equal(t, at.Add(-time.Hour), h.held.oldest(at.Add(-time.Hour)))
	require.True(t, h.held.oldest(at.Add(time.Hour)).Before(at.Add(time.Hour)), "it is not stored")
	h.complete("1", ok, nil)
	require.Equal(t, []protocol.Checkpoint{first}, h.accepted)

	lost, before := web, web
	h.begin("2", lost.next(at.Add(time.Second)))
	h.complete("2", nil, errNoAnswer)
	require.Len(t, h.accepted, 1)
	h.tasks.read(&workflowservice.PollWorkflowTaskQueueRequest{}, taskOf("a query"), time.Now(), nil)
	h.tasks.read(&workflowservice.RespondQueryTaskCompletedRequest{TaskToken: []byte("a query")}, nil, time.Now(), nil)
	require.Len(t, h.accepted, 1, "a query says nothing about it")
	again := before.next(at.Add(time.Minute))
	h.begin("3", again)
	h.complete("3", ok, nil)
	require.Equal(t, []protocol.Checkpoint{first, again}, h.accepted, "the lost attempt left nothing")

	h.begin("4", before.next(at.Add(time.Hour)))
	h.tasks.read(&workflowservice.RespondWorkflowTaskFailedRequest{TaskToken: []byte("4")}, nil, time.Now(), nil)
	h.complete("4", ok, nil)
	require.Len(t, h.accepted, 2, "it failed")
	require.True(t, h.held.close())
	require.Len(t, h.tasks.began, 1, "the worker may answer it again")
}

// Temporal is asked how a task ended that it did not answer, until it is known, or another one begins.
func TestTaskWithoutAnAnswerIsExamined_F1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var web changes
		h := newHeldTest()
		h.held.taskEnd = h.answer
		h.begin("1", web.next(time.Now()))
		h.complete("1", nil, errNoAnswer)
		require.Equal(t, "0 accepted, 1 held, 1 left", h.after(examineDelay+time.Second, TaskEnd{}, TaskEnd{Complete: true}))
		require.Equal(t, "1 accepted, 0 held, 0 left", h.after(examineDelay), "only the answer was lost")

		h.begin("2", web.next(time.Now()))
		h.complete("2", nil, errNoAnswer)
		require.Equal(t, "1 accepted, 1 held, 0 left", h.after(examineDelay+time.Second), "Temporal does not answer")
		require.Equal(t, "1 accepted, 0 held, 0 left", h.after(examineDelay, TaskEnd{Discarded: true}))

		h.begin("3", web.next(time.Now()))
		h.complete("3", nil, errNoAnswer)
		require.Equal(t, "1 accepted, 1 held, 1 left", h.after(time.Second, TaskEnd{Complete: true}))
		h.begin("4", web.next(time.Now()))
		require.Equal(t, "1 accepted, 1 held, 1 left", h.after(10*examineDelay), "a later attempt has replaced it")
		require.False(t, h.held.close())
	})
}

// answer is Temporal, which gives the answers of the test, and then none.
func (h *heldTest) answer(context.Context, protocol.Checkpoint) (end TaskEnd, err error) {
	h.held.mu.Lock()
	defer h.held.mu.Unlock()
	if len(h.answers) == 0 {
		return end, errNoAnswer
	}
	end, h.answers = h.answers[0], h.answers[1:]
	return end, nil
}

// after adds answers of Temporal, and says what there is after a time.
func (h *heldTest) after(d time.Duration, answers ...TaskEnd) string {
	h.held.mu.Lock()
	h.answers = append(h.answers, answers...)
	h.held.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
	h.held.mu.Lock()
	defer h.held.mu.Unlock()
	return fmt.Sprintf("%d accepted, %d held, %d left", len(h.accepted), len(h.held.byRun), len(h.answers))
}

// An answer to a task is repeated, a task is followed by another one in the answer, and a task that changed nothing leaves no events.
func TestAnswersToWorkflowTasks_F1(t *testing.T) {
	var web changes
	at := time.Now()
	h := newHeldTest()
	h.begin("1", web.next(at))
	h.complete("1", nil, errNoAnswer)
	h.complete("1", &workflowservice.RespondWorkflowTaskCompletedResponse{WorkflowTask: taskOf("2")}, nil)
	require.Len(t, h.accepted, 1)
	h.held.hold(pendingCheckpoint{Checkpoint: web.next(at.Add(time.Second))})
	h.complete("2", &workflowservice.RespondWorkflowTaskCompletedResponse{}, nil)
	require.Len(t, h.accepted, 2)

	h.begin("3", protocol.Checkpoint{ID: "web", Run: "r", N: 45, Event: 45, At: at.Add(time.Minute)})
	h.complete("3", &workflowservice.RespondWorkflowTaskCompletedResponse{ResetHistoryEventId: 42}, nil)
	require.EqualValues(t, 42, h.accepted[2].Event, "the event of the last task that left some")

	h.begin("4", web.next(at.Add(time.Hour)))
	h.tasks.read(&workflowservice.RespondQueryTaskCompletedRequest{TaskToken: []byte("4")}, nil, time.Now(), nil)
	require.Len(t, h.accepted, 4, "a query submitted it")
	h.complete("of another connection", &workflowservice.RespondWorkflowTaskCompletedResponse{}, nil)
	h.tasks.read(&workflowservice.PollWorkflowTaskQueueRequest{}, &workflowservice.PollWorkflowTaskQueueResponse{}, time.Now(), nil)
	require.Empty(t, h.tasks.began, "a poll without a task")
}
