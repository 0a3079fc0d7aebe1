package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// home are services that are fitted together: commands write their node, and when, into the directory DIR. What a command waits for,
// or fails for, are files there.
const home = `apiVersion: converge/v1
kind: Application
name: APP
plan: {dns: {command: [./run]}PLAN}
releaseChannels: [{name: production, runtimes: [{name: APP-rt}], constants: {zone: ZONE}}]
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
---
{apiVersion: converge/v1, kind: Service, name: postgres, initialVersion: v1, custom: {env: {ZONE: "${{ constants.zone }}"}}}
---
{apiVersion: converge/v1, kind: Service, name: sonarr, initialVersion: v1, requires: [postgres], custom: {env: {ZONE: "${{ constants.zone }}"}},
 feeds: [{aggregator: traefik, content: "route to sonarr"}], reconcilers: [{name: register, command: [./run]}]}
---
{apiVersion: converge/v1, kind: Service, name: prowlarr, initialVersion: v1, custom: {env: {ZONE: "${{ constants.zone }}"}},
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
while [ -e "$(dirname "$0")/hold-$name" ]; do sleep 0.05; done
[ ! -e "$(dirname "$0")/fail-$name" ] || { echo "no such thing" >&2; echo "fail $CONVERGE_NODE" >> "$(dirname "$0")/log"; exit 1; }
echo "end $CONVERGE_NODE" >> "$(dirname "$0")/log"
`

// household is a world with plans.
type household struct{ *world }

func newHousehold(w *world) *household {
	require.NoError(w.T, os.WriteFile(filepath.Join(w.Dir, "run"), []byte(run), 0o755))
	return &household{w}
}

// configure publishes the home with a zone, which the payload of every service has, and more that is said of plans.
func (h *household) configure(zone, rules string) {
	h.T.Helper()
	h.Write(strings.NewReplacer("ZONE}", zone+"}", "PLAN}", rules+"}").Replace(home))
	h.Publish()
}

// plan asks a plan how far it is.
func (h *household) plan(name string) (s protocol.PlanStatus, err error) {
	ref := protocol.PlanRef{Application: h.App, Channel: "production", Name: name}
	value, err := h.Client.QueryWorkflow(h.T.Context(), ref.ID(), "", protocol.QueryStatus)
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
	return strings.Split(strings.TrimSpace(strings.ReplaceAll(string(data), "@"+h.App+"-rt", "")), "\n")
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

// The DEPLOY of Sonarr fails: its RECONCILE and that of Prowlarr, which requires it, are blocked, and say by what; everything else runs.
func TestFailedDeployIsContained_E10_E11(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	h.Fake.At(h.App, "sonarr", "production").FailAppliesForGood(1, "no such image")
	h.configure("one", "")
	nodes := h.awaitPlan("i1", over)
	states := map[string]string{}
	for name, n := range nodes {
		states[name] = n.State
	}
	require.Equal(t, map[string]string{
		"DEPLOY postgres": "done", "DEPLOY sonarr": "failed", "DEPLOY prowlarr": "done", "DEPLOY jellyfin": "done", "DEPLOY traefik": "done",
		"SYNC traefik": "done", "RECONCILE sonarr": "blocked", "RECONCILE prowlarr": "blocked", "DNS": "done",
	}, states)
	require.Contains(t, nodes["DEPLOY sonarr"].Text, "no such image")
	for _, blocked := range []string{"RECONCILE sonarr", "RECONCILE prowlarr"} {
		require.Equal(t, "by DEPLOY sonarr@"+h.App+"-rt", nodes[blocked].Text)
	}
	require.ElementsMatch(t, []string{"begin SYNC traefik", "end SYNC traefik", "begin DNS", "end DNS"}, h.log())
}
