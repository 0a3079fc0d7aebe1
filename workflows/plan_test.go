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

// playedPlan plays the activities of a plan: services are deployed as soon as they are let in, and commands end as the test defines.
type playedPlan struct {
	*testing.T
	env   *testsuite.TestWorkflowEnvironment
	work  plan.Work
	built *plan.Plan
	begun protocol.PlanBegun
	state protocol.PlanState
	ends  func(protocol.PlanRunRequest) protocol.PlanRan // called by one goroutine at a time

	mu        sync.Mutex
	kept      protocol.PlanRecord
	now, most int           // running commands
	waits     chan struct{} // nil: commands end at once; otherwise they end when it is closed
	ran       []string      // "RECONCILE s1@site 1", in start order
	leases    []protocol.LeaseCall
	granted   map[string]bool // runtimes that grant leases
}

func newPlayedPlan(t *testing.T, work plan.Work) *playedPlan {
	t.Helper()
	p := &playedPlan{
		T: t, env: (&testsuite.WorkflowTestSuite{}).NewTestWorkflowEnvironment(), work: work, granted: map[string]bool{},
		ends: func(protocol.PlanRunRequest) protocol.PlanRan { return protocol.PlanRan{} },
	}
	p.env.SetTestTimeout(5 * time.Minute)
	var err error
	p.built, err = work.Plan(plan.Scope{All: true})
	require.NoError(t, err)
	p.begun.Plan, err = protocol.Pack(p.built)
	require.NoError(t, err)
	p.begun.Limit = work.Limit
	for name, f := range map[string]any{
		protocol.ActivityPlanBegin:    p.begin,
		protocol.ActivityPlanKeep:     p.keep,
		protocol.ActivityPlanFollow:   p.follow,
		protocol.ActivityPlanCommands: p.commands,
		protocol.ActivityPlanRun:      p.run,
		protocol.ActivityLease:        p.lease,
		protocol.ActivityGranted: func(_ context.Context, l protocol.LeaseSignal) (protocol.GrantedAnswer, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return protocol.GrantedAnswer{Granted: p.granted[l.Runtime]}, nil
		},
	} {
		p.env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
	}
	return p
}

func (p *playedPlan) begin(context.Context, protocol.PlanInput) (out protocol.PlanBegun, err error) {
	out = p.begun
	out.State, err = protocol.Pack(p.state)
	return out, err
}

func (p *playedPlan) keep(_ context.Context, k protocol.PlanKeepRequest) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = k.PlanRecord
	return nil
}

