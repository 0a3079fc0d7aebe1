package workflows

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/selection"
	"github.com/converge-engine/converge/entities/state"
)

// sizeRecorder is a converter that records the largest size of each type that passes it.
type sizeRecorder struct {
	converter.DataConverter
	mu      sync.Mutex
	largest map[string]int
}

func newSizeRecorder() *sizeRecorder {
	return &sizeRecorder{DataConverter: converter.GetDefaultDataConverter(), largest: map[string]int{}}
}

func (m *sizeRecorder) ToPayload(value any) (*commonpb.Payload, error) {
	p, err := m.DataConverter.ToPayload(value)
	m.record(fmt.Sprint(reflect.TypeOf(value)), p)
	return p, err
}

func (m *sizeRecorder) ToPayloads(values ...any) (*commonpb.Payloads, error) {
	all, err := m.DataConverter.ToPayloads(values...)
	for n, p := range all.GetPayloads() {
		m.record(fmt.Sprint(reflect.TypeOf(values[n])), p)
	}
	return all, err
}

func (m *sizeRecorder) record(what string, p *commonpb.Payload) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.largest[what] = max(m.largest[what], len(p.GetData()))
}

// oversized lists the types that exceed the payload limit, and logs all.
func (m *sizeRecorder) oversized(t *testing.T, but ...string) (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(m.largest)) {
		t.Logf("%8d %s", m.largest[what], what)
		if m.largest[what] > 64<<10 && !slices.Contains(but, what) {
			out = append(out, fmt.Sprintf("%s: %d bytes", what, m.largest[what]))
		}
	}
	return out
}

// longText is a text of at least so many bytes without repetitions, which compresses badly.
func longText(n, bytes int) string {
	text := ""
	for k := 0; len(text) < bytes; k++ {
		text += entities.DigestOf([]int{n, k})
	}
	return text[:bytes]
}

// setLimits sets every limit of a service to its maximum: 500 release channels with names, versions and checks of maximum length.
func (p *serviceTest) setLimits(channels, checks int) {
	p.spec.Channels = nil
	for n := range channels {
		c := entities.ChannelSpec{Name: "c" + longText(n, 62), Instances: []entities.InstanceSpec{{Name: entities.OnlyInstance, Runtime: "edge", Template: "t"}}, ProgressDeadline: time.Hour}
		for k := range checks {
			c.Checks = append(c.Checks, entities.Check{
				ID: fmt.Sprintf("check-%d-%s", k, strings.Repeat("x", 50)), Kind: entities.CheckHTTP, Definition: entities.DigestOf(k),
				At: []entities.CheckAt{{Stage: entities.Deployment}}, Interval: time.Hour,
			})
		}
		p.spec.Channels = append(p.spec.Channels, c)
	}
	rt := p.spec.Runtimes["edge"]
	rt.Observable, rt.Timing.PollInterval, rt.Timing.SteadyPollInterval = true, time.Minute, time.Hour
	p.env.RegisterActivityWithOptions(p.observe, activity.RegisterOptions{Name: protocol.ActivityObserve})
	p.registerSpill()
}

// registerSpill stores the objects that a run spills.
func (p *serviceTest) registerSpill() {
	p.spilled = map[string]protocol.Packed{}
	p.env.RegisterActivityWithOptions(func(_ context.Context, r protocol.SpillRequest) (string, error) {
		return p.storeSpilled(r.Packed), nil
	}, activity.RegisterOptions{Name: protocol.ActivitySpill})
	p.env.RegisterActivityWithOptions(func(_ context.Context, r protocol.RestoreRequest) (protocol.RestoreAnswer, error) {
		packed := p.spilled[r.Digest]
		return protocol.RestoreAnswer{Part: packed[r.Offset:min(r.Offset+44<<10, len(packed))], Total: len(packed)}, nil
	}, activity.RegisterOptions{Name: protocol.ActivityRestore})
}

func (p *serviceTest) storeSpilled(packed protocol.Packed) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	digest := entities.DigestOf([]byte(packed))
	p.spilled[digest] = packed
	return digest
}

// storeIfLarge stores an answer that is too large, as the activities do, and returns its digest.
func (p *serviceTest) storeIfLarge(answer any) string {
	raw, err := json.Marshal(answer)
	require.NoError(p, err)
	if p.spilled == nil || len(raw) <= protocol.MaxAnswer {
		return ""
	}
	packed, err := protocol.Pack(json.RawMessage(raw))
	require.NoError(p, err)
	return p.storeSpilled(packed)
}

