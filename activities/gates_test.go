package activities

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	querypb "go.temporal.io/api/query/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/secret"
)

// server implements the part of Temporal that these activities use. All other methods panic.
type server struct {
	client.Client

	mu         sync.Mutex
	sent       []sent
	running    []string       // workflows
	answers    map[string]any // to status queries, by workflow
	fail       map[string]error
	pages      int
	terminated []string // terminated workflows, which still answer queries
	failList   bool     // listing workflows fails
}

// sent is a signal. start is the workflow type if the signal may start a workflow.
type sent struct {
	id, name, start string
	payload         any
}

func (s *server) SignalWorkflow(_ context.Context, id, _, name string, payload any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fail[id]; err != nil {
		return err
	}
	if !slices.Contains(s.running, id) {
		return serviceerror.NewNotFound("no such workflow")
	}
	s.sent = append(s.sent, sent{id: id, name: name, payload: payload})
	return nil
}

func (s *server) SignalWithStartWorkflow(_ context.Context, id, name string, payload any, o client.StartWorkflowOptions, workflow any, args ...any) (client.WorkflowRun, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, sent{id: id, name: name, payload: payload, start: workflow.(string)}, sent{name: o.TaskQueue + ": " + o.StaticSummary, payload: args[0]})
	return nil, nil
}

func (s *server) QueryWorkflow(ctx context.Context, id, _, _ string, _ ...any) (converter.EncodedValue, error) {
	if err := s.fail[id]; err != nil {
		return nil, err
	}
	answer, ok := s.answers[id]
	if !ok {
		return nil, serviceerror.NewNotFound("no such workflow")
	}
	if _, deadline := ctx.Deadline(); !deadline {
		return nil, errors.New("query without a deadline")
	}
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(answer)
	return encoded{payloads}, err
}

func (s *server) QueryWorkflowWithOptions(ctx context.Context, r *client.QueryWorkflowWithOptionsRequest) (*client.QueryWorkflowWithOptionsResponse, error) {
	if slices.Contains(s.terminated, r.WorkflowID) && r.QueryRejectCondition == enumspb.QUERY_REJECT_CONDITION_NOT_COMPLETED_CLEANLY {
		return &client.QueryWorkflowWithOptionsResponse{QueryRejected: &querypb.QueryRejected{Status: enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED}}, nil
	}
	answer, err := s.QueryWorkflow(ctx, r.WorkflowID, r.RunID, r.QueryType, r.Args...)
	return &client.QueryWorkflowWithOptionsResponse{QueryResult: answer}, err
}

type encoded struct{ payloads *commonpb.Payloads }

func (e encoded) HasValue() bool { return true }
func (e encoded) Get(into any) error {
	return converter.GetDefaultDataConverter().FromPayloads(e.payloads, into)
}

// ListWorkflow returns two workflows per page.
func (s *server) ListWorkflow(_ context.Context, r *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	if s.failList {
		return nil, errors.New("the visibility store is unavailable")
	}
	of, all := s.running, "WorkflowType = 'Service' AND ExecutionStatus = 'Running'"
	switch r.Query {
	case all:
	case all + " AND ConvergeApplication = 'shop'":
		of = slices.DeleteFunc(slices.Clone(of), func(id string) bool { return !strings.HasPrefix(id, "service/shop/") })
	default:
		return nil, errors.New("unexpected query: " + r.Query)
	}
	from := 0
	if len(r.NextPageToken) > 0 {
		from = int(r.NextPageToken[0])
	}
	s.pages++
	page := &workflowservice.ListWorkflowExecutionsResponse{}
	for _, id := range of[from:min(from+2, len(of))] {
		page.Executions = append(page.Executions, &workflowpb.WorkflowExecutionInfo{Execution: &commonpb.WorkflowExecution{WorkflowId: id}})
	}
	if from += 2; from < len(of) {
		page.NextPageToken = []byte{byte(from)}
	}
	return page, nil
}

// notified lists the workflows that got signals, in order.
func (s *server) notified() []string {
	var ids []string
	for _, m := range s.sent {
		ids = append(ids, m.id)
	}
	return ids
}

