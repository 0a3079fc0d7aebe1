package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
)

// The command runs or shows the plan of the newest incarnation. If the command waits, a failed plan sets its exit code.
func TestDeployCommands_E7_E8_E12_E16(t *testing.T) {
	start := func(asked string) []string {
		return []string{fmt.Sprintf(`plan/home/live/i7 start {"application":"home","channel":"live","name":"i7","incarnation":7,%s,"by":"alice"}`, asked)}
	}
	const shown = "DEPLOY web@host\tdone\t\nRECONCILE web@host\tfailed\tregister: no such host\n" + "plan i7 of home in live: 1 of 2 done, 1 failed\n"
	const mermaid = "flowchart LR\n  n0[\"DEPLOY web@host\"]\n  style n0 fill:#d1e7dd\n  n1[\"RECONCILE web@host\"]\n  style n1 fill:#f8d7da\n  n0 --> n1\n"
	for _, tt := range []struct {
		line, want string
		sent       []string
		code       int
	}{
		{line: "run show home live", want: shown},
		{line: "run start home live --wait", want: shown, code: outcome.Failed, sent: start(`"whole":true`)},
		{line: "run start home live --changed web,api --max-parallelism 2 --eager-reconcile", want: shown, sent: start(`"changed":["web","api"],"limit":2,"eager":true`)},
		{line: "run start home live --recapture web", want: shown, sent: start(`"whole":true,"recapture":["web"]`)},
		{line: "run show home live --plan web-v3", code: outcome.Error, want: "! converge: no plan web-v3 of home in live\n"},
		{line: "run show home live --watch", want: shown, code: outcome.Failed},
		{line: "run show home live --format mermaid", want: mermaid},
		{line: "run show hume live", code: outcome.Error, want: "! converge: no application hume; did you mean home?\n"},
		{line: "run show home live --format png", code: outcome.Error, want: "! converge: --format \"png\": expected one of text, json, yaml, dot, mermaid, svg\n"},
		{line: "run start home live --max-parallelism -1", code: outcome.Error, want: "! converge: --max-parallelism -1: expected at least 1\n"},
	} {
		t.Run(tt.line, func(t *testing.T) {
			fake := &fakeAPI{statuses: map[string][]any{
				"application/home": {protocol.ApplicationStatus{Newest: 7}},
				"plan/home/live/i7": {protocol.PlanStatus{PlanRef: protocol.PlanOfIncarnation("home", "live", 7), Over: true, Nodes: []protocol.PlanNodeStatus{
					{Node: "DEPLOY web@host", State: "done"}, {Node: "RECONCILE web@host", State: "failed", Text: "register: no such host", Needs: []int{0}},
				}}},
			}}
			code, output := newConsole(t, fake).run(t, tt.line)
			require.Equal(t, tt.want, output)
			require.Equal(t, tt.code, code)
			require.Equal(t, tt.sent, fake.updates)
		})
	}
}

// The status of an application shows the progress of its running plans, and the reasons of failures.
func TestApplicationStatusIncludesPlans_E16(t *testing.T) {
	ref := protocol.PlanOfIncarnation("home", "live", 7)
	fake := &fakeAPI{statuses: map[string][]any{
		"application/home": {protocol.ApplicationStatus{Newest: 7}},
		"service/home/web": {protocol.Status{Application: "home", Service: "web", Channels: []protocol.ChannelStatus{{Name: "live", Status: "CONVERGED", Current: "v1"}}}},
		ref.ID(): {protocol.PlanStatus{PlanRef: ref, Nodes: []protocol.PlanNodeStatus{
			{Node: "DEPLOY web@host", State: "running"}, {Node: "DEPLOY api@host", State: "failed", Text: "no such image"}, {Node: "DNS", State: "blocked"},
		}}},
		"plan/other/live/i2": {protocol.PlanStatus{PlanRef: protocol.PlanOfIncarnation("other", "live", 2)}},
	}}
	code, output := newConsole(t, fake).run(t, "status home")
	require.Zero(t, code)
	require.Contains(t, output, "plan i7 of home in live: 0 of 3 done, 1 running, 1 failed, 1 blocked\nDEPLOY api@host failed: no such image\n")
	require.NotContains(t, output, "other")
}
