package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/converge-engine/converge/tests/programtest"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/fakeruntime"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// home are services that are fitted together: commands write their node, and when, into the directory DIR. What a command waits for,
// or fails for, are files there.
const home = `apiVersion: converge/v1
kind: Application
name: APP
plan: {dns: {command: [./run]}PLAN}
releaseChannels: [{name: production, runtimes: [{name: APP-rt}], constants: {zone: ZONE}}CHANNELS]
---
apiVersion: converge/v1
kind: Runtime
name: APP-rtSERIAL
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
---
{apiVersion: converge/v1, kind: Service, name: postgres, initialVersion: v1, custom: {env: {ZONE: "${{ constants.zone }}"}}}
---
{apiVersion: converge/v1, kind: Service, name: sonarr, initialVersion: v1, requires: [postgres], custom: {env: {ZONE: "${{ constants.zone }}"}},
 feeds: [{aggregator: traefik, content: "sonarr in ${{ constants.zone }}"}], reconcilers: [{name: register, command: [./run]}]}
---
{apiVersion: converge/v1, kind: Service, name: prowlarr, initialVersion: v1, custom: {env: {ZONE: "${{ constants.zone }}"}},
 feeds: [{aggregator: traefik, content: "prowlarr in ${{ constants.zone }}"}],
 reconcilers: [{name: register, requires: [sonarr], command: [./run]}]}
---
{apiVersion: converge/v1, kind: Service, name: jellyfin, initialVersion: v1, dns: [{name: tv.example.org}], custom: {env: {ZONE: "${{ constants.zone }}"}}}
---
{apiVersion: converge/v1, kind: Service, name: traefik, initialVersion: v1, aggregator: {sync: {strategy: dir, command: [./run]}}, custom: {env: {ZONE: "${{ constants.zone }}"}}}
`

// run is the command of every node.
const run = `#!/bin/sh
echo "begin $CONVERGE_NODE" >> "$(dirname "$0")/log"
name=$(echo "$CONVERGE_NODE" | tr ' @' '__')
cp "$PVN_PLAN_FILE" "$(dirname "$0")/got-$name" && echo "$PVN_SERVICE" >> "$(dirname "$0")/ran-$name"
while [ -e "$(dirname "$0")/hold-$name" ]; do sleep 0.05; done
[ ! -e "$(dirname "$0")/fail-$name" ] || { echo "no such thing" >&2; echo "fail $CONVERGE_NODE" >> "$(dirname "$0")/log"; exit 1; }
echo "end $CONVERGE_NODE" >> "$(dirname "$0")/log"
`

// household is a world with plans.
type household struct{ *world }

func newHousehold(w *world) *household {
	programtest.Write(w.T, filepath.Join(w.Dir, "run"), run)
	return &household{w}
}

// configure publishes the home with a zone, which the payload of every service has, and more that is said of plans.
func (h *household) configure(zone, rules string) {
	h.T.Helper()
	h.Write(strings.NewReplacer("ZONE}", zone+"}", "PLAN}", rules+"}", "CHANNELS]", "]", "SERIAL\n", "\n").Replace(home))
	h.Publish()
}

// on has something be there while commands run: "hold-DNS" holds DNS, "fail-DNS" fails it. It returns what takes it away.
func (h *household) on(what string) (off func()) {
	h.T.Helper()
	name := filepath.Join(h.Dir, strings.NewReplacer(" ", "_", "@", "_").Replace(what))
	require.NoError(h.T, os.WriteFile(name, nil, 0o600))
	return func() { require.NoError(h.T, os.Remove(name)) }
}

// states are those of nodes.
func states(nodes map[string]protocol.PlanNodeStatus) map[string]string {
	out := map[string]string{}
	for name, n := range nodes {
		out[name] = n.State
	}
	return out
}

// awaitLog waits until a command has written something.
func (h *household) awaitLog(line string) {
	h.T.Helper()
	temporaltest.WaitFor(h.T, stage.Patience, func() (bool, string) {
		log := h.log()
		return slices.Contains(log, line), fmt.Sprintf("want %s, have %v", line, log)
	})
}

