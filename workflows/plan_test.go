package workflows

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
)

// planTest simulates the activities of a plan: services are deployed as soon as they are let in, and commands end as the test defines.
type planTest struct {
	*testing.T
	env           *testsuite.TestWorkflowEnvironment
	work          plan.Work
	built         *plan.Plan
	planBegun     protocol.PlanStart
	state         protocol.PlanState
	commandResult func(protocol.PlanRunRequest) protocol.PlanRunAnswer // called by one goroutine at a time

	mu                  sync.Mutex
	saved               protocol.PlanRecord
	running, maxRunning int           // running commands
	release             chan struct{} // nil: commands end at once; otherwise they end when it is closed
	commandsRun         []string      // "RECONCILE s1@site 1", in start order
	leases              []protocol.LeaseCall
	grantingRuntimes    map[string]bool // runtimes that grant leases
}

func newPlanTest(t *testing.T, work plan.Work) *planTest {
	t.Helper()
	p := &planTest{
		T: t, env: (&testsuite.WorkflowTestSuite{}).NewTestWorkflowEnvironment(), work: work, grantingRuntimes: map[string]bool{},
		commandResult: func(protocol.PlanRunRequest) protocol.PlanRunAnswer { return protocol.PlanRunAnswer{} },
	}
	p.env.SetTestTimeout(5 * time.Minute)
	var err error
	p.built, err = work.Plan(plan.Scope{All: true})
	require.NoError(t, err)
	p.planBegun.Plan, err = protocol.Pack(p.built)
	require.NoError(t, err)
	p.planBegun.Limit = work.Limit
	for name, f := range map[string]any{
		protocol.ActivityPlanBegin:    p.begin,
		protocol.ActivityPlanKeep:     p.save,
		protocol.ActivityPlanFollow:   p.follow,
		protocol.ActivityPlanCommands: p.commands,
		protocol.ActivityPlanRun:      p.run,
		protocol.ActivityLease:        p.lease,
		protocol.ActivityGranted: func(_ context.Context, l protocol.LeaseSignal) (protocol.GrantedAnswer, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return protocol.GrantedAnswer{Granted: p.grantingRuntimes[l.Runtime]}, nil
		},
	} {
		p.env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
	}
	return p
}

func (p *planTest) begin(context.Context, protocol.PlanInput) (out protocol.PlanStart, err error) {
	out = p.planBegun
	out.State, err = protocol.Pack(p.state)
	return out, err
}

func (p *planTest) save(_ context.Context, k protocol.PlanKeepRequest) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.saved = k.PlanRecord
	return nil
}

func (p *planTest) follow(context.Context, protocol.PlanRef) (out protocol.PlanFollowAnswer, err error) {
	p.mu.Lock()
	for n, letter := range []byte(p.saved.Nodes) {
		if p.built.Nodes[n].Kind == plan.Deploy && letter == plan.Running.Letter() {
			out.Nodes = append(out.Nodes, protocol.PlanNode{Node: n, State: string(plan.Done)})
		}
	}
	p.mu.Unlock()
	if len(out.Nodes) == 0 {
		return out, activity.ErrResultPending
	}
	return out, nil
}

// commands lists commands in parts of ten.
func (p *planTest) commands(_ context.Context, r protocol.PlanCommandsRequest) (out protocol.PlanCommands, err error) {
	for at, c := range p.work.CommandsOf(&plan.Node{Kind: plan.Kind(r.Kind), Service: r.Service, Target: r.Target}) {
		switch {
		case at >= r.From+10:
			out.Next = r.From + 10
			return out, nil
		case at >= r.From:
			out.Commands = append(out.Commands, protocol.PlanCommand{Service: c.Service, Run: c.Run, At: at})
		}
	}
	return out, nil
}

