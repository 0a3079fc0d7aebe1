package activities

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
)

// largestPayload is the maximum size of a payload.
const largestPayload = 64 << 10

// activitiesWithPlan returns activities with an incarnation that has this plan.
func activitiesWithPlan(t *testing.T, work plan.Work) (a *Activities, hash string) {
	t.Helper()
	s, err := store.Open(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	doc := incarnation.Document{Schema: incarnation.Schema, Application: "home", Channels: []incarnation.Channel{{Name: "live", Plan: &work}}}
	for _, w := range work.Services {
		doc.Services = append(doc.Services, incarnation.Service{Name: w.Name})
	}
	text, err := json.Marshal(doc)
	require.NoError(t, err)
	inc, err := incarnation.Parse(text)
	require.NoError(t, err)
	hash, err = s.PutIncarnation(t.Context(), inc)
	require.NoError(t, err)
	return &Activities{Store: s}, hash
}

func jsonSize(t *testing.T, v any) int {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return len(text)
}

// callbackWork returns the work for that many services with a CALLBACK command each.
func callbackWork(count int) (w plan.Work) {
	for n := range count {
		name := fmt.Sprintf("service-with-a-name-%d", n)
		w.Services = append(w.Services, plan.Service{Name: name, Targets: []string{"site"}, SetupCallback: true})
		w.Commands = append(w.Commands, plan.Command{
			Kind: plan.Callback, Service: name, Captures: []string{"apiKey"},
			Run: entities.Extension{Name: "setup", Definition: strings.Repeat("a", 64), Timeout: 1, MaxAttempts: 3, RetryBackoff: 1, RetryMax: 1},
		})
	}
	return w
}

// The CALLBACK commands of many services are returned in parts that each fit into a payload: each command once, without those that were not
// set up.
func TestCommandsOfManyServicesFit_E2_F8(t *testing.T) {
	t.Parallel()
	a, hash := activitiesWithPlan(t, callbackWork(1000))
	request := protocol.PlanCommandsRequest{PlanWork: protocol.PlanWork{
		PlanRef: protocol.PlanOfIncarnation("home", "live", 1), Hash: hash, Kind: string(plan.Callback), Undeployed: []string{"service-with-a-name-7"},
	}}
	seen := map[int]string{}
	for parts := 1; ; parts++ {
		some, err := a.PlanCommands(t.Context(), request)
		require.NoError(t, err)
		require.Less(t, jsonSize(t, some), largestPayload)
		for _, c := range some.Commands {
			require.Empty(t, seen[c.At])
			seen[c.At] = c.Service
		}
		if request.From = some.Next; some.Next == 0 {
			require.Greater(t, parts, 2)
			break
		}
		require.Less(t, parts, 1000)
	}
	require.Len(t, seen, 999)
	for at, service := range seen {
		require.Equal(t, fmt.Sprintf("service-with-a-name-%d", at), service)
	}
}

// The progress of the commands fits into the state with which a plan continues, together with everything else.
func TestPartsOfManyNodesFit_F8(t *testing.T) {
	t.Parallel()
	work := callbackWork(4900)
	a, hash := activitiesWithPlan(t, work)
	in := protocol.PlanInput{PlanRef: protocol.PlanOfIncarnation("home", "live", 1), Continued: true}
	record := protocol.PlanRecord{PlanRef: in.PlanRef, Hash: hash, All: true}
	record.Nodes = strings.Repeat("d", 4900) + "r"
	failed := map[int]int{}
	for n := range 4900 {
		failed[n] = 1 + n%3
	}
	record.Parts = []protocol.NodeProgress{{Node: 4900, Done: strings.Repeat("d.", 2450), Failed: failed}}
	for n := range 100 {
		record.Notes = append(record.Notes, protocol.PlanNote{Node: n, Text: fmt.Sprintf("register failed, attempt %d of 9: ./run exited %d: %s", n, n, strings.Repeat("no such thing ", 30))})
	}
	require.NoError(t, a.Store.PutPlan(t.Context(), record))
	begun, err := a.PlanBegin(t.Context(), in)
	require.NoError(t, err)
	require.Less(t, jsonSize(t, begun), largestPayload)
	var state protocol.PlanState
	require.NoError(t, begun.State.Unpack(&state))
	require.Equal(t, record.Parts, state.Parts)
	require.Equal(t, record.Notes, state.Notes)
}