// ask has somebody run the plan of an incarnation once more.
func (h *household) ask(incarnation int64, asked protocol.PlanTask) {
	h.T.Helper()
	ref := protocol.PlanOfIncarnation(h.App, "production", incarnation)
	asked.Incarnation = incarnation
	at, err := store.Open(h.T.Context(), h.Store)
	require.NoError(h.T, err)
	defer at.Close()
	_, err = activities.StartPlan(h.T.Context(), h.Client, at, ref, asked)
	require.NoError(h.T, err)
}

// plan asks a plan how far it is.
func (h *household) plan(name string) (s protocol.PlanStatus, err error) {
	ref := protocol.PlanRef{Application: h.App, Channel: "production", Name: name}
	value, err := temporaltest.Query(h.T.Context(), h.Client, ref.ID(), protocol.QueryStatus)
	if err == nil {
		err = value.Get(&s)
	}
	return s, err
}

// awaitPlan waits until the nodes of a plan are as wanted, one in a line, with what is said of each.
func (h *household) awaitPlan(name string, cond func(map[string]protocol.PlanNodeStatus, protocol.PlanStatus) bool) map[string]protocol.PlanNodeStatus {
	h.T.Helper()
	var nodes map[string]protocol.PlanNodeStatus
	temporaltest.WaitFor(h.T, stage.Patience, func() (bool, string) {
		s, err := h.plan(name)
		if err != nil {
			return false, err.Error()
		}
		nodes = map[string]protocol.PlanNodeStatus{}
		for _, n := range s.Nodes {
			nodes[strings.ReplaceAll(n.Node, "@"+h.App+"-rt", "")] = n
		}
		return cond(nodes, s), fmt.Sprintf("%+v", s)
	})
	return nodes
}

// over: nothing more comes of a plan.
func over(_ map[string]protocol.PlanNodeStatus, s protocol.PlanStatus) bool { return s.Over }

// log is what commands did, without the target.
func (h *household) log() []string {
	h.T.Helper()
	data, err := os.ReadFile(filepath.Join(h.Dir, "log"))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(h.T, err)
	return strings.Split(strings.TrimSuffix(strings.ReplaceAll(string(data), "@"+h.App+"-rt", ""), "\n"), "\n")
}

// A service comes after those that it requires, and what fits them together after all of them.
func TestPlanDeploysInOrder_E1_E3_E4_E5(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	postgres := h.Fake.At(h.App, "postgres", "production")
	release := postgres.HangApplies()
	h.configure("one", "")
	h.Await("traefik", "production CONVERGED v1")
	waitsFor(h.World, "sonarr", "plan/deploy: waits for DEPLOY postgres@"+h.App+"-rt in plan i1, which is running")
	require.Zero(t, h.Fake.At(h.App, "sonarr", "production").Applies())
	release()
	h.Await("sonarr", "production CONVERGED v1")
	nodes := h.awaitPlan("i1", over)
	for name, n := range nodes {
		require.Equal(t, "done", n.State, name)
	}
	log := h.log()
	require.Less(t, slices.Index(log, "end SYNC traefik"), slices.Index(log, "begin RECONCILE sonarr"))
	require.Less(t, slices.Index(log, "end RECONCILE sonarr"), slices.Index(log, "begin RECONCILE prowlarr"))
	require.Len(t, log, 8)
}

// What is tried again later says so, and takes no place meanwhile.
func TestRetriedCommandBlocksNoOther_E8_E10(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	works := h.on("fail-SYNC_traefik_" + h.App + "-rt")
	const sync = "sync: {strategy: dir, command: [./run]"
	require.Contains(t, home, sync)
	h.Write(strings.NewReplacer("ZONE}", "one}", "PLAN}", ", maxParallelism: 1}", sync, sync+", retry: {backoff: 2s}", "CHANNELS]", "]", "SERIAL\n", "\n").Replace(home))
	h.Publish()
	nodes := h.awaitPlan("i1", func(nodes map[string]protocol.PlanNodeStatus, _ protocol.PlanStatus) bool {
		return nodes["SYNC traefik"].State == "held" && nodes["DEPLOY sonarr"].State == "done" && nodes["DNS"].State == "done"
	})
	require.Regexp(t, `^sync failed, attempt \d of 5: \./run exited 1: no such thing; again in \d+s$`, nodes["SYNC traefik"].Text)
	works()
	require.Equal(t, "done", states(h.awaitPlan("i1", over))["RECONCILE prowlarr"])
}