// observe answers readings of maximum size, as many as fit into an answer.
func (p *serviceTest) observe(_ context.Context, r protocol.ObserveRequest) (protocol.ObserveAnswer, error) {
	answer, size := protocol.ObserveAnswer{Readings: map[entities.InstanceID]entities.Reading{}}, 0
	for n, ref := range r.Instances {
		reading := largeReading(n, ref.FullVersion, p.env.Now())
		raw, err := json.Marshal(reading)
		if size += len(raw); err != nil || size > 48<<10 {
			break
		}
		if reading.Digest() == ref.KnownDigest {
			size -= len(raw)
			continue
		}
		answer.Readings[ref.ID] = reading
	}
	if len(answer.Readings) == 0 {
		return answer, temporal.NewApplicationErrorWithOptions("unchanged", protocol.ErrUnchanged, temporal.ApplicationErrorOptions{NextRetryDelay: time.Hour})
	}
	return answer, nil
}

// largeReading is 20 objects in 16 KiB.
func largeReading(n int, version string, now time.Time) entities.Reading {
	r := entities.Reading{At: now}
	for k := range 20 {
		o := entities.Object{Name: fmt.Sprintf("object-%d", k), Type: "Deployment", Status: entities.ObjectSucceeded, Message: longText(n*20+k, 400)}
		if version != "" {
			o.Versions = []entities.ObjectVersion{{Version: version, Active: true, Replicas: 3, AvailableReplicas: 3}}
		}
		r.Objects = append(r.Objects, o)
	}
	return r
}

// A service with the maximum of channels and objects, and with names, versions and reasons of maximum length, sends and receives nothing
// that exceeds 64 KiB. It does not run in parallel, since it computes more than it waits, and a reconciliation has a time limit.
func TestServiceAtItsLimitsFitsIntoPayloads_F8(t *testing.T) {
	if testing.Short() {
		t.Skip("500 channels take a while; not with -short")
	}
	p, sizes := newServiceTest(t), newSizeRecorder()
	p.env.SetDataConverter(sizes)
	p.env.SetTestTimeout(20 * time.Minute) // on a busy machine
	p.setLimits(500, 4)
	version := "v" + longText(1, 127)
	p.readingAfterApply = func(version string) *entities.Reading { r := largeReading(0, version, p.env.Now()); return &r }
	p.publish(time.Second)
	p.sendUpdate(2*time.Second, protocol.Release, fmt.Sprintf(`{"by":"ci","version":%q,"requestId":"r1"}`, version))
	var old, status protocol.Status
	var explained protocol.Explanation
	var remembered state.State
	p.at(10*time.Minute, func() {
		answer, err := p.env.QueryWorkflow(protocol.QueryStatus) // as the Temporal UI does
		require.NoError(t, err)
		require.NoError(t, answer.Get(&old))
	})
	p.at(11*time.Minute, func() {
		p.query(protocol.QueryStatus, &status)
		p.query(protocol.QueryExplain, &explained)
		p.query(protocol.QueryState, &remembered)
		p.query(protocol.QueryPlaced, new(protocol.Placement))
		p.query(protocol.QueryHistory, new(protocol.HistoryAnswer))
		p.query(protocol.QueryTerminated, new([]string))
	})
	p.run(firstInput, time.Minute)
	require.Empty(t, sizes.oversized(t))
	require.Len(t, status.Channels, 500)
	require.Len(t, status.Channels[499].Objects, 20)
	require.Equal(t, status.Releases, explained.Status.Releases)
	require.Len(t, remembered.Instances, 500)
	require.Equal(t, 500, len(old.Channels)+old.MoreChannels)
	require.Contains(t, old.Notes[0], "shortened to fit one response")
}

// A request for the maximum of checks per activity, each with a maximum of text, fits into a payload; so do the candidates of a command in
// the largest fleet.
func TestCheckRequestFits_F8(t *testing.T) {
	t.Parallel()
	s := &service{shell: &shell{application: "a" + longText(1, 62), service: "s" + longText(2, 62)}, state: &state.State{Spec: &entities.Spec{ServiceID: longText(3, 127)}, Channels: map[string]*state.Channel{}}}
	var checks []entities.Evaluation
	for n := range 2 * checksPerPart {
		channel := "c" + longText(n, 62)
		s.state.Channels[channel] = &state.Channel{Key: "k" + longText(n, 62)}
		checks = append(checks, entities.Evaluation{
			Channel: channel, ID: longText(n, 80), Kind: entities.CheckHTTP, Definition: longText(n, 64), Release: longText(n, 63), FullVersion: longText(n, 128), Payload: longText(n, 64),
			CurrentPayload: longText(n, 64), KnownDigest: longText(n, 64), Errors: 100, ReasonDigest: longText(n, 33), ReasonAt: time.Unix(1, 1), Interval: time.Hour, Runtime: longText(n, 63), Incarnation: 1 << 40, Since: 1 << 40,
		})
	}
	var candidates []selection.Candidate
	for n := range 500 {
		candidates = append(candidates, selection.Candidate{Name: longText(n, 63), Runtime: longText(n, 63), Updated: true, Stable: true, Since: time.Unix(int64(n), 0)})
	}
	raw, err := json.Marshal(candidates)
	require.NoError(t, err)
	sizeOf := func(checks []entities.Evaluation) int {
		request, err := json.Marshal(s.checkRequest(checks))
		require.NoError(t, err)
		return len(request)
	}
	require.Less(t, sizeOf(checks), protocol.MaxPayload)
	checks[0].Candidates = string(raw)
	require.Greater(t, len(raw), protocol.MaxPayload)
	require.Less(t, sizeOf(checks[:1]), protocol.MaxPayload)
	got, err := selection.Candidates(s.checkRequest(checks[:1]).Checks[0])
	require.NoError(t, err)
	require.Len(t, got, 500)
	require.Equal(t, string(raw), checks[0].Candidates, "the state of the workflow is not changed")
}