func newActivities(t *testing.T, s *server) *Activities {
	t.Helper()
	store, err := store.Open(t.Context(), t.TempDir())
	require.NoError(t, err)
	a := New(store, s, nil)
	a.Commands.Secrets = secret.Environment{Allowed: []string{"*"}}
	t.Cleanup(a.Close)
	return a
}

// run executes an activity as a worker does, with the heartbeat details of an earlier attempt, and returns the heartbeat details of this
// one.
func run[T any](t *testing.T, f, request any, before ...any) (answer T, beats []converter.EncodedValues, err error) {
	t.Helper()
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	env.RegisterActivity(f)
	if len(before) > 0 {
		env.SetHeartbeatDetails(before[0])
	}
	var mu sync.Mutex
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
		mu.Lock()
		defer mu.Unlock()
		beats = append(beats, details)
	})
	value, err := env.ExecuteActivity(f, request)
	if err == nil && value.HasValue() {
		require.NoError(t, value.Get(&answer))
	}
	mu.Lock()
	defer mu.Unlock()
	return answer, slices.Clone(beats), err
}

// applicationError returns the error that the server would get.
func applicationError(t *testing.T, err error) *temporal.ApplicationError {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	return app
}

func requireRefused(t *testing.T, err error, text string) {
	t.Helper()
	app := applicationError(t, err)
	require.Equal(t, protocol.ErrRefused, app.Type(), "%v", err)
	require.True(t, app.NonRetryable())
	require.Contains(t, app.Message(), text)
}

// A lease is requested with a signal that starts the Runtime workflow if there is none.
func TestLease_C10(t *testing.T) {
	s := &server{}
	a := newActivities(t, s)
	request := entities.LeaseRequest{ID: "a1", Holder: "service/shop/web", Description: "shop/web prod v9", Limit: 2, Timeout: time.Minute}
	_, _, err := run[any](t, a.Lease, protocol.LeaseCall{Runtime: "eu", Request: &request})
	require.NoError(t, err)
	_, _, err = run[any](t, a.Lease, protocol.LeaseCall{Runtime: "eu", Return: "a1"})
	require.NoError(t, err, "the lease is unknown")
	s.running = []string{"runtime/eu"}
	_, _, err = run[any](t, a.Lease, protocol.LeaseCall{Runtime: "eu", Return: "a1"})
	require.NoError(t, err)
	_, _, err = run[any](t, a.Lease, protocol.LeaseCall{Runtime: "eu", Confirm: "a2"})
	require.NoError(t, err)
	require.Equal(t, []sent{
		{id: "runtime/eu", name: "request", start: "Runtime", payload: request},
		{name: "converge: runtime eu", payload: protocol.RuntimeInput{Runtime: "eu", StartMode: protocol.StartMode{Adopt: true}}},
		{id: "runtime/eu", name: "release", payload: protocol.LeaseSignal{ID: "a1"}},
		{id: "runtime/eu", name: "keep", payload: protocol.LeaseSignal{ID: "a2"}},
	}, s.sent)

	_, _, err = run[any](t, a.Lease, protocol.LeaseCall{Runtime: "eu"})
	requireRefused(t, err, "expected a request, or a lease")
	s.fail = map[string]error{"runtime/eu": errors.New("the server is unavailable")}
	_, _, err = run[any](t, a.Lease, protocol.LeaseCall{Runtime: "eu", Return: "a1"})
	require.ErrorContains(t, err, "the server is unavailable")
	require.False(t, applicationError(t, err).NonRetryable(), "retryable")
}

func TestHistoryIsIdempotent(t *testing.T) {
	a := newActivities(t, &server{})
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	lines := []entities.AuditEntry{{N: 1, At: at, Kind: entities.EventRelease, Text: "v1"}, {N: 2, At: at, Kind: entities.EventTarget, Text: "v1 to prod"}}
	for _, some := range [][]entities.AuditEntry{lines[:1], lines, lines} {
		_, _, err := run[any](t, a.History, protocol.HistoryRequest{Application: "shop", Service: "web", Entries: some})
		require.NoError(t, err)
	}
	got, err := a.Store.Audit(t.Context(), "shop", "web")
	require.NoError(t, err)
	require.Equal(t, lines, got)
}