func (p *planTest) run(ctx context.Context, r protocol.PlanRunRequest) (protocol.PlanRunAnswer, error) {
	p.mu.Lock()
	p.running++
	p.maxRunning = max(p.maxRunning, p.running)
	name := r.PlanWork.String()
	if r.Command.Service != "" {
		name += " of " + r.Command.Service
	}
	p.commandsRun = append(p.commandsRun, fmt.Sprintf("%s %d", name, r.Attempt))
	waits := p.release
	p.mu.Unlock()
	if waits != nil {
		select {
		case <-waits:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	return p.commandResult(r), ctx.Err()
}

func (p *planTest) lease(_ context.Context, call protocol.LeaseCall) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leases = append(p.leases, call)
	if call.Request != nil && p.grantingRuntimes[call.Runtime] {
		p.env.SignalWorkflow(protocol.SignalGranted, protocol.LeaseSignal{ID: call.Request.ID, Runtime: call.Runtime})
	}
	return nil
}

// runPlan runs the plan, and returns how often each command ran.
func (p *planTest) runPlan() map[string]int {
	p.Helper()
	p.env.ExecuteWorkflow(Plan, protocol.PlanInput{PlanRef: protocol.PlanOfIncarnation("home", "live", 1)})
	require.True(p, p.env.IsWorkflowCompleted())
	count := map[string]int{}
	for _, line := range p.commandsRun {
		count[line]++
	}
	return count
}

// unfinishedNodes has a line for each node that is not done.
func (p *planTest) unfinishedNodes() (lines []string) {
	for n, letter := range []byte(p.saved.Nodes) {
		if letter != plan.Done.Letter() {
			lines = append(lines, fmt.Sprintf("%s %c", &p.built.Nodes[n], letter))
		}
	}
	return lines
}

// servicesOn are count services on a target, each with a command of a kind.
func servicesOn(kind plan.Kind, target string, count int) (w plan.Work) {
	for n := range count {
		name := fmt.Sprintf("%s%d", target, n)
		w.Services = append(w.Services, plan.Service{
			Name: name, Targets: []string{target}, Reconciles: kind == plan.Reconcile, SetupCallback: kind == plan.Callback,
		})
		w.Commands = append(w.Commands, plan.Command{Kind: kind, Service: name, Run: entities.Extension{Name: "setup", Timeout: time.Minute, MaxAttempts: 3}})
	}
	w.Targets = []plan.Target{{Name: target}}
	return w
}

func combine(one, other plan.Work) plan.Work {
	one.Services, one.Commands = append(one.Services, other.Services...), append(one.Commands, other.Commands...)
	one.Targets = append(one.Targets, other.Targets...)
	return one
}

// The cost of an event grows with the number of running commands, so that is bounded, however many are ready.
func TestPlanBoundsRunningCommands_E8(t *testing.T) {
	t.Parallel()
	for _, kind := range []plan.Kind{plan.Reconcile, plan.Callback} {
		p := newPlanTest(t, servicesOn(kind, "site", 4*maxRunningCommands))
		p.release = make(chan struct{})
		go func() {
			for {
				p.mu.Lock()
				full := p.running == maxRunningCommands
				p.mu.Unlock()
				if full || t.Context().Err() != nil {
					close(p.release)
					return
				}
				<-time.After(time.Millisecond)
			}
		}()
		require.Len(t, p.runPlan(), 4*maxRunningCommands)
		require.NoError(t, p.env.GetWorkflowError())
		require.Len(t, p.commandsRun, 4*maxRunningCommands, "each ran once")
		require.Equal(t, maxRunningCommands, p.maxRunning)
		require.Empty(t, p.unfinishedNodes())
		require.Empty(t, p.saved.Parts)
	}
}

// The parallel commands of CALLBACK count against the plan's limit.
func TestCallbackCountsAgainstLimit_E2_E8(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 3} {
		work := servicesOn(plan.Callback, "site", 25)
		work.Limit = limit
		p := newPlanTest(t, work)
		p.commandResult = func(protocol.PlanRunRequest) protocol.PlanRunAnswer {
			<-time.After(time.Millisecond)
			return protocol.PlanRunAnswer{}
		}
		require.Len(t, p.runPlan(), 25)
		require.NoError(t, p.env.GetWorkflowError())
		require.Len(t, p.commandsRun, 25)
		require.LessOrEqual(t, p.maxRunning, limit)
		require.Empty(t, p.unfinishedNodes())
	}
}

// Held commands, however many, do not block others, and continue on their own.
func TestHeldCommandsBlockNoOthers_E8(t *testing.T) {
	t.Parallel()
	p := newPlanTest(t, combine(servicesOn(plan.Reconcile, "paused", 3*maxRunningCommands), servicesOn(plan.Reconcile, "site", 10)))
	site := 0
	p.commandResult = func(r protocol.PlanRunRequest) protocol.PlanRunAnswer {
		if r.Target == "site" {
			site++
		} else if site < 10 {
			return protocol.PlanRunAnswer{HoldReason: "paused is paused"}
		}
		return protocol.PlanRunAnswer{}
	}
	p.runPlan()
	require.NoError(t, p.env.GetWorkflowError())
	require.Empty(t, p.unfinishedNodes())
	require.Greater(t, len(p.commandsRun), 3*maxRunningCommands+10, "some were held, and retried")
	for _, line := range p.commandsRun {
		require.True(t, strings.HasSuffix(line, " 1"), "a held command is not an attempt: %s", line)
	}
}