// The permits of a thousand services that leave a runtime go through the store.
func TestDrainOfManyServicesFits_F8(t *testing.T) {
	t.Parallel()
	s, sizes, kept := newRuntimeTest(t), newSizeRecorder(), map[string]protocol.Packed{}
	s.env.SetDataConverter(sizes)
	store := func(packed protocol.Packed) string {
		digest := entities.DigestOf([]byte(packed))
		kept[digest] = packed
		return digest
	}
	as := func(name string, f any) { s.env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name}) }
	as(protocol.ActivitySpill, func(_ context.Context, r protocol.SpillRequest) (string, error) { return store(r.Packed), nil })
	as(protocol.ActivityRestore, func(_ context.Context, r protocol.RestoreRequest) (protocol.RestoreAnswer, error) {
		packed := kept[r.Digest]
		return protocol.RestoreAnswer{Part: packed[r.Offset:min(r.Offset+44<<10, len(packed))], Total: len(packed)}, nil
	})
	as(protocol.ActivityAlone, func(context.Context, protocol.AloneRequest) (protocol.AloneAnswer, error) {
		return protocol.AloneAnswer{}, nil
	})
	as(protocol.ActivityHistory, func(context.Context, protocol.HistoryRequest) error { return nil })
	as(protocol.ActivityRules, func(context.Context, protocol.RulesRequest) (protocol.Rules, error) { return protocol.Rules{}, nil })
	polls, byDigest := 0, 0
	as(protocol.ActivityDrain, func(_ context.Context, r protocol.AnnouncePause) (protocol.DrainAnswer, error) {
		polls++
		d := entities.Drain{Restoring: r.Pause.Drain.Restoring, Done: polls%2 == 0}
		if r.PermitsDigest != "" {
			byDigest++
			require.NoError(t, kept[r.PermitsDigest].Unpack(&d.Permits))
		}
		for n := len(d.Permits); n < 1000; n++ {
			d.Permits = append(d.Permits, entities.DrainPermit{Service: fmt.Sprintf("service/shop/%04d%s", n, longText(n, 50)), WaitsFor: longText(n, 200)})
		}
		packed, err := protocol.Pack(protocol.DrainAnswer{Drain: d})
		require.NoError(t, err)
		return protocol.DrainAnswer{StoredAnswer: protocol.StoredAnswer{AnswerDigest: store(packed)}}, nil
	})
	s.sendUpdate(1*second, protocol.Drain, protocol.RequestMeta{By: "alice"}, "runtime edge is being drained: its services leave one by one")
	s.sendUpdate(60*second, protocol.Restore, protocol.RequestMeta{By: "alice"}, "runtime edge is being restored: its services return one by one")
	next := s.runToNextInput(protocol.RuntimeInput{}, second)
	require.NotContains(t, string(next.State), `"pause":{`)
	require.Equal(t, "4 looks, 2 by digest", fmt.Sprintf("%d looks, %d by digest", polls, byDigest))
	require.Empty(t, sizes.oversized(t))
}

