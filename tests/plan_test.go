package tests

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/preview"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// planner asks as the CLI does.
func (w *world) planner() *preview.Planner {
	w.T.Helper()
	store, err := store.Open(w.T.Context(), w.Store)
	require.NoError(w.T, err)
	w.T.Cleanup(func() { store.Close() })
	return &preview.Planner{
		Client: w.Client, Store: store, By: "test", Fake: true,
		Status: func(ctx context.Context, service string) (protocol.Status, error) {
			var s protocol.Status
			value, err := temporaltest.Query(ctx, w.Client, w.ID(service), protocol.QueryStatus)
			if errors.As(err, new(*serviceerror.NotFound)) {
				return s, nil
			}
			if err != nil {
				return s, err
			}
			return s, value.Get(&s)
		},
	}
}

func (w *world) newest() protocol.ApplicationStatus {
	w.T.Helper()
	var s protocol.ApplicationStatus
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) { // on a loaded machine a worker may be slow
		var err error
		s, err = publish.Status(w.T.Context(), w.Client, w.App)
		return err == nil, fmt.Sprint(err)
	})
	return s
}

func (w *world) planRelease(r preview.Release) (*preview.Plan, error) {
	w.T.Helper()
	r.Application, r.Service = w.newest(), "web"
	return w.planner().Release(w.T.Context(), r)
}

func (w *world) planDirectory() *preview.Plan {
	w.T.Helper()
	plan, err := w.planner().Directory(w.T.Context(), w.Dir, func(application string) (protocol.ApplicationStatus, error) {
		require.Equal(w.T, w.App, application)
		return w.newest(), nil
	})
	require.NoError(w.T, err)
	return plan
}