func (p *playedPlan) follow(context.Context, protocol.PlanRef) (out protocol.PlanFollowed, err error) {
	p.mu.Lock()
	for n, letter := range []byte(p.kept.Nodes) {
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
func (p *playedPlan) commands(_ context.Context, r protocol.PlanCommandsRequest) (out protocol.PlanCommands, err error) {
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

func (p *playedPlan) run(ctx context.Context, r protocol.PlanRunRequest) (protocol.PlanRan, error) {
	p.mu.Lock()
	p.now++
	p.most = max(p.most, p.now)
	name := r.PlanWork.String()
	if r.Command.Service != "" {
		name += " of " + r.Command.Service
	}
	p.ran = append(p.ran, fmt.Sprintf("%s %d", name, r.Attempt))
	waits := p.waits
	p.mu.Unlock()
	if waits != nil {
		select {
		case <-waits:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now--
	return p.ends(r), ctx.Err()
}

func (p *playedPlan) lease(_ context.Context, call protocol.LeaseCall) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leases = append(p.leases, call)
	if call.Request != nil && p.granted[call.Runtime] {
		p.env.SignalWorkflow(protocol.SignalGranted, protocol.LeaseSignal{ID: call.Request.ID, Runtime: call.Runtime})
	}
	return nil
}

// goes runs the plan, and returns how often each command ran.
func (p *playedPlan) goes() map[string]int {
	p.Helper()
	p.env.ExecuteWorkflow(Plan, protocol.PlanInput{PlanRef: protocol.PlanOfIncarnation("home", "live", 1)})
	require.True(p, p.env.IsWorkflowCompleted())
	count := map[string]int{}
	for _, line := range p.ran {
		count[line]++
	}
	return count
}

// undone has a line for each node that is not done.
func (p *playedPlan) undone() (lines []string) {
	for n, letter := range []byte(p.kept.Nodes) {
		if letter != plan.Done.Letter() {
			lines = append(lines, fmt.Sprintf("%s %c", &p.built.Nodes[n], letter))
		}
	}
	return lines
}

// fitted are count services on a target, each with a command of a kind.
func fitted(kind plan.Kind, target string, count int) (w plan.Work) {
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

func both(one, other plan.Work) plan.Work {
	one.Services, one.Commands = append(one.Services, other.Services...), append(one.Commands, other.Commands...)
	one.Targets = append(one.Targets, other.Targets...)
	return one
}

// The cost of an event grows with the number of running commands, so that is bounded, however many are ready.
func TestPlanHasSoMuchUnderWay_E8(t *testing.T) {
	t.Parallel()
	for _, kind := range []plan.Kind{plan.Reconcile, plan.Callback} {
		p := newPlayedPlan(t, fitted(kind, "site", 4*commandsAtOnce))
		p.waits = make(chan struct{})
		go func() {
			for {
				p.mu.Lock()
				full := p.now == commandsAtOnce
				p.mu.Unlock()
				if full || t.Context().Err() != nil {
					close(p.waits)
					return
				}
				<-time.After(time.Millisecond)
			}
		}()
		require.Len(t, p.goes(), 4*commandsAtOnce)
		require.NoError(t, p.env.GetWorkflowError())
		require.Len(t, p.ran, 4*commandsAtOnce, "each ran once")
		require.Equal(t, commandsAtOnce, p.most)
		require.Empty(t, p.undone())
		require.Empty(t, p.kept.Parts)
	}
}

// The parallel commands of CALLBACK count against the plan's limit.
func TestCallbackIsWithinTheCap_E2_E8(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 3} {
		work := fitted(plan.Callback, "site", 25)
		work.Limit = limit
		p := newPlayedPlan(t, work)
		p.ends = func(protocol.PlanRunRequest) protocol.PlanRan {
			<-time.After(time.Millisecond)
			return protocol.PlanRan{}
		}
		require.Len(t, p.goes(), 25)
		require.NoError(t, p.env.GetWorkflowError())
		require.Len(t, p.ran, 25)
		require.LessOrEqual(t, p.most, limit)
		require.Empty(t, p.undone())
	}
}

// Held commands, however many, do not block others, and continue on their own.
func TestHeldCommandsKeepNothingUp_E8(t *testing.T) {
	t.Parallel()
	p := newPlayedPlan(t, both(fitted(plan.Reconcile, "paused", 3*commandsAtOnce), fitted(plan.Reconcile, "site", 10)))
	site := 0
	p.ends = func(r protocol.PlanRunRequest) protocol.PlanRan {
		if r.Target == "site" {
			site++
		} else if site < 10 {
			return protocol.PlanRan{Held: "paused is paused"}
		}
		return protocol.PlanRan{}
	}
	p.goes()
	require.NoError(t, p.env.GetWorkflowError())
	require.Empty(t, p.undone())
	require.Greater(t, len(p.ran), 3*commandsAtOnce+10, "some were held, and retried")
	for _, line := range p.ran {
		require.True(t, strings.HasSuffix(line, " 1"), "a held command is not an attempt: %s", line)
	}
}

// On a serial target that is busy, waiting nodes do not block other targets.
func TestLeasesKeepNothingUp_E8_E14(t *testing.T) {
	t.Parallel()
	work := both(fitted(plan.Reconcile, "host", 2*commandsAtOnce), fitted(plan.Reconcile, "site", 10))
	work.Targets[0].Serial = true
	p := newPlayedPlan(t, work)
	site, host := 0, 0
	p.ends = func(r protocol.PlanRunRequest) protocol.PlanRan {
		if r.Target == "host" {
			host++
		} else if site++; site == 10 {
			require.Zero(t, host)
			p.granted["host"] = true
		}
		return protocol.PlanRan{}
	}
	p.goes()
	require.NoError(t, p.env.GetWorkflowError())
	require.Empty(t, p.undone())
	require.Equal(t, 2*commandsAtOnce, host)
	asked, given := map[string]bool{}, map[string]bool{}
	for _, call := range p.leases {
		if call.Request != nil {
			asked[call.Request.ID] = true
		}
		if call.Give != "" {
			given[call.Give] = true
		}
	}
	require.Len(t, asked, 2*commandsAtOnce)
	require.Equal(t, asked, given)
}

// If a run ends during CALLBACK, the next one continues with the remaining commands and keeps the count of attempts.
func TestCallbackGoesOnInAnotherRun_E2_E8(t *testing.T) {
	t.Parallel()
	work := fitted(plan.Callback, "site", 120)
	work.Limit = 5
	p := newPlayedPlan(t, work)
	ended := 0
	p.env.SetOnActivityCompletedListener(func(*activity.Info, converter.EncodedValue, error) { // where the workflow does not run at the same time
		p.mu.Lock()
		defer p.mu.Unlock()
		p.env.SetContinueAsNewSuggested(ended >= 40)
	})
	p.ends = func(r protocol.PlanRunRequest) protocol.PlanRan {
		ended++
		if r.Command.Service == "site3" {
			return protocol.PlanRan{ExtensionAnswer: protocol.ExtensionAnswer{Err: "not yet"}}
		}
		return protocol.PlanRan{}
	}
	before := p.goes()
	var goesOn *workflow.ContinueAsNewError
	require.True(t, errors.As(p.env.GetWorkflowError(), &goesOn), p.env.GetWorkflowError())
	require.Len(t, p.kept.Parts, 1)
	require.Less(t, len(before), 60, "the run ended early")

	next := newPlayedPlan(t, work)
	var err error
	next.state = p.kept.PlanState
	require.NoError(t, err)
	after := next.goes()
	require.NoError(t, next.env.GetWorkflowError())
	require.Empty(t, next.undone())
	require.Empty(t, next.kept.Parts)
	for line := range after {
		require.Zero(t, before[line], "%s ran in both", line)
	}
	ran := map[string]bool{}
	for _, line := range append(p.ran, next.ran...) {
		ran[line[:strings.LastIndexByte(line, ' ')]] = true
	}
	require.Len(t, ran, 120)
	require.NotZero(t, after["CALLBACK of site3 2"]+after["CALLBACK of site3 3"], "its attempts are counted across runs")
}

// A failed command is retried up to its limit, without those before it. CALLBACK fails once one command has failed for good.
func TestCommandsAreTriedAgain_E10(t *testing.T) {
	t.Parallel()
	work := fitted(plan.Reconcile, "site", 1)
	for _, name := range []string{"second", "third"} {
		run := work.Commands[0].Run
		run.Name = name
		work.Commands = append(work.Commands, plan.Command{Kind: plan.Reconcile, Service: "site0", Run: run})
	}
	for _, fails := range []int{2, 3} {
		p := newPlayedPlan(t, work)
		p.ends = func(r protocol.PlanRunRequest) protocol.PlanRan {
			if r.Command.Run.Name == "second" && r.Attempt <= fails {
				return protocol.PlanRan{ExtensionAnswer: protocol.ExtensionAnswer{Err: "not yet"}}
			}
			return protocol.PlanRan{}
		}
		count := p.goes()
		require.NoError(t, p.env.GetWorkflowError())
		if fails == 2 {
			require.Equal(t, map[string]int{"RECONCILE site0@site of site0 1": 3, "RECONCILE site0@site of site0 2": 1, "RECONCILE site0@site of site0 3": 1}, count)
			require.Empty(t, p.undone())
			continue
		}
		require.Equal(t, []string{"RECONCILE site0@site f"}, p.undone())
		require.Equal(t, "second: not yet", p.kept.Notes[0].Text)
	}
}