// The DEPLOY of Sonarr fails: its RECONCILE and that of Prowlarr, which requires it, are blocked, and say by what; everything else runs.
func TestFailedDeployIsContained_E10_E11(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	h.Fake.At(h.App, "sonarr", "production").FailAppliesPermanently(1, "no such image")
	h.configure("one", "")
	nodes := h.awaitPlan("i1", over)
	require.Equal(t, map[string]string{
		"DEPLOY postgres": "done", "DEPLOY sonarr": "failed", "DEPLOY prowlarr": "done", "DEPLOY jellyfin": "done", "DEPLOY traefik": "done",
		"SYNC traefik": "done", "RECONCILE sonarr": "blocked", "RECONCILE prowlarr": "blocked", "DNS": "done",
	}, states(nodes))
	require.Contains(t, nodes["DEPLOY sonarr"].Text, "no such image")
	for _, blocked := range []string{"RECONCILE sonarr", "RECONCILE prowlarr"} {
		require.Equal(t, "by DEPLOY sonarr@"+h.App+"-rt", nodes[blocked].Text)
	}
	require.Subset(t, []string{"begin SYNC traefik", "end SYNC traefik", "begin DNS", "end DNS"}, h.log())
	require.Equal(t, []string{"prowlarr in one"}, h.given())
}

// given is what the proxy was given last.
func (h *household) given() (all []string) {
	h.T.Helper()
	for _, f := range h.input("SYNC_traefik_" + h.App + "-rt").Fragments {
		all = append(all, f.Content)
	}
	return all
}

// A service whose DEPLOY fails keeps the route that it had, beside the new ones of others: whether the proxy is given them before that or
// after it, by the plan of the configuration or by that of a release of something else. One that never was deployed has none.
func TestFailedServiceKeepsItsRoute_E3_E11(t *testing.T) {
	t.Parallel()
	for _, callback := range []bool{false, true} {
		t.Run(fmt.Sprintf("setupCallback %t", callback), func(t *testing.T) {
			t.Parallel()
			h := newHousehold(newWorld(t))
			configure := func(zone string) {
				text := home
				if callback {
					text = strings.Replace(text, "name: sonarr, initialVersion: v1,", "name: sonarr, initialVersion: v1, setupCallback: {command: [./run]},", 1)
				}
				h.Write(strings.NewReplacer("ZONE}", zone+"}", "PLAN}", "}", "CHANNELS]", "]", "SERIAL\n", "\n").Replace(text))
				h.Publish()
			}
			sonarr := h.Fake.At(h.App, "sonarr", "production")
			sonarr.FailAppliesPermanently(1, "no such image")
			configure("one")
			require.Equal(t, "failed", states(h.awaitPlan("i1", over))["DEPLOY sonarr"])
			require.Equal(t, []string{"prowlarr in one"}, h.given())
			require.NoFileExists(t, filepath.Join(h.Dir, "ran-CALLBACK"), "it was not set up")

			configure("two")
			for node, state := range states(h.awaitPlan("i2", over)) {
				require.Equal(t, "done", state, node)
			}
			require.Equal(t, []string{"prowlarr in two", "sonarr in two"}, h.given())

			sonarr.FailAppliesPermanently(1, "no such image")
			configure("three")
			got := states(h.awaitPlan("i3", over))
			require.Equal(t, "failed", got["DEPLOY sonarr"])
			require.Equal(t, "done", got["SYNC traefik"])
			require.Equal(t, []string{"prowlarr in three", "sonarr in two"}, h.given())

			h.Release("prowlarr", "v2") // its plan knows nothing of sonarr
			h.awaitPlan("prowlarr-v2", over)
			require.Equal(t, []string{"prowlarr in three", "sonarr in two"}, h.given())

			configure("four")
			for node, state := range states(h.awaitPlan("i4", over)) {
				require.Equal(t, "done", state, node)
			}
			require.Equal(t, []string{"prowlarr in four", "sonarr in four"}, h.given())
		})
	}
}