// On a serial target that is busy, waiting nodes do not block other targets.
func TestWaitingLeasesBlockNoOthers_E8_E14(t *testing.T) {
	t.Parallel()
	work := combine(servicesOn(plan.Reconcile, "host", 2*maxRunningCommands), servicesOn(plan.Reconcile, "site", 10))
	work.Targets[0].Serial = true
	p := newPlanTest(t, work)
	site, host := 0, 0
	p.commandResult = func(r protocol.PlanRunRequest) protocol.PlanRunAnswer {
		if r.Target == "host" {
			host++
		} else if site++; site == 10 {
			require.Zero(t, host)
			p.grantingRuntimes["host"] = true
		}
		return protocol.PlanRunAnswer{}
	}
	p.runPlan()
	require.NoError(t, p.env.GetWorkflowError())
	require.Empty(t, p.unfinishedNodes())
	require.Equal(t, 2*maxRunningCommands, host)
	asked, given := map[string]bool{}, map[string]bool{}
	for _, call := range p.leases {
		if call.Request != nil {
			asked[call.Request.ID] = true
		}
		if call.Return != "" {
			given[call.Return] = true
		}
	}
	require.Len(t, asked, 2*maxRunningCommands)
	require.Equal(t, asked, given)
}

// If a run ends during CALLBACK, the next one continues with the remaining commands and keeps the count of attempts.
func TestCallbackContinuesInNextRun_E2_E8(t *testing.T) {
	t.Parallel()
	work := servicesOn(plan.Callback, "site", 120)
	work.Limit = 5
	p := newPlanTest(t, work)
	ended := 0
	// The listener runs while the workflow does not.
	p.env.SetOnActivityCompletedListener(func(*activity.Info, converter.EncodedValue, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.env.SetContinueAsNewSuggested(ended >= 40)
	})
	p.commandResult = func(r protocol.PlanRunRequest) protocol.PlanRunAnswer {
		ended++
		if r.Command.Service == "site3" {
			return protocol.PlanRunAnswer{ExtensionAnswer: protocol.ExtensionAnswer{Err: "not yet"}}
		}
		return protocol.PlanRunAnswer{}
	}
	before := p.runPlan()
	var continued *workflow.ContinueAsNewError
	require.True(t, errors.As(p.env.GetWorkflowError(), &continued), p.env.GetWorkflowError())
	require.Len(t, p.saved.Parts, 1)
	require.Less(t, len(before), 60, "the run ended early")

	next := newPlanTest(t, work)
	var err error
	next.state = p.saved.PlanState
	require.NoError(t, err)
	after := next.runPlan()
	require.NoError(t, next.env.GetWorkflowError())
	require.Empty(t, next.unfinishedNodes())
	require.Empty(t, next.saved.Parts)
	for line := range after {
		require.Zero(t, before[line], "%s ran in both", line)
	}
	ran := map[string]bool{}
	for _, line := range append(p.commandsRun, next.commandsRun...) {
		ran[line[:strings.LastIndexByte(line, ' ')]] = true
	}
	require.Len(t, ran, 120)
	require.NotZero(t, after["CALLBACK of site3 2"]+after["CALLBACK of site3 3"], "its attempts are counted across runs")
}

// A failed command is retried up to its limit, without those before it. CALLBACK fails once one command has failed for good.
func TestFailedCommandsAreRetried_E10(t *testing.T) {
	t.Parallel()
	work := servicesOn(plan.Reconcile, "site", 1)
	for _, name := range []string{"second", "third"} {
		run := work.Commands[0].Run
		run.Name = name
		work.Commands = append(work.Commands, plan.Command{Kind: plan.Reconcile, Service: "site0", Run: run})
	}
	for _, fails := range []int{2, 3} {
		p := newPlanTest(t, work)
		p.commandResult = func(r protocol.PlanRunRequest) protocol.PlanRunAnswer {
			if r.Command.Run.Name == "second" && r.Attempt <= fails {
				return protocol.PlanRunAnswer{ExtensionAnswer: protocol.ExtensionAnswer{Err: "not yet"}}
			}
			return protocol.PlanRunAnswer{}
		}
		count := p.runPlan()
		require.NoError(t, p.env.GetWorkflowError())
		if fails == 2 {
			require.Equal(t, map[string]int{"RECONCILE site0@site of site0 1": 3, "RECONCILE site0@site of site0 2": 1, "RECONCILE site0@site of site0 3": 1}, count)
			require.Empty(t, p.unfinishedNodes())
			continue
		}
		require.Equal(t, []string{"RECONCILE site0@site f"}, p.unfinishedNodes())
		require.Equal(t, "second: not yet", p.saved.Notes[0].Text)
	}
}