// lines is a plan in a line for each channel: "staging v1>v2 update version v1>v2".
func lines(p *preview.Plan) string {
	var out []string
	for _, s := range p.Services {
		for _, n := range s.Notes {
			out = append(out, s.Service+": "+n)
		}
		for _, c := range s.Channels {
			line := fmt.Sprintf("%s %s>%s", c.Channel, c.Present, c.Version)
			for _, change := range c.Changes {
				line += " " + change.Action
				for _, f := range change.Fields {
					line += " " + f.Path + " " + strings.ReplaceAll(f.Old+">"+f.New, `"`, "")
				}
			}
			if c.Code != "" {
				line += " " + c.Code
			}
			for _, f := range c.Sent {
				line += " " + f.Path + " " + strings.ReplaceAll(f.Old+">"+f.New, `"`, "")
			}
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// Plan shows what a release would change in each channel, and nothing is applied,
// released or remembered.
func TestPlanOfARelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	plan, err := w.planRelease(preview.Release{Version: "v1"})
	require.NoError(t, err)
	require.Equal(t, "staging >v1 create\nproduction >v1 create", lines(plan))
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")

	plan, err = w.planRelease(preview.Release{Version: "v2", ChannelParameters: map[string]map[string]any{"production": {"greeting": "hi"}}})
	require.NoError(t, err)
	require.Equal(t, "staging v1>v2 update version v1>v2 env.VERSION v1>v2\n"+
		"production v1>v2 update version v1>v2 env.GREETING hello>hi env.VERSION v1>v2", lines(plan))
	require.Equal(t, protocol.PreviewTotals{Changed: 2}, plan.Totals)
	require.Equal(t, []any{false, int64(1)}, []any{plan.Services[0].Known, plan.Services[0].Incarnation})
	require.Equal(t, 1, w.Fake.At(w.App, "web", "staging").Applies())
	require.Len(t, w.Status("web").Releases, 1)
	_, err = w.planner().Store.Version(t.Context(), w.App, "web", "v2")
	require.True(t, store.IsNotFound(err), "the name stays free")

	plan, err = w.planRelease(preview.Release{Version: "v1"})
	require.NoError(t, err)
	require.True(t, plan.Empty())
	require.True(t, plan.Services[0].Known)

	w.Fake.At(w.App, "web", "staging").SetPlan(nil, runtimes.Change{Action: runtimes.ActionRefuse, Type: "Service", Name: "web", Conflicts: []string{"port 80 is owned by kubectl"}})
	w.Fake.At(w.App, "web", "production").SetPlan(errors.New("the cluster is unavailable"))
	plan, err = w.planRelease(preview.Release{Version: "v2"})
	require.NoError(t, err)
	require.Equal(t, 1, plan.Totals.Conflicts)
	require.Equal(t, 1, plan.Failed)
	require.Equal(t, "the cluster is unavailable", plan.Services[0].Channels[1].Message)
}

// What a release would be refused for, a plan is, in the same words.
func TestPlanIsRefusedAsAReleaseIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.RunWeb()
	for _, r := range []preview.Release{
		{Version: "v 2"},
		{Version: "v2-i9"},
		{Version: "v2", Parameters: map[string]any{"greting": "x"}},
		{Version: "v2", ChannelParameters: map[string]map[string]any{"stagin": {"greeting": "x"}}},
		{Version: "v1", Parameters: map[string]any{"greeting": "x"}},
	} {
		err := w.Update(w.ID("web"), protocol.Release, protocol.ReleaseRequest{
			RequestMeta: protocol.RequestMeta{By: "test"}, Version: r.Version, Parameters: r.Parameters, ChannelParameters: r.ChannelParameters,
		}, nil)
		require.Error(t, err)
		_, planned := w.planRelease(r)
		var refused *preview.Refused
		require.ErrorAs(t, planned, &refused)
		require.ErrorContains(t, err, refused.Reason)
	}
}

// plan DIR shows what apply would change where it runs, and what apply then does.
func TestPlanOfADirectory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + stage.Web)
	require.Equal(t, "web: no version was released yet; to deploy one: converge release "+w.App+"/web VERSION", lines(w.planDirectory()))
	require.Zero(t, w.newest().Newest, "nothing was published")
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.True(t, w.planDirectory().Empty())

	w.Write(stage.TwoChannels + stage.Web + "perReleaseChannel: [{releaseChannel: production, parameters: {greeting: hi}}]\nprogressDeadline: 1h\n")
	plan := w.planDirectory()
	require.Equal(t, "production v1>v1-i2 update version v1>v1-i2 env.GREETING hello>hi", lines(plan), "staging stays as it is")
	require.NotNil(t, plan.Rules)
	require.Contains(t, plan.Rules.String(), "progressDeadline")
	require.NotContains(t, plan.Rules.String(), "GREETING")
	require.EqualValues(t, 1, w.newest().Newest)
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1-i2")
	require.True(t, w.planDirectory().Empty(), "the name that was foreseen is the one it got")

	w.Write(stage.TwoChannels + stage.Web + "version: v5\n")
	require.Equal(t, "staging v1>v5 update version v1>v5 env.VERSION v1>v5\nproduction v1-i2>v5 update version v1-i2>v5 env.GREETING hi>hello env.VERSION v1>v5",
		lines(w.planDirectory()))
	w.Write(stage.TwoChannels + stage.Web + "configChanges: hold\nperReleaseChannel: [{releaseChannel: staging, parameters: {greeting: hi}}]\n")
	require.Contains(t, lines(w.planDirectory()), "web: configChanges: hold: it waits for the next release\nstaging v1>v1-i3 update")
	w.Write(stage.TwoChannels + strings.Replace(stage.Web, "name: web", "name: other", 1) + "initialVersion: r1\n")
	plan = w.planDirectory()
	require.Equal(t, "staging >r1 create\nproduction >r1 create", lines(plan))
	require.Equal(t, []string{"web"}, plan.Removed)
	require.Zero(t, w.Fake.At(w.App, "other", "staging").Applies())
}

// A parameter without a value does not keep the other services from being planned.
func TestPlanOfADirectoryThatCannotBeReleased(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := strings.Replace(stage.Web, "name: web", "name: other", 1)
	w.Write(stage.TwoChannels + stage.Web + other)
	w.Publish()
	for _, service := range []string{"web", "other"} {
		w.Release(service, "v1")
		w.Await(service, "staging CONVERGED v1, production CONVERGED v1")
	}
	w.Write(stage.TwoChannels + strings.Replace(stage.Web, ", default: hello", "", 1) + strings.Replace(other, "hello", "bye", 1))
	plan := lines(w.planDirectory())
	require.Contains(t, plan, "web: nothing would be released: render web: ")
	require.Contains(t, plan, "staging v1>v1-i2 update version v1>v1-i2 env.GREETING hello>bye\n")
}