// What a plan did that was not done whole is undone by the plan that takes the change back, though the configuration is as it was when one last was.
func TestChangeThatIsTakenBackIsUndone_E7_E11(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	h.configure("one", "")
	require.NotContains(t, states(h.awaitPlan("i1", over)), "failed")
	h.Fake.At(h.App, "sonarr", "production").FailAppliesPermanently(1, "no such image")
	h.configure("two", "")
	require.Equal(t, "failed", states(h.awaitPlan("i2", over))["DEPLOY sonarr"])
	require.Equal(t, []string{"prowlarr in two", "sonarr in one"}, h.given())
	h.configure("one", "")
	for node, state := range states(h.awaitPlan("i3", over)) {
		require.Equal(t, "done", state, node)
	}
	require.Equal(t, []string{"prowlarr in one", "sonarr in one"}, h.given())
}

// A release by hand of a version of an earlier configuration is fitted together with what all others are now.
func TestReleaseOfAnEarlierVersionKeepsTheRoutesOfNow_E7_E11(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	h.configure("one", "")
	h.awaitPlan("i1", over)
	h.Release("sonarr", "v2")
	h.awaitPlan("sonarr-v2", over)
	h.configure("two", "")
	h.awaitPlan("i2", over)
	require.Contains(t, h.given(), "prowlarr in two")
	before := len(h.log())
	h.Release("sonarr", "v2") // as it was made, with the first configuration
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		did := h.log()[before:]
		return slices.Contains(did, "end SYNC traefik"), fmt.Sprint(did)
	})
	require.Contains(t, h.given(), "prowlarr in two")
}

// A service that nobody looks after is waited for like one that waits for people: it takes no place of others.
func TestUnmanagedServiceBlocksNoOther_E8(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	h.configure("one", ", maxParallelism: 1")
	require.NotContains(t, states(h.awaitPlan("i1", over)), "failed")
	var answer protocol.Answer
	require.NoError(t, h.Update(protocol.ApplicationID(h.App), protocol.Unmanage, protocol.ManageRequest{RequestMeta: protocol.RequestMeta{By: "bob", Reason: "broken"}, Service: "prowlarr"}, &answer))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		d, err := h.Client.DescribeWorkflowExecution(t.Context(), h.ID("prowlarr"), "")
		require.NoError(t, err)
		status := d.GetWorkflowExecutionInfo().GetStatus()
		return status == enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED, status.String()
	})
	h.configure("two", ", maxParallelism: 1")
	nodes := h.awaitPlan("i2", func(n map[string]protocol.PlanNodeStatus, _ protocol.PlanStatus) bool {
		return n["DEPLOY prowlarr"].State == "held" && n["DEPLOY traefik"].State == "done" && n["DEPLOY jellyfin"].State == "done" && n["RECONCILE sonarr"].State == "done"
	})
	require.Contains(t, nodes["DEPLOY prowlarr"].Text, "it is not managed")
	require.NoError(t, h.Update(protocol.ApplicationID(h.App), protocol.Manage, protocol.ManageRequest{RequestMeta: protocol.RequestMeta{By: "bob"}, Service: "prowlarr"}, &answer))
	for node, state := range states(h.awaitPlan("i2", over)) {
		require.Equal(t, "done", state, node)
	}
}

// A plan that is still in its steps before all else when a newer one has run begins nothing more.
func TestPlanInItsStepsIsPassed_E13_E15(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	const rules = ", before: [{name: prepare, command: [./run], retry: {maxAttempts: 2, backoff: 15s}}]"
	off := h.on("fail-before")
	h.configure("one", rules)
	h.awaitLog("fail before")
	off()
	h.configure("two", rules)
	h.awaitPlan("i2", over)
	before := len(h.log())
	h.awaitPlan("i1", func(_ map[string]protocol.PlanNodeStatus, s protocol.PlanStatus) bool {
		return s.Over && strings.Contains(s.StepError, "plan i2 of a newer configuration replaced it")
	})
	require.Len(t, h.log(), before)
}

