package deployment

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// An unreadable runtime is found under any status of the channel: a pause of everything hides no outage.
func TestUnreadableRuntimeIsFoundUnderAnyStatus_F10(t *testing.T) {
	t.Parallel()
	down := &protocol.Unread{Code: "unreachable", Message: "connection refused"}
	s := protocol.Status{Application: "shop", Service: "web", Channels: []protocol.ChannelStatus{
		{Name: "prod", Runtime: "eks", Status: string(entities.StatusPaused), Unread: down},
		{Name: "staging", Runtime: "edge", Status: string(entities.StatusConverged)},
		{Name: "fleet", Status: string(entities.StatusFailed), Unread: down, Instances: []protocol.InstanceStatus{
			{Name: "eu-1", Runtime: "eu-1", Status: string(entities.StatusUnknown), Unread: down},
			{Name: "eu-2", Runtime: "eu-2", Status: string(entities.StatusFailed), Reason: "exit status 1"},
		}},
	}}
	require.Equal(t, map[string]unreadableRuntime{
		"eks":  {1, "shop/web prod: unreachable: connection refused", "shop/web"},
		"eu-1": {1, "shop/web fleet/eu-1: unreachable: connection refused", "shop/web"},
	}, unreadableByRuntime(s))

	likely, others, fine := statusesToQuery()
	require.Contains(t, likely, string(entities.StatusUnknown), "queried first")
	require.NotContains(t, likely, string(entities.StatusPaused))
	asked := append(likely, others...)
	for _, status := range []entities.Status{entities.StatusPaused, entities.StatusRollingBack, entities.StatusFailed, entities.StatusUnknown, entities.StatusFailedRollback, entities.StatusConverging, entities.StatusManualApproval} {
		require.Contains(t, asked, string(status))
	}
	require.NotContains(t, asked, string(entities.StatusConverged))
	require.Contains(t, fine, string(entities.StatusConverged), "queried last")
}

// listing is a server that answers lists of workflows alone.
type listing struct {
	client.Client
	list func(query string) ([]*workflowpb.WorkflowExecutionInfo, error)
}

func (l listing) ListWorkflow(_ context.Context, r *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	found, err := l.list(r.Query)
	return &workflowservice.ListWorkflowExecutionsResponse{Executions: found}, err
}

// A server that does not report failing workflow tasks is no finding: what can be examined without them is.
func TestServerWithoutReportedProblemsIsExamined_F10(t *testing.T) {
	t.Parallel()
	n := Namespace{Client: listing{list: func(query string) ([]*workflowpb.WorkflowExecutionInfo, error) {
		if strings.Contains(query, problemsAttribute) {
			return nil, serviceerror.NewInvalidArgument("invalid query: no search attribute " + problemsAttribute)
		}
		return []*workflowpb.WorkflowExecutionInfo{{}, {}}, nil
	}}}
	var report Report
	require.NoError(t, n.examineFailing(t.Context(), &report))
	require.Empty(t, report.Findings)
	require.Equal(t, []string{"workflows that fail repeatedly: not known, because this server does not list them (it has no search attribute TemporalReportedProblems)"}, report.Examined)
	services, err := n.runningServices(t.Context(), []string{"UNKNOWN"}, 1)
	require.NoError(t, err)
	require.Len(t, services, 1)

	gone := errors.New("unavailable")
	n.Client = listing{list: func(string) ([]*workflowpb.WorkflowExecutionInfo, error) { return nil, gone }}
	require.ErrorIs(t, n.examineFailing(t.Context(), &report), gone)
	_, err = n.runningServices(t.Context(), nil, 1)
	require.ErrorIs(t, err, gone)
}

// A failure is found with its reason, also while another attempt is to come. A channel that cannot be read is a finding of its runtime.
func TestFailingChannelsAreFound_F10(t *testing.T) {
	t.Parallel()
	failure := []protocol.Reason{{Code: "progress", Text: "applying v2"}, {Code: "failure", Text: "apply failed twice: port\ntaken"}}
	s := protocol.Status{Application: "shop", Service: "web", Channels: []protocol.ChannelStatus{
		{Name: "staging", Status: string(entities.StatusConverging), Reasons: failure},
		{Name: "prod", Status: string(entities.StatusFailed), Reasons: []protocol.Reason{{Code: "failure", Text: "v2 failed: exit status 1", Unblock: "converge retry shop/web v2"}}},
		{Name: "edge", Status: string(entities.StatusUnknown), Reasons: failure, Unread: &protocol.Unread{Code: "unreachable"}},
		{Name: "fine", Status: string(entities.StatusConverged)},
	}}
	require.Equal(t, []Finding{
		{FailingChannel, "shop/web staging", "CONVERGING: apply failed twice: port taken", "see: converge explain shop/web staging"},
		{FailingChannel, "shop/web prod", "FAILED: v2 failed: exit status 1", "converge retry shop/web v2"},
	}, failingChannels(s))
}

// An approval that is missing is found after a day, once for all channels that share it.
func TestStaleApprovalsAreFound_F10(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	waits := func(since time.Time, code string) []protocol.ConditionStatus {
		return []protocol.ConditionStatus{{ID: "approval/go-live", Kind: "approval", Subject: "go-live", Verdict: "WAIT", Code: code, Since: since, Unblock: "converge approve shop/web v2 go-live"}}
	}
	s := protocol.Status{Application: "shop", Service: "web", Channels: []protocol.ChannelStatus{
		{Name: "eu", Desired: "v2", Conditions: waits(now.Add(-25*time.Hour), "open")},
		{Name: "us", Desired: "v2", Conditions: waits(now.Add(-25*time.Hour), "open")},
	}}
	require.Equal(t, []Finding{{StaleApproval, "shop/web v2", "it has waited for go-live since 2026-11-19 09:00 UTC", "converge approve shop/web v2 go-live"}}, staleApprovals(s, now))
	s.Channels = s.Channels[:1]
	s.Channels[0].Conditions = waits(now.Add(-time.Hour), "open")
	require.Empty(t, staleApprovals(s, now))
	s.Channels[0].Conditions = waits(now.Add(-25*time.Hour), "not-asked")
	require.Empty(t, staleApprovals(s, now), "nobody is asked yet")
}
