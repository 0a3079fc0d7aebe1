package activities

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/incarnation"
)

// readSpilled reads a spilled answer as a workflow does, in parts that each fit, and returns its size.
func readSpilled(t *testing.T, a *Activities, answer interface{ StoredDigest() string }) (bytes int) {
	t.Helper()
	require.Less(t, jsonSize(t, answer), largestPayload)
	if answer.StoredDigest() == "" {
		return jsonSize(t, answer)
	}
	var packed protocol.Packed
	for {
		part, err := a.Restore(t.Context(), protocol.RestoreRequest{Digest: answer.StoredDigest(), Offset: len(packed)})
		require.NoError(t, err)
		require.Less(t, jsonSize(t, part), largestPayload)
		if packed = append(packed, part.Part...); len(packed) >= part.Total {
			break
		}
	}
	require.NoError(t, packed.Unpack(answer))
	return jsonSize(t, answer)
}

// incompressible returns a text of that many bytes, different for each n, that compression hardly shrinks.
func incompressible(n, bytes int) (out string) {
	for k := 0; len(out) < bytes; k++ {
		out += entities.DigestOf([]int{n, k})
	}
	return out[:bytes]
}

// A workflow reads a plan with the maximum number of nodes and dependencies in parts.
func TestPlanAtTheLimitsFits_F8(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
	work := plan.Work{}
	for n := range 5000 {
		s := plan.Service{Name: "s" + incompressible(n, 20), Targets: []string{"site"}}
		requires := map[string]bool{}
		for range min(n, 39) {
			requires[work.Services[random.IntN(n)].Name] = true
		}
		s.Requires = entities.SortedKeys(requires)
		work.Services = append(work.Services, s)
	}
	a, hash := activitiesWithPlan(t, work)
	in := protocol.PlanInput{PlanRef: protocol.PlanOfIncarnation("home", "live", 1), Continued: true}
	record := protocol.PlanRecord{PlanRef: in.PlanRef, Hash: hash, All: true, PlanState: protocol.PlanState{Nodes: strings.Repeat(".", 5000)}}
	require.NoError(t, a.Store.PutPlan(t.Context(), record))
	begun, err := a.PlanBegin(t.Context(), in)
	require.NoError(t, err)
	require.Greater(t, readSpilled(t, a, &begun), 5*largestPayload)
	var p plan.Plan
	require.NoError(t, begun.Plan.Unpack(&p))
	edges := 0
	for _, n := range p.Nodes {
		edges += len(n.Needs)
	}
	require.Len(t, p.Nodes, 5000)
	require.Greater(t, edges, 190_000)
}

// Thousands of services that were not deployed are passed as the numbers of their nodes in the plan.
func TestUndeployedOfManyServicesFit_E2_F8(t *testing.T) {
	t.Parallel()
	work := plan.Work{}
	for n := range 2000 {
		work.Services = append(work.Services, plan.Service{Name: fmt.Sprintf("s%04d%s", n, incompressible(n, 40)), Targets: []string{"site", "other"}})
	}
	a, hash := activitiesWithPlan(t, work)
	ref := protocol.PlanOfIncarnation("home", "live", 1)
	require.NoError(t, a.Store.PutPlan(t.Context(), protocol.PlanRecord{PlanRef: ref, Hash: hash, All: true, PlanState: protocol.PlanState{Nodes: strings.Repeat("f", 4000)}}))
	w := protocol.PlanWork{PlanRef: ref, Hash: hash, Kind: string(plan.Sync), UndeployedNodes: strings.Repeat("x", 3000) + strings.Repeat(".", 1000)}
	require.Less(t, jsonSize(t, w), largestPayload)
	require.NoError(t, a.nameUndeployed(t.Context(), &w))
	require.Len(t, w.Undeployed, 1500)
	require.Greater(t, jsonSize(t, w), largestPayload, "the names alone are too large")

	_, err := StartPlan(t.Context(), nil, nil, ref, protocol.PlanTask{Incarnation: 1, Changed: w.Undeployed})
	require.ErrorContains(t, err, "plan i1: the service names take ")
}