// A runtime that no worker polls for is said to be so, after a bounded wait.
func TestPlanWithoutARemoteWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	item := protocol.PreviewItem{Service: "web", Channel: "staging", Runtime: w.App + "-rt", Remote: true, FullVersion: "v1"}
	run, err := w.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: protocol.PreviewID(w.App, "web", "remote"), TaskQueue: protocol.TaskQueue,
	}, protocol.PreviewWorkflow, protocol.PreviewInput{Application: w.App, Items: []protocol.PreviewItem{item}})
	require.NoError(t, err)
	var answer protocol.PreviewAnswer
	require.NoError(t, run.Get(t.Context(), &answer))
	require.Equal(t, []protocol.ItemPreview{{
		Service: "web", Channel: "staging", Code: protocol.PreviewNoWorker,
		Message: "no worker polls runtime/" + w.App + "-rt; start one with: converge worker --runtime " + w.App + "-rt",
	}}, answer.Items)
}

// Without any worker a plan ends, and says so.
func TestPlanWithoutAWorker(t *testing.T) {
	t.Parallel()
	w := shortRuns(t, 0)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	application, planner := w.newest(), w.planner()
	planner.Status = func(context.Context, string) (protocol.Status, error) { return protocol.Status{}, nil }
	w.StopWorker()
	_, err := planner.Release(t.Context(), preview.Release{Application: application, Service: "web", Version: "v1"})
	require.ErrorIs(t, err, connection.ErrNoWorker)

	planner.Pickup = time.Second
	ctx, cancel := context.WithTimeout(t.Context(), stage.Patience)
	defer cancel()
	_, err = planner.Release(ctx, preview.Release{Application: application, Service: "web", Version: "v1"})
	require.ErrorIs(t, err, connection.ErrNoWorker)
}

// A version that exists can be compared with, also where its release would be refused; an unknown one cannot.
func TestPlanThatOnlyCompares(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.RunWeb()
	w.Write(stage.TwoChannels + stage.Web + "version: v2\n")
	w.Publish()
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	const set = "the version of "
	_, err := w.planRelease(preview.Release{Version: "v1"})
	require.ErrorContains(t, err, set)
	plan, err := w.planRelease(preview.Release{Version: "v1", Compare: true})
	require.NoError(t, err)
	require.Len(t, plan.Services[0].Channels, 2)
	require.Equal(t, "v2", plan.Services[0].Channels[0].Present)
	_, err = w.planRelease(preview.Release{Version: "v3", Compare: true})
	require.ErrorContains(t, err, set)
}

// The verb itself, on a runtime of commands: it cannot say what changes, so what it is told is shown.
func TestPlanOfTheExample(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs and runs real processes; not with -short")
	}
	h := newHello(t)
	h.Start()
	h.Await("hello/web", "staging CONVERGED v1, production CONVERGED v1")
	unseen := func(channel string) string {
		return " " + channel + "  would be applied; runtime local (custom) cannot preview changes\n"
	}
	out, code := h.Converge("plan", "hello/web", "v2")
	require.Equal(t, "hello/web v2, incarnation 1 (not released)\n"+unseen("staging   ")+"  ~ version v1 → v2\n"+
		unseen("production")+"  ~ version v1 → v2\n2 channels applied without a preview\n", out)
	require.Zero(t, code)
	out, code = h.Converge("plan", "web", "v1", "--exit-code")
	require.Equal(t, "hello/web v1, incarnation 1 (released before)\n staging     no change\n production  no change\nnothing would change\n", out)
	require.Zero(t, code)
	_, code = h.Converge("plan", "web", "v2", "--exit-code")
	require.Equal(t, 2, code)
	out, code = h.Converge("plan", ".", "--output", "json")
	require.Zero(t, code)
	require.JSONEq(t, `{"schema":"converge.plan/v1","application":"hello","incarnation":1,"services":[],
		"totals":{"changed":0,"removed":0,"orphaned":0,"conflicts":0,"refused":0}}`, out)
}

// Whoever stops waiting stops the workflow too.
func TestPlanInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	staging := w.Fake.At(w.App, "web", "staging")
	release := staging.HangPlans()
	defer release()
	ctx, stop := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	application := w.newest()
	planner := w.planner()
	go func() {
		_, err := planner.Release(ctx, preview.Release{Application: application, Service: "web", Version: "v1"})
		failed <- err
	}()
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { return staging.Plans() > 0, "asked" })
	stop()
	require.ErrorIs(t, <-failed, context.Canceled)
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		found, err := w.Client.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: "default", Query: fmt.Sprintf("WorkflowType='%s' AND WorkflowId STARTS_WITH 'preview/%s/'", protocol.PreviewWorkflow, w.App),
		})
		if err != nil || len(found.Executions) != 1 {
			return false, fmt.Sprint(err, found)
		}
		status := found.Executions[0].Status
		return status == enums.WORKFLOW_EXECUTION_STATUS_CANCELED, status.String()
	})
}
