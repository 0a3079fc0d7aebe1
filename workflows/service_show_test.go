package workflows

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// otherDisplays are the displays of the same state by a version with other texts, other statuses or a bug.
var otherDisplays = map[string]func(*state.State, *decide.Decision) uiState{
	"always the same": func(*state.State, *decide.Decision) uiState { return uiState{} },
	"always another": func() func(*state.State, *decide.Decision) uiState {
		n := 0
		return func(*state.State, *decide.Decision) uiState {
			n++
			return uiState{attributes: attributes{Status: string(rune('A' + n%26)), WaitingFor: []string{"nobody"}}}
		}
	}(),
	"a panic": func(*state.State, *decide.Decision) uiState { panic("a bug") },
}

// A history replays with any texts and statuses of the display. It did not when the display was not recorded, which is why runs that
// started then keep their texts.
func TestDisplayNeverBreaksAReplay_F3(t *testing.T) {
	for name, view := range otherDisplays {
		t.Run(name, func(t *testing.T) {
			for _, run := range recordedServices(t) {
				require.NoError(t, replayShowing(view, run), run)
			}
		})
	}
}

// The task that starts an apply does nothing that can wait: the attributes show the apply some seconds later, if it still runs then.
func TestApplyStartsBeforeAttributesAreUpdated(t *testing.T) {
	statusesOf := func(play func(*serviceTest)) (seen map[string]time.Duration) {
		p := newServiceTest(t)
		seen = map[string]time.Duration{}
		var began time.Time
		p.env.OnUpsertTypedSearchAttributes(mock.Anything).Run(func(args mock.Arguments) {
			given := args.Get(0).(temporal.SearchAttributes)
			status, _ := given.GetKeyword(attrStatus)
			version, _ := given.GetKeyword(attrVersion)
			if !began.IsZero() {
				seen[status+version] = p.env.Now().Sub(began)
			}
		}).Return(nil)
		p.publish(0)
		p.at(second, func() { began = p.env.Now() })
		p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
		play(p)
		p.run(firstInput, minute)
		require.Equal(t, []string{"apply v1 to staging", "apply v1 to prod"}, p.startedActivities("keep"))
		return seen
	}
	require.Equal(t, map[string]time.Duration{"v1": 0}, statusesOf(func(*serviceTest) {}), "a short apply is not shown as running")
	require.Equal(t, map[string]time.Duration{"CONVERGINGv1": attributesDelay, "CONVERGED": minute}, statusesOf(func(p *serviceTest) {
		p.hangApply("v1 to staging")
		p.completeApply(minute+second, "v1 to staging")
	}))
	require.Equal(t, map[string]time.Duration{"v1": 4 * second}, statusesOf(func(p *serviceTest) {
		p.hangApply("v1 to staging")
		p.sendSignal(3*second, protocol.Refresh, `{}`)
		p.completeApply(5*second, "v1 to staging")
	}), "nor in a task with another cause, while the apply runs")
}

func recordedServices(t *testing.T) []string {
	t.Helper()
	runs, err := filepath.Glob("../tests/testdata/histories/v1/service-*.json")
	require.NoError(t, err)
	require.NotEmpty(t, runs)
	return runs
}

func replayShowing(view func(*state.State, *decide.Decision) uiState, run string) error {
	r, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{
		Interceptors: []interceptor.WorkerInterceptor{&Arrivals{}},
	})
	if err != nil {
		return err
	}
	r.RegisterWorkflowWithOptions(func(ctx workflow.Context, in protocol.ServiceInput) error {
		s := newService(ctx, in)
		s.view = view
		return s.run(in.CarriedState, in.StartMode)
	}, workflow.RegisterOptions{Name: protocol.ServiceWorkflow})
	return r.ReplayWorkflowHistoryFromJSONFile(silent{}, run)
}

// silent suppresses the log of a replay that is meant to fail.
type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}

var _ log.Logger = silent{}
