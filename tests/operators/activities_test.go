package operators

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	activitypb "go.temporal.io/api/activity/v1"
	commonpb "go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/fakeruntime"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// operated is a workflow whose activities an operator acts on, as the commands `temporal activity` do.
type operated struct {
	*stage.World
	id string
}

func (o operated) execution() *commonpb.WorkflowExecution {
	return &commonpb.WorkflowExecution{WorkflowId: o.id}
}

// pending are the activities of a type that the server has.
func (o operated) pending(kind string) (all []*workflowpb.PendingActivityInfo) {
	o.T.Helper()
	d, err := o.Client.DescribeWorkflowExecution(o.T.Context(), o.id, "")
	require.NoError(o.T, err)
	for _, a := range d.PendingActivities {
		if a.ActivityType.Name == kind {
			all = append(all, a)
		}
	}
	return all
}

// repeated waits until an activity has been repeated at least once, and returns its id: it then waits for its next attempt.
func (o operated) repeated(kind string) (id string) {
	o.T.Helper()
	temporaltest.WaitFor(o.T, stage.Patience, func() (bool, string) {
		for _, a := range o.pending(kind) {
			if a.Attempt > 1 {
				id = a.ActivityId
			}
		}
		return id != "", "no second attempt of " + kind
	})
	return id
}

// anyOf is the id of an activity of a type; one is awaited.
func (o operated) anyOf(kind string) (id string) {
	o.T.Helper()
	temporaltest.WaitFor(o.T, stage.Patience, func() (bool, string) {
		for _, a := range o.pending(kind) {
			id = a.ActivityId
		}
		return id != "", "no activity " + kind
	})
	return id
}

// act carries an act on activities of a type out. An activity that ends meanwhile is followed by the next one.
func (o operated) act(how act, kind string) {
	o.T.Helper()
	temporaltest.WaitFor(o.T, stage.Patience, func() (bool, string) {
		err := how(o, o.anyOf(kind))
		if err != nil {
			return false, err.Error()
		}
		return true, ""
	})
}

// act is what an operator does to an activity with an id.
type act func(o operated, id string) error

func pauseActivity(o operated, id string) error {
	_, err := o.Client.WorkflowService().PauseActivity(o.T.Context(), &workflowservice.PauseActivityRequest{
		Namespace: "default", Execution: o.execution(), Identity: "olga", Reason: "an operator's test", Activity: &workflowservice.PauseActivityRequest_Id{Id: id},
	})
	return err
}

// pauseAll pauses all activities of a type in one call, as `temporal activity pause --activity-type` does.
func pauseAll(o operated, kind string) {
	o.T.Helper()
	_, err := o.Client.WorkflowService().PauseActivity(o.T.Context(), &workflowservice.PauseActivityRequest{
		Namespace: "default", Execution: o.execution(), Identity: "olga", Reason: "an operator's test", Activity: &workflowservice.PauseActivityRequest_Type{Type: kind},
	})
	require.NoError(o.T, err)
}

func unpauseActivity(o operated, id string) error {
	_, err := o.Client.WorkflowService().UnpauseActivity(o.T.Context(), &workflowservice.UnpauseActivityRequest{
		Namespace: "default", Execution: o.execution(), Identity: "olga", Activity: &workflowservice.UnpauseActivityRequest_Id{Id: id},
	})
	return err
}

func resetActivity(o operated, id string) error {
	_, err := o.Client.WorkflowService().ResetActivity(o.T.Context(), &workflowservice.ResetActivityRequest{
		Namespace: "default", Execution: o.execution(), Identity: "olga", ResetHeartbeat: true, Activity: &workflowservice.ResetActivityRequest_Id{Id: id},
	})
	return err
}

// setOptions changes options of an activity.
func setOptions(options *activitypb.ActivityOptions, fields ...string) act {
	return func(o operated, id string) error {
		_, err := o.Client.WorkflowService().UpdateActivityOptions(o.T.Context(), &workflowservice.UpdateActivityOptionsRequest{
			Namespace: "default", Execution: o.execution(), Identity: "olga", Activity: &workflowservice.UpdateActivityOptionsRequest_Id{Id: id},
			ActivityOptions: options, UpdateMask: &fieldmaskpb.FieldMask{Paths: fields},
		})
		return err
	}
}

// completeActivity ends an activity with a result in JSON.
func completeActivity(result string) act {
	return func(o operated, id string) error {
		_, err := o.Client.WorkflowService().RespondActivityTaskCompletedById(o.T.Context(), &workflowservice.RespondActivityTaskCompletedByIdRequest{
			Namespace: "default", WorkflowId: o.id, ActivityId: id, Identity: "olga",
			Result: &commonpb.Payloads{Payloads: []*commonpb.Payload{{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(result)}}},
		})
		return err
	}
}

