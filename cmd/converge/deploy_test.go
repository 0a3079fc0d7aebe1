package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// The plan of the newest incarnation is run, or shown; what failed is the exit status of who waits for it.
func TestDeployCommands_E7_E8_E12_E16(t *testing.T) {
	start := func(asked string) []string {
		return []string{fmt.Sprintf(`plan/home/live/i7 start {"application":"home","channel":"live","name":"i7","incarnation":7,%s,"by":"alice","logic":%d}`, asked, protocol.Logic)}
	}
	const shown = "DEPLOY web@host\tdone\t\nRECONCILE web@host\tfailed\tregister: no such host\n"
	for _, tt := range []struct {
		line, want string
		sent       []string
		code       int
	}{
		{line: "deploy home live --show", want: shown},
		{line: "deploy home live --wait", want: shown, code: exitFailed, sent: start(`"whole":true`)},
		{line: "deploy home live --changed web,api --max-parallelism 2 --eager-reconcile", want: shown, sent: start(`"changed":["web","api"],"limit":2,"eager":true`)},
		{line: "deploy home live --show --plan web-v3", code: exitError, want: "! converge: there is no plan web-v3 of home in live\n"},
		{line: "deploy home live --max-parallelism -1", code: exitError, want: "! converge: --max-parallelism: -1 at once are not possible; expected at least 1\n"},
	} {
		t.Run(tt.line, func(t *testing.T) {
			fake := &fakeAPI{statuses: map[string][]any{
				"application/home": {protocol.ApplicationStatus{Newest: 7}},
				"plan/home/live/i7": {protocol.PlanStatus{Over: true, Nodes: []protocol.PlanNodeStatus{
					{Node: "DEPLOY web@host", State: "done"}, {Node: "RECONCILE web@host", State: "failed", Text: "register: no such host"},
				}}},
			}}
			code, said := newConsole(t, fake).run(t, tt.line)
			require.Equal(t, tt.want, said)
			require.Equal(t, tt.code, code)
			require.Equal(t, tt.sent, fake.updates)
		})
	}
}