// manyChannels publishes an application of one service in the maximum number of release channels.
func manyChannels(t *testing.T, a *Activities) (compiled *compile.Compiled, hash string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("{apiVersion: converge/v1, kind: Runtime, name: rt, custom: {apply: {command: [./x]}}}\n---\n" +
		"{apiVersion: converge/v1, kind: Service, name: web, custom: {env: {VERSION: \"${{ version }}\"}}}\n---\n" +
		"apiVersion: converge/v1\nkind: Application\nname: shop\nreleaseChannels:\n")
	for n := range 500 {
		fmt.Fprintf(&b, "- {name: c%s, runtimes: [{name: rt}]}\n", incompressible(n, 40))
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shop.converge.yaml"), []byte(b.String()), 0o600))
	loaded, err := compile.Load(dir)
	require.NoError(t, err)
	compiled, err = compile.Compile(loaded)
	require.NoError(t, err)
	hash, err = a.Store.PutIncarnation(t.Context(), compiled.Incarnation)
	require.NoError(t, err)
	return compiled, hash
}

// The rendered version of 500 instances reaches the workflow, and so does the request of a non-local activity.
func TestPreparedForManyInstancesFits_F8(t *testing.T) {
	t.Parallel()
	a := newActivities(t, &server{})
	compiled, hash := manyChannels(t, a)
	version := "v" + incompressible(1, 127)
	request := protocol.PrepareRequest{Application: "shop", Service: "web", Version: version, FullVersion: version, Incarnation: 1, Hash: hash}
	for _, channel := range compiled.Incarnation.Channels() {
		request.Instances = append(request.Instances, entities.Only(channel))
	}
	prepared, _, err := run[protocol.PrepareAnswer](t, a.Prepare, request.Fitting())
	require.NoError(t, err)
	readSpilled(t, a, &prepared)
	require.Len(t, prepared.Payloads, 500)

	request.Version, request.FullVersion, request.CurrentVersions = "v2", "v2", map[entities.InstanceID]string{}
	for _, id := range request.Instances {
		request.CurrentVersions[id] = version
	}
	require.Greater(t, jsonSize(t, request), largestPayload)
	require.Less(t, jsonSize(t, request.Fitting()), largestPayload)
	under, _, err := run[protocol.PrepareAnswer](t, a.Prepare, request.Fitting())
	require.NoError(t, err)
	require.Greater(t, readSpilled(t, a, &under), largestPayload)
	for id, p := range under.Payloads {
		require.Equal(t, prepared.Payloads[id].Digest, p.CurrentVersionDigest)
	}
}

// longDrain returns a drain of a runtime with a thousand services.
func longDrain(scope string) *entities.Pause {
	d := &entities.Drain{}
	for n := range 1000 {
		d.Permits = append(d.Permits, entities.DrainPermit{Service: fmt.Sprintf("service/shop/%04d%s", n, incompressible(n, 50)), WaitsFor: incompressible(n, 200)})
	}
	return &entities.Pause{Scope: scope, By: "ann", At: time.Unix(1, 0).UTC(), Reason: incompressible(0, 2000), Drain: d}
}

// The configuration of 500 channels reaches the service, even if each is on a runtime of its own that is paused with a long reason, or
// drained with a thousand services.
func TestSpecAtTheLimitsFits_F8(t *testing.T) {
	t.Parallel()
	a := newActivities(t, &server{})
	spec := entities.Spec{Application: "shop", Service: "web", Runtimes: map[string]*entities.RuntimeSpec{}}
	for n := range 500 {
		runtime := fmt.Sprintf("r%d", n)
		spec.Runtimes[runtime] = &entities.RuntimeSpec{}
		spec.Channels = append(spec.Channels, entities.ChannelSpec{Name: "c" + incompressible(n, 60), Instances: []entities.InstanceSpec{{Name: "main", Runtime: runtime}}})
		scope := entities.ScopeRuntime + runtime
		pause := &entities.Pause{Scope: scope, By: "ann", At: time.Unix(1, 0).UTC(), Reason: incompressible(n, 2000)}
		if n < 10 {
			pause = longDrain(scope)
		}
		require.NoError(t, a.Store.PutPause(t.Context(), "", protocol.ScopePause{Scope: scope, Pause: pause}))
	}
	digest, err := a.Store.PutSpec(t.Context(), spec)
	require.NoError(t, err)
	manifest, err := a.Store.PutManifest(t.Context(), incarnation.Manifest{"web": digest})
	require.NoError(t, err)
	one := protocol.Incarnation{Number: 1, Hash: "h", Manifest: manifest, By: "ann"}
	require.NoError(t, a.Store.PutNumber(t.Context(), "shop", one))
	_, err = a.record(t.Context(), protocol.NotifyRequest{Application: "shop", Newest: one, To: manifest, Order: noticeOrder(1, 1)})
	require.NoError(t, err)

	answer, _, err := run[protocol.LoadSpecAnswer](t, a.LoadSpec, protocol.LoadSpecRequest{Application: "shop", Service: "web", Incarnation: 1, Hash: "h"})
	require.NoError(t, err)
	require.Greater(t, readSpilled(t, a, &answer), 10*largestPayload)
	require.Len(t, answer.Pauses, 500)
	inForce, _, err := run[protocol.ScopePause](t, a.InForce, protocol.InForceRequest{Application: "shop", Service: "0007" + incompressible(7, 50), Scope: entities.ScopeRuntime + "r3"})
	require.NoError(t, err)
	require.Less(t, jsonSize(t, inForce), largestPayload)
	require.Equal(t, incompressible(7, 200), inForce.Pause.Drain.OwnPermit().WaitsFor)
}

// A preflight must contain every reading, so the reasons are shortened. News that does not fit is returned by the next evaluation.
func TestReadingsOfManyChecksFit_F8(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		count, reason := rapid.IntRange(0, 80).Draw(t, "checks"), rapid.IntRange(0, 600).Draw(t, "reason")
		readings := map[string]entities.CheckReading{}
		for n := range count {
			readings[incompressible(n, 127)] = entities.CheckReading{Verdict: entities.Error, Reason: incompressible(n, min(reason, 500)), At: time.Unix(1, 1), Next: time.Unix(2, 2), Retry: time.Unix(3, 3), Errors: n}
		}
		clipReasons(readings)
		raw, err := json.Marshal(protocol.CheckAnswer{Readings: readings})
		if err != nil || len(raw) > largestPayload || len(readings) != count {
			t.Fatalf("%d readings in %d bytes: %v", len(readings), len(raw), err)
		}
	})
}

// The news of a plan, and the failed services of a joint release, are limited to what fits.
func TestNewsOfPlansFit_F8(t *testing.T) {
	t.Parallel()
	work := plan.Work{}
	for n := range 1000 {
		work.Services = append(work.Services, plan.Service{Name: "s" + incompressible(n, 60), Targets: []string{"site"}})
	}
	p, err := work.Plan(plan.Scope{All: true})
	require.NoError(t, err)
	progress, answers := p.ReadLetters(strings.Repeat("r", 1000)), map[string]protocol.Deployed{}
	for _, s := range work.Services {
		answers[s.Name] = protocol.Deployed{State: string(plan.Held), Text: strings.Repeat("why it waits ", 100)}
	}
	found := changedNodes(&protocol.PlanRecord{}, &planned{plan: p, work: &work}, progress, answers)
	require.NotEmpty(t, found)
	require.Less(t, jsonSize(t, protocol.PlanFollowAnswer{Nodes: found}), largestPayload)
}