func pausedFor(reason string) *entities.Pause {
	return &entities.Pause{Reason: reason, At: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
}

// A pause of an application notifies the services that it declares and those that it declared when the pause began. Services that start
// later read it.
func TestPauseOfAnApplication_A16(t *testing.T) {
	s := &server{running: []string{"service/shop/api", "service/shop/web", "service/other/web", "service/shop/gone"}}
	a := newActivities(t, s)
	spec := entities.Spec{Application: "shop", Service: "web", Runtimes: map[string]*entities.RuntimeSpec{"eu": {}, "us": {}}}
	digest, err := a.Store.PutSpec(t.Context(), spec)
	require.NoError(t, err)
	manifest, err := a.Store.PutManifest(t.Context(), incarnation.Manifest{"web": digest, "api": "a", "new": "b"})
	require.NoError(t, err)
	one := protocol.Incarnation{Number: 1, Hash: "h", Manifest: manifest}
	require.NoError(t, a.Store.PutNumber(t.Context(), "shop", one))
	_, err = a.Store.PutNotice(t.Context(), "shop", protocol.Notice{Incarnation: one, Order: noticeOrder(1, 1)})
	require.NoError(t, err)
	load := protocol.LoadSpecRequest{Application: "shop", Service: "web", Incarnation: 1, Hash: "h"}
	pause := protocol.ScopePause{Scope: "application", Pause: pausedFor("outage")}

	_, beats, err := run[any](t, a.Pause, protocol.AnnouncePause{ScopePause: pause, Application: "shop", Manifest: manifest})
	require.NoError(t, err)
	require.ElementsMatch(t, []sent{
		{id: "service/shop/api", name: "scope-pause", payload: pause},
		{id: "service/shop/gone", name: "scope-pause", payload: pause},
		{id: "service/shop/web", name: "scope-pause", payload: pause},
	}, s.sent, "one has not started")
	s.failList = true
	_, _, err = run[any](t, a.Pause, protocol.AnnouncePause{ScopePause: pause, Application: "shop", Manifest: manifest})
	require.NoError(t, err, "a pause does not need the list")
	_, _, err = run[any](t, a.Pause, protocol.AnnouncePause{ScopePause: protocol.ScopePause{Scope: "application"}, Application: "shop", Manifest: manifest})
	require.ErrorContains(t, err, "the visibility store is unavailable", "the end of a pause needs the list")
	s.failList, s.sent = false, s.sent[:3]
	require.NoError(t, a.Store.PutPause(t.Context(), "shop", pause))
	require.NotEmpty(t, beats)

	answer, _, err := run[protocol.LoadSpecAnswer](t, a.LoadSpec, load)
	require.NoError(t, err)
	require.Equal(t, []protocol.ScopePause{pause}, answer.Pauses)
	require.Equal(t, &spec, answer.Spec)

	pause.Pause = nil
	_, _, err = run[any](t, a.Pause, protocol.AnnouncePause{ScopePause: pause, Application: "shop", Manifest: manifest})
	require.NoError(t, err)
	require.Len(t, s.sent, 6)
	answer, _, err = run[protocol.LoadSpecAnswer](t, a.LoadSpec, load)
	require.NoError(t, err)
	require.Empty(t, answer.Pauses)

	_, _, err = run[any](t, a.Pause, protocol.AnnouncePause{ScopePause: pause, Application: "shop"})
	require.NoError(t, err, "no publication")
	_, _, err = run[any](t, a.Pause, protocol.AnnouncePause{ScopePause: pause})
	requireRefused(t, err, "expected an application, a runtime or the installation")
}

// A pause of a runtime notifies all running services, on all pages of the list. A service that cannot be notified is listed. The next
// worker continues after the last progress. If no service can be reached, the activity is retried.
func TestPauseOfARuntime_A16(t *testing.T) {
	s := &server{running: []string{"service/b/1", "service/a/1", "service/c/1", "service/d/1", "service/e/1"}}
	s.fail = map[string]error{"service/c/1": errors.New("the server is unavailable")}
	a := newActivities(t, s)
	request := protocol.AnnouncePause{ScopePause: protocol.ScopePause{Scope: protocol.RuntimeID("eu"), Pause: pausedFor("upgrade")}, Runtime: "eu"}
	answer, beats, err := run[protocol.AnnounceAnswer](t, a.Pause, request)
	require.NoError(t, err)
	require.Equal(t, protocol.Unreached{Services: []string{"service/c/1"}, Why: "service/c/1: the server is unavailable"}, answer.Unreached)
	require.ElementsMatch(t, []string{"service/a/1", "service/b/1", "service/d/1", "service/e/1"}, s.notified())
	require.Equal(t, 3, s.pages)
	var last string
	require.NoError(t, beats[len(beats)-1].Get(&last))
	require.Equal(t, "service/e/1", last)

	s.sent, s.fail = nil, nil
	_, _, err = run[any](t, a.Pause, request, "service/b/1")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"service/c/1", "service/d/1", "service/e/1"}, s.notified())

	s.fail = map[string]error{}
	for _, id := range s.running {
		s.fail[id] = errors.New("the server is unavailable")
	}
	_, _, err = run[any](t, a.Pause, request)
	require.ErrorContains(t, err, "the server is unavailable")
	pauses, err := a.Store.Pauses(t.Context(), "any", []string{"eu"})
	require.NoError(t, err)
	require.Equal(t, []protocol.ScopePause{request.ScopePause}, pauses)
}