// With a cap of one nothing runs beside anything else, and nothing waits for ever.
func TestCapOfOneIsSerial_E8(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	h.configure("one", ", maxParallelism: 1")
	require.NotContains(t, states(h.awaitPlan("i1", over)), "failed")
	log := h.log()
	require.Len(t, log, 8)
	for n := 0; n < len(log); n += 2 {
		require.Equal(t, strings.TrimPrefix(log[n], "begin "), strings.TrimPrefix(log[n+1], "end "), log)
	}
	applies := h.Fake.Applies()
	slices.SortFunc(applies, func(a, b fakeruntime.Apply) int { return a.Started.Compare(b.Started) })
	last := time.Time{}
	for _, a := range applies {
		if !strings.HasPrefix(a.Instance, h.App+"/") {
			continue
		}
		require.False(t, a.Started.Before(last), "%s begins before another ended", a.Instance)
		last = a.Ended
	}
}

// What setting up produced is captured of what did deploy, whatever became of the rest.
func TestCallbackAfterAnyEnd_E2_E9(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	callback := home
	for _, name := range []string{"jellyfin", "prowlarr"} {
		callback = strings.Replace(callback, "name: "+name+", initialVersion: v1,", "name: "+name+", initialVersion: v1, setupCallback: {command: [./run]},", 1)
	}
	h.Fake.At(h.App, "jellyfin", "production").FailAppliesPermanently(1, "no such image")
	h.Write(strings.NewReplacer("ZONE}", "one}", "PLAN}", "}", "CHANNELS]", "]", "SERIAL\n", "\n").Replace(callback))
	h.Publish()
	got := states(h.awaitPlan("i1", over))
	require.Equal(t, "failed", got["DEPLOY jellyfin"])
	require.Equal(t, "done", got["CALLBACK"])
	ran, err := os.ReadFile(filepath.Join(h.Dir, "ran-CALLBACK"))
	require.NoError(t, err)
	require.Equal(t, "prowlarr\n", string(ran), "what was not set up has nothing to capture")
	require.Equal(t, "done", got["SYNC traefik"])
}

// A newer incarnation takes over: what runs finishes, what has not begun is done by the plan that came after.
func TestNewerPlanSupersedes_E13(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	h.configure("one", "")
	h.awaitPlan("i1", over)
	release := h.Fake.At(h.App, "postgres", "production").HangApplies()
	h.configure("two", "")
	h.awaitPlan("i2", func(n map[string]protocol.PlanNodeStatus, _ protocol.PlanStatus) bool {
		return n["DEPLOY postgres"].State == "running" && n["DEPLOY jellyfin"].State == "done" && n["SYNC traefik"].State == "done"
	})
	h.configure("three", "")
	h.awaitPlan("i2", func(n map[string]protocol.PlanNodeStatus, _ protocol.PlanStatus) bool {
		return n["DEPLOY sonarr"].State == "superseded" && n["RECONCILE sonarr"].State == "superseded" && n["DEPLOY postgres"].State == "running"
	})
	release()
	nodes := h.awaitPlan("i2", over)
	require.Equal(t, "done", nodes["DEPLOY postgres"].State)
	for name, state := range states(h.awaitPlan("i3", over)) {
		require.Equal(t, "done", state, name)
	}
	h.Await("sonarr", "production CONVERGED v1-i3")
}

// On a target where one thing runs at a time two plans take turns, and so do the applies of services.
func TestPlansShareATarget_E14(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	h.Write(strings.NewReplacer("ZONE}", "one}", "PLAN}", "}", "CHANNELS]", ", {name: staging, runtimes: [{name: APP-rt}], constants: {zone: one}}]",
		"SERIAL\n", "\nmaxConcurrentApplies: 1\n").Replace(home))
	off := h.on("hold-SYNC traefik@" + h.App + "-rt")
	h.Publish()
	h.awaitLog("begin SYNC traefik")
	held := func() (ids []string) {
		var s protocol.RuntimeStatus
		value, err := temporaltest.Query(t.Context(), h.Client, protocol.RuntimeID(h.App+"-rt"), protocol.QueryStatus)
		require.NoError(t, err)
		require.NoError(t, value.Get(&s))
		for _, l := range slices.Concat(s.Held, s.Waiting) {
			ids = append(ids, l.Name())
		}
		return ids
	}
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		ids := held() // whoever works there first; everybody else of both plans waits
		return len(ids) > 1 && strings.Contains(ids[0], "SYNC traefik"), fmt.Sprint(ids)
	})
	off()
	h.awaitPlan("i1", over)
	ref := protocol.PlanOfIncarnation(h.App, "staging", 1)
	require.NoError(t, h.Client.GetWorkflow(t.Context(), ref.ID(), "").Get(t.Context(), nil))
	depth := 0
	for _, line := range h.log() {
		switch {
		case strings.HasSuffix(line, " DNS"): // of no target
		case strings.HasPrefix(line, "begin "):
			depth++
		default:
			depth--
		}
		require.LessOrEqual(t, depth, 1, h.log())
	}
	require.Empty(t, h.Fake.Overlaps())
}