func failActivity(o operated, id string) error {
	_, err := o.Client.WorkflowService().RespondActivityTaskFailedById(o.T.Context(), &workflowservice.RespondActivityTaskFailedByIdRequest{
		Namespace: "default", WorkflowId: o.id, ActivityId: id, Identity: "olga", Failure: &failurepb.Failure{
			Message: "an operator's test", FailureInfo: &failurepb.Failure_ApplicationFailureInfo{ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{NonRetryable: true}},
		},
	})
	return err
}

// acts are what operators can do to an activity.
func acts() map[string]act {
	return map[string]act{
		"pause":                pauseActivity,
		"reset":                resetActivity,
		"complete":             completeActivity(`{}`),
		"complete, unreadable": completeActivity(`"done"`),
		"fail":                 failActivity,
		"another queue":        setOptions(&activitypb.ActivityOptions{TaskQueue: &taskqueuepb.TaskQueue{Name: "nobody"}}, "task_queue.name"),
		"one attempt":          setOptions(&activitypb.ActivityOptions{RetryPolicy: &commonpb.RetryPolicy{MaximumAttempts: 1}}, "retry_policy.maximum_attempts"),
		"short timeouts": setOptions(&activitypb.ActivityOptions{
			StartToCloseTimeout: durationpb.New(time.Second), ScheduleToCloseTimeout: durationpb.New(2 * time.Second),
		}, "start_to_close_timeout", "schedule_to_close_timeout"),
		"no time": setOptions(&activitypb.ActivityOptions{StartToCloseTimeout: durationpb.New(time.Microsecond)}, "start_to_close_timeout"),
	}
}

// Whatever an operator does to the observation of a service, drift is found and repaired within a minute.
func TestObservationSurvivesOperators_F1_F9(t *testing.T) {
	t.Parallel()
	for name, how := range acts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := operatedWorld(t, name)
			o := operated{w, w.ID("web")}
			staging := w.Fake.At(w.App, "web", "staging")
			o.repeated(protocol.ActivityObserve)
			o.act(how, protocol.ActivityObserve)
			began := time.Now()
			applies := staging.Applies()
			staging.SetDrifted(true)
			awaitFake(t, w.Fake, func() bool { return staging.Applies() > applies })
			t.Logf("repaired after %s", time.Since(began).Round(time.Millisecond))
			require.Less(t, time.Since(began), aMinute)
			w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
			noOverlaps(w)
		})
	}
}

// operatedWorld has v1 of web in both channels. Where options are changed, which the supervising worker finds by looking at workflows in
// turn, it has a server of its own, with few.
func operatedWorld(t *testing.T, act string) *stage.World {
	t.Helper()
	var w *stage.World
	switch act {
	case "another queue", "no time", "short timeouts":
		w = shared.OwnServer(t, 0)
	default:
		w = shared.World(t)
		t.Cleanup(func() { w.Retire("web") })
	}
	w.RunWeb()
	return w
}

func noOverlaps(w *stage.World) {
	w.T.Helper()
	for _, overlap := range w.Fake.Overlaps() {
		require.NotContains(w.T, overlap, w.App+"/")
	}
}

func awaitFake(t *testing.T, fake *fakeruntime.Runtime, done func() bool) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), stage.Patience)
	defer stop()
	require.NoError(t, fake.Await(ctx, done))
}

// Whatever an operator does to an apply that runs, the version arrives once the runtime lets it, and no apply overlaps another. A pause
// lasts until its end.
func TestApplySurvivesOperators_F1_F2(t *testing.T) {
	t.Parallel()
	for name, how := range acts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := operatedWorld(t, name)
			o := operated{w, w.ID("web")}
			staging := w.Fake.At(w.App, "web", "staging")
			letGo := staging.HangApplies()
			w.Release("web", "v2")
			awaitFake(t, w.Fake, staging.Applying)
			before := staging.Applies()
			o.act(how, protocol.ActivityApply)
			switch name {
			case "another queue", "one attempt", "no time": // the attempt that runs is not ended
			case "pause":
				temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { return !staging.Applying(), "the paused apply runs" })
				require.NoError(t, unpauseActivity(o, o.anyOf(protocol.ActivityApply)))
				fallthrough
			default:
				awaitFake(t, w.Fake, func() bool { return staging.Applies() > before })
			}
			letGo()
			w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
			noOverlaps(w)
		})
	}
}

// An apply that an operator ends while its worker is cut off ends there before another worker begins the next one.
func TestApplyEndedByOperatorOverlapsNothing_F2(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"fail", "complete", "short timeouts"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStalled(t)
			o := operated{s.World, s.ID("web")}
			s.StartWorker() // that one is not cut off
			s.proxy.Hold()
			defer s.proxy.Resume()
			s.proxy.Cut()
			o.act(acts()[name], protocol.ActivityApply)
			staging := s.Fake.At(s.App, "web", "staging")
			awaitFake(t, s.Fake, func() bool { return staging.Applies() == 2 })
			s.letGo()
			s.Await("web", "staging CONVERGED v1, production CONVERGED v1")
			require.Empty(t, s.Fake.Overlaps())
		})
	}
}