// A notification of an application fits, with the maximum of incarnations and of services that are unmanaged and managed again.
func TestNotificationFits_F8(t *testing.T) {
	t.Parallel()
	at := time.Unix(1, 0)
	st := &applicationState{managedState: managedState{Unmanaged: protocol.UnmanagedServices{}, PendingStarts: map[string]string{}}}
	for n := range maxIncarnations {
		i := protocol.Incarnation{Number: int64(n + 1), Hash: longText(n, 64), Manifest: longText(n, 64), At: at, By: longText(n, 256), Subject: longText(n, 200), Commits: longText(n, 64)}
		i.Origin.Path = "/srv/" + strings.Repeat("deep/", 40)
		for k := range 7 {
			i.Causes = append(i.Causes, longText(n*7+k, 100))
		}
		st.Incarnations = append(st.Incarnations, i)
	}
	for n := range maxUnmanaged {
		st.Unmanaged["s"+longText(n, 62)] = protocol.Unmanaged{By: longText(n, 256), Reason: longText(n, maxText), At: at}
		st.PendingStarts["t"+longText(n, 62)] = "managed again by " + longText(n, 20) + entities.Because(longText(n, maxText))
	}
	for n := range 300 {
		st.Unreached.Services = append(st.Unreached.Services, "u"+longText(n, 62))
	}
	request := protocol.NotifyRequest{Application: "shop", Skipped: st.Incarnations, Unmanaged: entities.SortedKeys(st.Unmanaged), Remanaged: st.PendingStarts, Additional: st.Unreached.Services}
	sizeOf := func(v any) int {
		raw, err := json.Marshal(v)
		require.NoError(t, err)
		return len(raw)
	}
	require.Greater(t, sizeOf(request), protocol.MaxPayload)
	require.Less(t, sizeOf(request.Fitting()), protocol.MaxPayload)
	whole, err := request.Fitting().Whole()
	require.NoError(t, err)
	require.Equal(t, sizeOf(request), sizeOf(whole))
	require.Less(t, sizeOf(protocol.UnmanageRequest{Application: "shop", Services: st.reasons()}), protocol.MaxPayload)
}

// A plan with thousands of undeployed services passes them to an activity that gives an aggregator collected values, and its status is cut
// short for clients of earlier versions.
func TestPlanWithThousandsUndeployedFits_E2_F8(t *testing.T) {
	t.Parallel()
	services := []plan.Service{{Name: "zz-proxy", Targets: []string{"site"}, Aggregator: plan.Sync}}
	for n := range 2000 {
		services = append(services, plan.Service{Name: "s" + longText(n, 60), Targets: []string{"site"}, Feeds: []string{"zz-proxy"}})
	}
	built, err := plan.Build(services, plan.Scope{All: true})
	require.NoError(t, err)
	p := &planRun{in: protocol.PlanInput{PlanRef: protocol.PlanOfIncarnation("shop", "live", 1)}, plan: *built, undeployedAtStart: map[int]int{}, notes: map[int]string{}}
	p.nodes = p.plan.Walker(p.plan.ReadLetters(strings.Repeat("f", len(built.Nodes))))
	n := slices.IndexFunc(built.Nodes, func(n plan.Node) bool { return n.Kind == plan.Sync })
	work, err := json.Marshal(protocol.PlanRunRequest{PlanWork: p.workOf(n)})
	require.NoError(t, err)
	require.Less(t, len(work), protocol.MaxPayload)
	require.Equal(t, 2001, p.undeployedAtStart[n])
	require.Equal(t, 2002, strings.Count(p.workOf(n).UndeployedNodes, "x"), "the proxy has two nodes")

	for n := range built.Nodes {
		p.notes[n] = longText(n, maxText)
	}
	answer := inParts(&p.large, "plan", p.status, cutPlan)
	cut, err := answer(protocol.PartsQuery{})
	require.NoError(t, err)
	require.Less(t, len(cut), protocol.MaxPayload)
	require.Contains(t, string(cut), "nodes are not listed; request the answer in parts")
	var whole protocol.PlanStatus
	require.NoError(t, protocol.QueryWhole(answer, &whole))
	require.Len(t, whole.Nodes, len(built.Nodes))
}

// A runtime with thousands of waiting applies, and an application with a large state, answer clients of earlier versions too.
func TestOtherAnswersAreCut_F8(t *testing.T) {
	t.Parallel()
	at := time.Unix(1, 0)
	var leases []entities.Lease
	for n := range 2000 {
		leases = append(leases, entities.Lease{LeaseRequest: entities.LeaseRequest{ID: longText(n, 60), Holder: longText(n, 140), Description: longText(n, 200)}, Since: at})
	}
	raw, err := json.Marshal(cutRuntime(protocol.RuntimeStatus{Held: leases, Waiting: leases, Pause: &entities.Pause{Reason: longText(1, 2000)}}))
	require.NoError(t, err)
	require.Less(t, len(raw), protocol.MaxPayload)
	require.Contains(t, string(raw), "more leases are held and")

	s := protocol.ApplicationStatus{Problem: longText(1, maxText)}
	for n := range maxIncarnations {
		s.Incarnations = append(s.Incarnations, protocol.Incarnation{Number: int64(n), By: longText(n, 2000)})
	}
	for n := range maxJoints + maxFinishedJoints {
		s.Releases = append(s.Releases, protocol.JointStatus{ID: longText(n, 60), Why: longText(n, 2000)})
	}
	cut := cutApplication(s)
	raw, err = json.Marshal(cut)
	require.NoError(t, err)
	require.Less(t, len(raw), protocol.MaxPayload)
	require.Equal(t, int64(maxIncarnations-1), cut.Incarnations[len(cut.Incarnations)-1].Number, "the newest stay")
}