// A plan that is terminated midway, three times, is there again each time, and goes on: what was done is not done twice.
func TestTerminatedPlanContinues_F1(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	off := h.on("hold-RECONCILE sonarr@" + h.App + "-rt")
	h.configure("one", "")
	h.awaitLog("begin RECONCILE sonarr")
	h.awaitLog("end DNS")
	h.awaitPlan("i1", func(n map[string]protocol.PlanNodeStatus, _ protocol.PlanStatus) bool {
		return n["DNS"].State == "done"
	})
	ref := protocol.PlanOfIncarnation(h.App, "production", 1)
	for range 3 {
		d, err := h.Client.DescribeWorkflowExecution(t.Context(), ref.ID(), "")
		require.NoError(t, err)
		ended, since := d.WorkflowExecutionInfo.Execution.RunId, time.Now()
		require.NoError(t, h.Client.TerminateWorkflow(t.Context(), ref.ID(), ended, "by mistake"))
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			d, err := h.Client.DescribeWorkflowExecution(t.Context(), ref.ID(), "")
			return err == nil && d.WorkflowExecutionInfo.Execution.RunId != ended, fmt.Sprint(err)
		})
		t.Logf("restarted after %s", time.Since(since))
	}
	off()
	h.awaitPlan("i1", func(n map[string]protocol.PlanNodeStatus, s protocol.PlanStatus) bool {
		return s.Over && n["RECONCILE prowlarr"].State == "done"
	})
	count := map[string]int{}
	for _, line := range h.log() {
		count[line]++
	}
	require.Equal(t, 1, count["end SYNC traefik"])
	require.Equal(t, 1, count["end DNS"])
	require.Equal(t, 1, count["end RECONCILE prowlarr"])
}

// A worker that goes away while commands run: every node runs, and none once more after its success was noted.
func TestPlanOutlivesItsWorker_F2(t *testing.T) {
	t.Parallel()
	h := newHousehold(&world{shared.OwnServer(t, 0)})
	off := h.on("hold-SYNC traefik@" + h.App + "-rt")
	h.configure("one", "")
	h.awaitLog("begin SYNC traefik")
	h.awaitPlan("i1", func(n map[string]protocol.PlanNodeStatus, _ protocol.PlanStatus) bool {
		return n["DNS"].State == "done"
	})
	h.StopWorker()
	off()
	h.StartWorker()
	for name, state := range states(h.awaitPlan("i1", over)) {
		require.Equal(t, "done", state, name)
	}
	count := map[string]int{}
	for _, line := range h.log() {
		count[line]++
	}
	for _, node := range []string{"DNS", "RECONCILE sonarr", "RECONCILE prowlarr"} {
		require.Equal(t, 1, count["end "+node], node)
	}
}

// A release by hand has what it is fitted into run again, and nothing else; a plan that failed goes on once what failed is mended.
func TestReleaseByHandAndRetry_E7_E10(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	h.Fake.At(h.App, "postgres", "production").FailAppliesPermanently(1, "no disk")
	h.configure("one", "")
	got := h.awaitPlan("i1", over)
	require.Equal(t, "blocked", got["DEPLOY sonarr"].State)
	waitsFor(h.World, "sonarr", "plan/deploy: waits for DEPLOY postgres@"+h.App+"-rt in plan i1, which failed")
	waitsFor(h.World, "sonarr", "to run it again: converge run start "+h.App+" production")
	h.Act("postgres", protocol.Retry, `{"version":"v1","by":"bob"}`)
	h.Await("sonarr", "production CONVERGED v1")
	for name, state := range states(h.awaitPlan("i1", over)) {
		require.Equal(t, "done", state, name)
	}
	before := len(h.log())
	h.Release("sonarr", "v2")
	nodes := states(h.awaitPlan("sonarr-v2", over))
	require.Equal(t, map[string]string{"DEPLOY sonarr": "done", "SYNC traefik": "done", "RECONCILE sonarr": "done"}, nodes)
	require.Len(t, h.log(), before+4)
	h.ask(1, protocol.PlanTask{Whole: true})
	h.awaitPlan("i1", func(_ map[string]protocol.PlanNodeStatus, s protocol.PlanStatus) bool {
		return s.Over && len(h.log()) == before+4+8
	})
}