// Active pauses are cached for many applies, for a few seconds.
func TestActivePausesAreCached_A16(t *testing.T) {
	a := newActivities(t, &server{})
	require.NoError(t, a.checkPaused(t.Context(), "shop", "eu"))
	require.NoError(t, a.Store.PutPause(t.Context(), "shop", protocol.ScopePause{Scope: protocol.RuntimeID("eu"), Pause: pausedFor("upgrade")}))
	for range 1000 {
		require.NoError(t, a.checkPaused(t.Context(), "shop", "eu"), "not cached")
	}
	for key, read := range a.pauses.entries {
		a.pauses.entries[key] = cacheEntry[[]protocol.ScopePause]{at: read.at.Add(-pausesTTL)}
	}
	require.ErrorContains(t, a.checkPaused(t.Context(), "shop", "eu"), "runtime/eu is paused by")
	require.ErrorContains(t, a.checkPaused(t.Context(), "other", "eu"), "runtime/eu is paused by")
	require.NoError(t, a.checkPaused(t.Context(), "shop", "us"))
}

// A drain blocks applies but not removals. During its restore it blocks neither, because each service waits for its permit to return.
func TestDrainBlocksAppliesButNotRemovals_A16(t *testing.T) {
	a := newActivities(t, &server{})
	drain := func(up bool) {
		p := pausedFor("new nodes")
		p.Drain = &entities.Drain{Restoring: up}
		require.NoError(t, a.Store.PutPause(t.Context(), "", protocol.ScopePause{Scope: protocol.RuntimeID("eu"), Pause: p}))
		a.pauses.reset()
	}
	drain(false)
	require.ErrorContains(t, a.checkPaused(t.Context(), "shop", "eu"), "runtime/eu is drained by")
	require.NoError(t, a.checkRemovalPaused(t.Context(), "shop", "eu"))
	drain(true)
	require.NoError(t, a.checkPaused(t.Context(), "shop", "eu"))
	require.NoError(t, a.Store.PutPause(t.Context(), "", protocol.ScopePause{Scope: protocol.RuntimeID("eu"), Pause: pausedFor("upgrade")}))
	a.pauses.reset()
	require.ErrorContains(t, a.checkRemovalPaused(t.Context(), "shop", "eu"), "runtime/eu is paused by")
}

// removableRuntime is a runtime that can remove what it runs, or returns an error.
type removableRuntime struct {
	blockingRuntime
	removed []runtimes.Request
	err     error
}

func (g *removableRuntime) Remove(ctx context.Context, in runtimes.Request) error {
	g.removed = append(g.removed, in)
	if errors.Is(g.err, context.DeadlineExceeded) {
		<-ctx.Done()
	}
	return g.err
}

