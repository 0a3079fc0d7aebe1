package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/worker/deployment"
)

func waitingForApproval(service string) protocol.Status {
	s := webStatus("prod WAITING_MANUAL_APPROVAL v8 v9 pending")
	s.Service = service
	s.Channels[0].Conditions = []protocol.ConditionStatus{{
		ID: "approval/go-live", Kind: "approval", Subject: "go-live", Verdict: "WAIT", Code: "open", Reason: "0 of 1, by any of bob, carol", Need: 1, Since: at(0),
		Unblock: "converge approve shop/" + service + " v9 go-live",
	}}
	return s
}

func TestApprovals(t *testing.T) {
	for _, tt := range []struct {
		line     string
		statuses map[string][]any
		code     int
		want     string
	}{
		{
			"approvals",
			map[string][]any{"service/shop/web": {waitingForApproval("web")}, "service/shop/api": {webStatus("prod CONVERGED v9 v9 succeeded")}},
			outcome.Done,
			"shop/web v9 go-live: 0 of 1, by any of bob, carol; since 10:50 UTC (20s ago)\n  prod v8 → v9\n  converge approve shop/web v9 go-live\n",
		},
		{
			"status --needs-me",
			map[string][]any{"service/shop/web": {waitingForApproval("web")}, "service/shop/api": {webStatus("prod CONVERGED v9 v9 succeeded")}},
			outcome.Done,
			"SERVICE\tCHANNEL\tSTATUS\tCURRENT\tTARGET\tSINCE\tWAITS FOR\nweb\tprod\tWAITING_MANUAL_APPROVAL\tv8\tv9\t20s\tgo-live 0/1\n\nRELEASE\tprod\tWAITS FOR\nweb v9\tpending\tgo-live 0/1\n",
		},
		{"status --needs-me", map[string][]any{"service/shop/api": {webStatus("prod CONVERGED v9 v9 succeeded")}}, outcome.Done, "! no approval can be given now\n"},
		{"approvals shop", map[string][]any{"service/shop/web": {webStatus("prod CONVERGED v9 v9 succeeded")}}, outcome.Done, "! no approval can be given now\n"},
		{"approvals shop -o json", map[string][]any{"service/shop/web": {webStatus("prod CONVERGED v9 v9 succeeded")}}, outcome.Done, "[]\n"},
		{
			"approvals",
			map[string][]any{"service/shop/web": {waitingForApproval("web")}, "service/shop/api": {errors.New("no answer")}},
			outcome.Error,
			"shop/web v9 go-live: 0 of 1, by any of bob, carol; since 10:50 UTC (20s ago)\n  prod v8 → v9\n  converge approve shop/web v9 go-live\n! converge: no answer\n",
		},
	} {
		t.Run(tt.line, func(t *testing.T) {
			code, out := newConsole(t, &fakeAPI{statuses: tt.statuses}).run(t, tt.line)
			require.Equal(t, tt.want, out)
			require.Equal(t, tt.code, code)
		})
	}
}

// A caller who proves no identity is named by a flag, the environment, or user and host.
func TestCallerIsNamed(t *testing.T) {
	for line, by := range map[string]string{"approve shop/web v9 go-live": "alice", "approve shop/web v9 go-live --as bob": "bob"} {
		c := newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": {waitingForApproval("web")}}, answer: protocol.Answer{Message: "approved"}})
		code, out := c.run(t, line)
		require.Equal(t, "approved\n", out)
		require.Zero(t, code)
		require.Equal(t, []string{`service/shop/web approve {"by":"` + by + `","requestId":"ID","version":"v9","topic":"go-live"}`}, c.api.updates)
	}
}

// What other tools call a command is the command, or is suggested.
func TestCommandsByOtherNames(t *testing.T) {
	for line, path := range map[string]string{"undo shop/web": "rollback", "describe shop/web": "explain", "rollback shop/web": "rollback"} {
		c, _, err := newRoot(newConsole(t, nil).Factory).Find([]string{line[:len(line)-len(" shop/web")], "shop/web"})
		require.NoError(t, err)
		require.Equal(t, path, c.Name())
	}
	code, out := newConsole(t, nil).run(t, "apply shop")
	require.Equal(t, "! converge: unknown command \"apply\" for \"converge\"; did you mean: converge config publish?\n", out)
	require.Equal(t, outcome.Error, code)
}

func TestVersion(t *testing.T) {
	code, out := newConsole(t, nil).run(t, "version")
	require.Zero(t, code)
	require.Regexp(t, `^converge \S+( with changes)?(, commit [0-9a-f]{12}( with changes)?)?, go1\.\S+, [a-z]+/[a-z0-9]+\n$`, out)
	code, out = newConsole(t, nil).run(t, "version -o json")
	require.Zero(t, code)
	require.Contains(t, out, `"platform": `)
}

func TestChecklist(t *testing.T) {
	var report deployment.Report
	report.AddExamined("search attributes: %d", 5)
	report.AddFinding(deployment.FailingChannel, "shop/web staging", "FAILED: v2 failed: port\ntaken", "converge retry shop/web v2")
	require.Equal(t, "✓ search attributes: 5\n✗ failing-channel: shop/web staging\n    FAILED: v2 failed: port\\ntaken\n    converge retry shop/web v2\n", checklist(report))
}

func TestDoctorWatchesWithoutAnExitCode(t *testing.T) {
	code, out := newConsole(t, nil).run(t, "admin doctor --watch --exit-code")
	require.Equal(t, "! converge: --exit-code cannot be combined with --watch\n", out)
	require.Equal(t, outcome.Error, code)
}