// Steps come before and after everything; after one that failed nothing follows, and services say what they wait for. Run again, it goes
// on: a plan that was cancelled too.
func TestStepsAroundAPlan_E15(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	off := h.on("fail-before")
	const rules = ", before: [{name: prepare, command: [./run], retry: {maxAttempts: 1}}], after: [{name: finalize, command: [./run]}]"
	h.configure("one", rules)
	h.awaitPlan("i1", over)
	waitsFor(h.World, "jellyfin", "plan/deploy: waits for the steps before plan i1: prepare: ")
	require.Equal(t, []string{"begin before", "fail before"}, h.log())
	off()
	held := h.on("hold-SYNC traefik@" + h.App + "-rt")
	h.ask(1, protocol.PlanTask{Whole: true})
	h.awaitLog("begin SYNC traefik")
	ref := protocol.PlanOfIncarnation(h.App, "production", 1)
	require.NoError(t, h.Client.CancelWorkflow(t.Context(), ref.ID(), ""))
	nodes := h.awaitPlan("i1", func(_ map[string]protocol.PlanNodeStatus, s protocol.PlanStatus) bool {
		return s.Over && s.Ended == protocol.PlanCancelled
	})
	require.Equal(t, "superseded", nodes["RECONCILE sonarr"].State)
	require.NotContains(t, h.log(), "begin after")
	held()
	h.ask(1, protocol.PlanTask{Whole: true})
	h.awaitPlan("i1", func(n map[string]protocol.PlanNodeStatus, s protocol.PlanStatus) bool {
		return s.Over && n["RECONCILE prowlarr"].State == "done"
	})
	require.Equal(t, "end after", h.log()[len(h.log())-1])
	require.NoError(t, replayer(t).ReplayWorkflowHistory(stage.Quiet{}, &historypb.History{Events: h.History(ref.ID())}))
}

// While an application is paused nothing of its plans runs; what is held takes no place of others, so that a cap of one does not stop all.
func TestPausedPlanWaits_E8(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	h.configure("one", "")
	h.awaitPlan("i1", over)
	h.Act("postgres", protocol.Pause, `{"by":"bob"}`)
	h.configure("two", ", maxParallelism: 1")
	h.awaitPlan("i2", func(n map[string]protocol.PlanNodeStatus, _ protocol.PlanStatus) bool {
		return n["DEPLOY postgres"].State == "held" && n["DEPLOY sonarr"].State == "waiting" && n["DNS"].State == "done" && n["DEPLOY traefik"].State == "done"
	})
	waitsFor(h.World, "sonarr", "DEPLOY postgres@"+h.App+"-rt in plan i2")
	require.Contains(t, h.explain("sonarr"), "DEPLOY postgres@"+h.App+"-rt in plan i2")
	var paused protocol.Answer
	require.NoError(t, h.Update(protocol.ApplicationID(h.App), protocol.Pause, protocol.RequestMeta{By: "bob"}, &paused))
	h.ask(2, protocol.PlanTask{Whole: true}) // it is joined
	h.Act("postgres", protocol.Resume, `{"by":"bob"}`)
	before := len(h.log())
	require.NoError(t, h.Update(protocol.ApplicationID(h.App), protocol.Resume, protocol.RequestMeta{By: "bob"}, &paused))
	for name, state := range states(h.awaitPlan("i2", over)) {
		require.Equal(t, "done", state, name)
	}
	require.Greater(t, len(h.log()), before)
}

// plannedLife leads a plan through a life: a lease, a failure, what that blocks, and a command that is tried again.
func plannedLife(w *world) {
	h := newHousehold(w)
	h.Fake.At(h.App, "prowlarr", "production").FailAppliesPermanently(1, "no such image")
	h.on("fail-DNS")
	h.Write(strings.NewReplacer("ZONE}", "one}", "{command: [./run]}PLAN}", "{command: [./run], retry: {maxAttempts: 2, backoff: 1s}}, before: [{name: prepare, command: [./run]}]}",
		"CHANNELS]", "]", "SERIAL\n", "\nmaxConcurrentApplies: 1\n").Replace(home))
	h.Publish()
	h.awaitPlan("i1", over)
}