func TestRemove_A24(t *testing.T) {
	a := newActivities(t, &server{})
	digest, err := a.Store.PutRuntime(t.Context(), entities.RuntimeDefinition{Name: "local", Kind: entities.RuntimeFake})
	require.NoError(t, err)
	payload := entities.Payload{Application: "shop", Service: "web", Channel: "prod", Runtime: "local"}
	applied, err := a.Store.PutPayload(t.Context(), payload)
	require.NoError(t, err)
	rt := &removableRuntime{}
	var made runtimes.Runtime = rt
	a.Factories = map[entities.RuntimeKind]Factory{
		entities.RuntimeFake: func(entities.RuntimeDefinition) (runtimes.Runtime, error) { return made, nil },
	}
	request := protocol.RemoveRequest{
		Application: "shop", Service: "web", ServiceID: "shop.web", Runtime: "local", RuntimeDigest: digest,
		Instance: protocol.InstanceRef{ID: entities.Only("prod"), FullVersion: "v1", Payload: applied}, Timeout: time.Minute, Sequence: 1,
	}
	answer, _, err := run[protocol.RemoveAnswer](t, a.Remove, request)
	require.NoError(t, err)
	require.Empty(t, answer.Err)
	require.Len(t, rt.removed, 1)
	require.Equal(t, &payload, rt.removed[0].Payload)
	require.Equal(t, "v1", rt.removed[0].FullVersion)

	rt.err = errors.New("blocked by finalizers")
	answer, _, err = run[protocol.RemoveAnswer](t, a.Remove, request)
	require.NoError(t, err)
	require.Equal(t, "blocked by finalizers", answer.Err)

	rt.err, request.Timeout = context.DeadlineExceeded, time.Millisecond
	answer, _, err = run[protocol.RemoveAnswer](t, a.Remove, request)
	require.NoError(t, err)
	require.Equal(t, "not removed within 1ms: context deadline exceeded", answer.Err)

	request.Runtime = "plain"
	request.RuntimeDigest, err = a.Store.PutRuntime(t.Context(), entities.RuntimeDefinition{Name: "plain", Kind: entities.RuntimeFake})
	require.NoError(t, err)
	made = &blockingRuntime{}
	answer, _, err = run[protocol.RemoveAnswer](t, a.Remove, request)
	require.NoError(t, err)
	require.Contains(t, answer.Err, "runtime plain (fake) does not support removal")
	require.Empty(t, a.runningApplies)
}

// The status of another service is queried from its workflow.
func TestServiceStatusIsQueried(t *testing.T) {
	s := &server{answers: map[string]any{
		"service/shop/api": protocol.Status{Service: "api", Version: "v3"},
	}}
	a := newActivities(t, s)
	status, err := services{a}.Status(t.Context(), "shop", "api")
	require.NoError(t, err)
	require.Equal(t, "v3", status.Version)
	_, err = services{a}.Status(t.Context(), "shop", "gone")
	require.ErrorContains(t, err, "shop/gone is not known")
	s.terminated = []string{"service/shop/api"}
	_, err = services{a}.Status(t.Context(), "shop", "api")
	require.ErrorIs(t, err, checks.ErrEnded, "a terminated workflow does not answer")
	s.terminated = nil

	old, err := a.Store.PutManifest(t.Context(), incarnation.Manifest{"api": "one"})
	require.NoError(t, err)
	s.answers["application/shop"] = protocol.ApplicationStatus{Newest: 7, Manifest: old, Incarnations: []protocol.Incarnation{
		{Number: 6, Manifest: old}, {Number: 7, Manifest: "other"},
	}}
	number, specs, err := services{a}.Newest(t.Context(), "shop")
	require.NoError(t, err)
	require.Equal(t, int64(6), number, "pinned")
	require.Equal(t, []string{"api"}, slices.Collect(maps.Keys(specs)))

	s.fail = map[string]error{"service/shop/api": errors.New("no answer")}
	_, err = services{a}.Status(t.Context(), "shop", "api")
	require.EqualError(t, err, "status of shop/api: no answer")
	_, err = services{a}.Parameters(t.Context(), "shop", "api", "prod", "v1")
	require.ErrorContains(t, err, "version v1 of shop/api")
}