// What the store lost of a plan it has again, while the plan runs: it goes on as if nothing was.
func TestLostRecordIsStoredAgain_E8(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	release := h.Fake.At(h.App, "postgres", "production").HangApplies()
	h.configure("one", "")
	h.awaitPlan("i1", func(n map[string]protocol.PlanNodeStatus, _ protocol.PlanStatus) bool {
		return n["DNS"].State == "done" && n["SYNC traefik"].State == "done" && n["DEPLOY postgres"].State == "running"
	})
	records, err := filepath.Glob(filepath.Join(h.Store, "plans", h.App, "production", "of", "*", "progress"))
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.NoError(t, os.Remove(records[0]))
	release()
	for name, state := range states(h.awaitPlan("i1", over)) {
		require.Equal(t, "done", state, name)
	}
	require.Len(t, h.log(), 8)
}

// Where an application is pinned to an incarnation people have the plan of that one run, though there was that of a newer one.
func TestPlanOfAnOlderIncarnationByHand_E13(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	h.configure("one", "")
	h.awaitPlan("i1", over)
	h.configure("two", "")
	h.awaitPlan("i2", over)
	h.ask(1, protocol.PlanTask{Whole: true, By: "bob"})
	nodes := h.awaitPlan("i1", func(n map[string]protocol.PlanNodeStatus, s protocol.PlanStatus) bool {
		return s.Over && n["RECONCILE prowlarr"].State != "waiting"
	})
	for name, state := range states(nodes) {
		require.Equal(t, "done", state, name)
	}
	require.Len(t, h.log(), 3*8)
}

// What sets a service up runs once it was started, one after another, and before its DEPLOY is done; where one fails so does the release,
// which is taken back, and what requires the service waits.
func TestSetupReconcilersAreOfDeploy_E1_E2(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	const postgres = "name: postgres, initialVersion: v1,"
	configure := func(zone string) {
		text := strings.Replace(home, postgres, postgres+` setup_reconcilers: [{name: databases, command: [./setup]}, {name: users, command: [./setup, last], retry: {maxAttempts: 1}}],`, 1)
		h.Write(strings.NewReplacer("ZONE}", zone+"}", "PLAN}", "}", "CHANNELS]", "]", "SERIAL\n", "\n").Replace(text))
		h.Publish()
	}
	script := func(text string) {
		programtest.Write(t, filepath.Join(h.Dir, "setup"), "#!/bin/sh\necho \"set up $1\" >> \"$(dirname \"$0\")/log\"\n"+text)
	}
	script("while [ ! -e \"$(dirname \"$0\")/ready\" ]; do sleep 0.05; done\n")
	configure("one")
	h.awaitLog("set up ")
	require.Equal(t, 1, h.Fake.At(h.App, "postgres", "production").Applies())
	nodes := states(h.awaitPlan("i1", func(n map[string]protocol.PlanNodeStatus, _ protocol.PlanStatus) bool {
		return n["SYNC traefik"].State == "done"
	}))
	require.Equal(t, "running", nodes["DEPLOY postgres"])
	require.Equal(t, "waiting", nodes["DEPLOY sonarr"])
	h.on("ready")
	h.awaitPlan("i1", over)
	log := h.log()
	require.Less(t, slices.Index(log, "set up "), slices.Index(log, "set up last"))
	require.Less(t, slices.Index(log, "set up last"), slices.Index(log, "begin RECONCILE sonarr"))

	script("[ -z \"$1\" ] || { echo 'no such user' >&2; exit 1; }\n")
	configure("two")
	failed := h.awaitPlan("i2", over)
	require.Equal(t, "failed", failed["DEPLOY postgres"].State)
	require.Contains(t, failed["DEPLOY postgres"].Text, "extension users failed once: ./setup exited 1: no such user")
	require.Equal(t, "blocked", failed["DEPLOY sonarr"].State)
	h.Await("postgres", "production ROLLED_BACK v1")
}
