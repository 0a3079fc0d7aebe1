package outcome

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// outcomeStatus parses "name STATUS desired phase / condition…" per channel, of release 5 (v5); "-" is empty. A condition with a question
// mark was not evaluated yet.
func outcomeStatus(t *testing.T, channels ...string) protocol.Status {
	t.Helper()
	s := protocol.Status{Application: "shop", Service: "web"}
	r := protocol.ReleaseStatus{ID: "5", Version: "v5", Phases: map[string]string{}}
	for _, text := range channels {
		text, conditions, _ := strings.Cut(text, " / ")
		fields := strings.SplitN(text, " ", 4)
		require.Len(t, fields, 4, text)
		c := protocol.ChannelStatus{Name: fields[0], Status: fields[1], Desired: fields[2]}
		if fields[3] != "-" {
			r.Phases[fields[0]] = fields[3]
		}
		if c.Status == "CONVERGED" && c.Desired != "-" {
			c.Target = c.Desired
		}
		for _, id := range strings.Fields(conditions) {
			k := protocol.ConditionStatus{ID: strings.TrimSuffix(id, "?"), Verdict: "WAIT"}
			if id != k.ID {
				k.Code = "not-asked"
			}
			if topic, ok := strings.CutPrefix(id, "approval/"); ok {
				k.Unblock = "converge approve shop/web " + c.Desired + " " + topic
			}
			c.Conditions = append(c.Conditions, k)
		}
		s.Channels = append(s.Channels, c)
	}
	s.Releases = []protocol.ReleaseStatus{{ID: "6", Version: "v6", Phases: map[string]string{}}, r}
	return s
}

const up = " / channel-stable/a"

func TestExitForRelease(t *testing.T) {
	for _, tt := range []struct {
		name     string
		channels []string
		approval Approval
		want     Outcome
	}{
		{"everywhere", []string{"a CONVERGED v5 succeeded", "b CONVERGED v5 succeeded"}, 0, Final(0, "web v5 converged in a, b")},
		{"in progress", []string{"a CONVERGING v5 in progress", "b WAITING_PRECONDITIONS v5 pending" + up}, 0, Outcome{Why: "web v5 is in progress in a"}},
		{"at a rollout step", []string{"a SUSPENDED v5 in progress", "b WAITING_PRECONDITIONS v5 pending" + up}, 0, Final(8, "web v5 waits for a person at a rollout step in a")},
		{"at a rollout step that may be promoted", []string{"a SUSPENDED v5 in progress"}, AwaitsApproval, Outcome{Code: 8, Why: "web v5 waits for a person at a rollout step in a"}},
		{"between two channels", []string{"a CONVERGED v5 succeeded", "b WAITING_PRECONDITIONS v5 pending" + up}, 0, Outcome{Why: "web v5 waits in b"}},
		{"a window", []string{"a CONVERGED v5 succeeded", "b WAITING_PRECONDITIONS v5 pending / office-hours"}, 0, Outcome{Why: "web v5 waits in b for office-hours"}},
		{"cannot be read", []string{"a UNKNOWN v5 in progress"}, 0, Outcome{Why: "web v5 is in progress in a"}},
		{"an outage whose fix waits for an approval", []string{"b DEGRADED v5 pending / approval/go-live"}, 0, Outcome{Final: true, Code: 8, Why: "web v5 waits for an approval in b", Next: "Next: converge approve shop/web v5 go-live."}},
		{"the same, awaited", []string{"b FAILED v5 pending / approval/go-live"}, AwaitsApproval, Outcome{Code: 8, Why: "web v5 waits for an approval in b", Next: "Next: converge approve shop/web v5 go-live."}},
		{"an outage whose fix waits for a window", []string{"b DEGRADED v5 pending / office-hours"}, 0, Outcome{Why: "web v5 waits in b for office-hours"}},
		{"degraded while in progress", []string{"a DEGRADED v5 in progress"}, 0, Outcome{Why: "web v5 is in progress in a"}},
		{"status of a later version", []string{"a SLEEPING v5 in progress"}, 0, Outcome{Why: "web v5 is in progress in a"}},
		{"failed", []string{"a FAILED v5 failed", "b BLOCKED v5 pending", "c WAITING_PRECONDITIONS v5 pending / channel-stable/b"}, 0, failedOutcome("web v5 failed in a; b, c blocked by that")},
		{"failed, held behind another release", []string{"a FAILED v5 failed", "b WAITING_PRECONDITIONS v4 pending"}, 0, failedOutcome("web v5 failed in a; b blocked by that")},
		{"failed in one, in progress in another", []string{"a FAILED v5 failed", "b CONVERGING v5 in progress"}, 0, Outcome{Why: "web v5 is in progress in b"}},
		{"failed before the phase shows it", []string{"a FAILED v5 in progress"}, 0, failedOutcome("web v5 failed in a")},
		{"rolling back", []string{"a ROLLING_BACK v4 failed", "b BLOCKED v5 pending"}, 0, Outcome{Why: "web v5 is in progress in a"}},
		{"rolled back", []string{"a ROLLED_BACK v4 rolled back", "b BLOCKED v5 pending"}, 0, failedOutcome("web v5 was rolled back in a; b blocked by that")},
		{"failed in one, rolled back in another", []string{"a FAILED v5 failed", "b ROLLED_BACK v4 rolled back"}, 0, failedOutcome("web v5 failed in a; web v5 was rolled back in b")},
		{"held by a pin", []string{"a CONVERGED v5 succeeded", "b WAITING_PRECONDITIONS v5 pending / pin"}, AwaitsApproval, Final(8, "web v5 is held by a pin in b")},
		{"rollback failed", []string{"a FAILED_ROLLBACK v4 rolled back"}, 0, failedOutcome("web v5 failed in a")},
		{"failed, its fix is in progress", []string{"a CONVERGING v6 failed", "b WAITING_PRECONDITIONS v6 skipped" + up}, 0, failedOutcome("web v5 failed in a")},
		{"superseded everywhere", []string{"a CONVERGED v6 skipped", "b CONVERGED v6 skipped"}, 0, Final(0, "web v5 was skipped: a newer release entered a, b")},
		{"superseded in one", []string{"a CONVERGED v6 succeeded", "b CONVERGED v6 skipped"}, 0, Final(0, "web v5 converged in a")},
		{"succeeded, then degraded", []string{"a DEGRADED v5 succeeded"}, 0, Final(0, "web v5 converged in a")},
		{"cancelled", []string{"a CONVERGED v5 succeeded", "b CONVERGED v4 cancelled"}, 0, Final(2, "web v5 was cancelled in b")},
		{"paused before", []string{"a PAUSED v5 pending", "b WAITING_PRECONDITIONS v5 pending" + up}, 0, Final(8, "web v5 is paused in a")},
		{"paused midway", []string{"a PAUSED v5 in progress"}, AwaitsApproval, Final(8, "web v5 is paused in a")},
		{"paused, in progress elsewhere", []string{"a PAUSED v5 pending", "b CONVERGING v5 in progress"}, 0, Outcome{Why: "web v5 is in progress in b"}},
		{"approval", []string{"a CONVERGED v5 succeeded", "b WAITING_MANUAL_APPROVAL v5 pending"}, 0, Final(8, "web v5 waits for an approval in b")},
		{"approval, awaited", []string{"b WAITING_MANUAL_APPROVAL v5 pending"}, AwaitsApproval, Outcome{Code: 8, Why: "web v5 waits for an approval in b"}},
		{"approval while another channel is in progress", []string{"a CONVERGING v5 in progress", "b WAITING_MANUAL_APPROVAL v5 pending"}, 0, Outcome{Why: "web v5 is in progress in a"}},
		{"stop at approval at once", []string{"a CONVERGING v5 in progress", "b WAITING_MANUAL_APPROVAL v5 pending"}, EndsAtApprovalNow, Final(8, "web v5 waits for an approval in b")},
		{"behind a release that waits for an approval", []string{"b WAITING_MANUAL_APPROVAL v4 pending"}, EndsAtApprovalNow, Final(8, "web v5 waits for an approval in b behind v4")},
		{"behind a release that waits for an approval, in progress", []string{"a CONVERGING v5 in progress", "b WAITING_MANUAL_APPROVAL v4 pending"}, EndsAtApprovalNow, Outcome{Why: "web v5 is in progress in a"}},
		{"approval, and a channel behind it that checks something", []string{"b WAITING_MANUAL_APPROVAL v5 pending", "c WAITING_PRECONDITIONS v5 pending / channel-stable/b alerts?"}, 0, Final(8, "web v5 waits for an approval in b")},
		{"approval, and another one behind it", []string{"b WAITING_MANUAL_APPROVAL v5 pending", "c WAITING_PRECONDITIONS v5 pending / channel-stable/b approval/c"}, 0, Final(8, "web v5 waits for an approval in b")},
		{"rolled back, and another version runs since", []string{"a CONVERGED v6 rolled back", "b WAITING_MANUAL_APPROVAL v6 failed"}, 0, failedOutcome("web v5 failed in b; web v5 was rolled back in a")},
		{"blocked by a dependency", []string{"b BLOCKED v5 pending"}, 0, failedOutcome("web v5 is blocked in b")},
		{"a channel without this release", []string{"a CONVERGED v5 succeeded", "new CONVERGING v6 -"}, 0, Final(0, "web v5 converged in a")},
		{"in no channel", []string{"new CONVERGED v6 -"}, 0, Final(0, "web v5 converged")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, Of(outcomeStatus(t, tt.channels...), Goal{Release: "5", Approval: tt.approval}))
		})
	}
	blocked := outcomeStatus(t, "b BLOCKED v5 pending / alerts")
	blocked.Channels[0].Conditions[0] = protocol.ConditionStatus{ID: "alerts", Verdict: "FAIL", Reason: "Slow fires", Unblock: "release a version that passes"}
	require.Equal(t, Outcome{Final: true, Code: Failed, Why: "web v5 is blocked in b: alerts: Slow fires", Next: "Next: release a version that passes."}, Of(blocked, Goal{Release: "5"}))
	unread := outcomeStatus(t, "a UNKNOWN v5 in progress", "b UNKNOWN v5 pending / reading")
	for n := range unread.Channels {
		unread.Channels[n].Unread = &protocol.Unread{Code: "unreachable", Message: "connection refused"}
	}
	require.Equal(t, Outcome{Why: "web v5 waits in a, b, which cannot be read: unreachable: connection refused"}, Of(unread, Goal{Release: "5"}))
	unrepaired := outcomeStatus(t, "a DEGRADED v5 -")
	unrepaired.Channels[0].Reasons = []protocol.Reason{{Code: "progress", Text: "web FAILED"}, {Code: "command", Text: "release a fix, or: converge restart shop/web a"}}
	require.Equal(t, "Next: release a fix, or: converge restart shop/web a.", Of(unrepaired, Goal{}).Next)
	waitsForTime := outcomeStatus(t, "b WAITING_MANUAL_APPROVAL v5 pending", "c WAITING_PRECONDITIONS v5 pending"+up)
	waitsForTime.Channels[1].Conditions[0].NextCheck = time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC) // it only waits for a time
	require.Equal(t, Outcome{Why: "web v5 waits in c for channel-stable/a"}, Of(waitsForTime, Goal{Release: "5"}))
	s := outcomeStatus(t, "a CONVERGED v5 succeeded", "b FAILED v5 failed")
	require.Equal(t, Final(0, "web v5 converged in a"), Of(s, Goal{Release: "5", Channel: "a"}))
	require.Equal(t, Final(1, "release 4 has ended and is no longer listed"), Of(s, Goal{Release: "4"}))
	require.Equal(t, Final(1, `shop/web has no release channel "c"; expected one of a, b`), Of(s, Goal{Release: "5", Channel: "c"}))
}

// A report-only channel is not waited for when nothing else moves, and never counts as a failure (A25).
func TestExitForAReportOnlyChannel_A25(t *testing.T) {
	exit := func(channels ...string) Outcome {
		s := outcomeStatus(t, channels...)
		s.Channels[0].ReportOnly = true
		if strings.Contains(channels[0], "in progress") { // its target is set to the desired version
			s.Channels[0].Target = s.Channels[0].Desired
		}
		of := Of(s, Goal{Release: "5", Approval: AwaitsApproval})
		if service := Of(s, Goal{}); of.Final {
			require.Equal(t, of.Code, service.Code)
		}
		return of
	}
	waits := "a WAITING_PRECONDITIONS v5 in progress"
	require.Equal(t, Final(0, "web v5 would be applied in a, where Converge only reports"), exit(waits))
	require.Equal(t, Final(0, "web v5 would be applied in a, where Converge only reports; it converged in b"), exit(waits, "b CONVERGED v5 succeeded"))
	require.Equal(t, Final(0, "web v5 would be applied in a, where Converge only reports; it waits for that in b"), exit(waits, "b WAITING_PRECONDITIONS v5 pending"+up))
	require.Equal(t, Outcome{Why: "web v5 is in progress in b"}, exit(waits, "b CONVERGING v5 in progress"))
	require.Equal(t, failedOutcome("web v5 failed in b"), exit(waits, "b FAILED v5 failed"))
	require.Equal(t, Outcome{Why: "web v5 waits in a for office-hours"}, exit("a WAITING_PRECONDITIONS v5 pending / office-hours"), "its gates are still evaluated")
}

// Every status of the table, as the only channel of the service: `wait` without a version.
func TestExitForService(t *testing.T) {
	lacks := outcomeStatus(t, "a CONVERGED v5 -", "b CONVERGED v4 -")
	lacks.Channels[1].MissingConfig = "configuration 5 was not deployed here, because v5 was cancelled: by bob"
	require.Equal(t, Final(0, "web converged in a, b; b: configuration 5 was not deployed here, because v5 was cancelled: by bob"), Of(lacks, Goal{}))
	keeps := outcomeStatus(t, "a CONVERGED v5 succeeded", "b CONVERGED v4-i5 succeeded")
	keeps.Releases[1].KeptVersions = map[string]string{"b": "v4-i5"}
	require.Equal(t, Final(0, "web v5 converged in a, b as v4-i5"), Of(keeps, Goal{Release: "5"}))
	want := map[entities.Status]Outcome{
		entities.StatusDeleted:        Final(0, "web converged in a"),
		entities.StatusOrphaned:       Final(0, "web converged"),
		entities.StatusPaused:         Final(8, "web is paused in a"),
		entities.StatusFailedRollback: failedOutcome("web failed in a"),
		entities.StatusRollingBack:    {Why: "web is in progress in a"},
		entities.StatusFailed:         failedOutcome("web failed in a"),
		entities.StatusUnknown:        {Why: "web is in progress in a"},
		entities.StatusSuspended:      Final(8, "web waits for a person at a rollout step in a"),
		entities.StatusConverging:     {Why: "web is in progress in a"},
		entities.StatusDegraded:       {Final: true, Code: Failed, Why: "web failed in a", Next: "Next: wait for its repair (see converge explain), or release a fix."},
		entities.StatusManualApproval: Final(8, "web waits for an approval in a"),
		entities.StatusBlocked:        failedOutcome("web is blocked in a"),
		entities.StatusPreconditions:  {Why: "web waits in a"},
		entities.StatusRolledBack:     failedOutcome("web was rolled back in a"),
		entities.StatusCancelled:      Final(2, "web was cancelled in a"),
		entities.StatusProgressing:    {Why: "web is in progress in a"},
		entities.StatusConverged:      Final(0, "web converged in a"),
	}
	for _, row := range entities.StatusTable() {
		require.Contains(t, want, row.Status, "a new status needs a row here")
		got := Of(outcomeStatus(t, "a "+string(row.Status)+" v5 -"), Goal{})
		require.Equal(t, want[row.Status], got, row.Status)
		if row.Status == entities.StatusOrphaned {
			continue // alone it is not waited for; with other channels it delays none of them
		}
		require.Equal(t, row.Exit != entities.ExitWaiting, got.Final, row.Status)
		if got.Final {
			require.Equal(t, row.Exit, got.Code, row.Status)
		}
	}
	for _, tt := range []struct {
		channels []string
		want     Outcome
	}{
		{nil, Outcome{Why: "web is in progress in no channel yet"}},
		{[]string{"a FAILED v5 -", "b CONVERGING v6 -"}, Outcome{Why: "web is in progress in b"}},
		{[]string{"a FAILED v5 -", "b PAUSED v5 -"}, failedOutcome("web failed in a")},
		{[]string{"a PAUSED v5 -", "b WAITING_PRECONDITIONS v5 -" + up}, Final(8, "web is paused in a")},
		{[]string{"a CONVERGED v5 -", "b ORPHANED - -"}, Final(0, "web converged in a")},
		{[]string{"a CONVERGED v4 pending"}, Outcome{Why: "web waits in a"}},
		{[]string{"a CONVERGED v4 pending", "b FAILED v5 failed"}, failedOutcome("web failed in b; a blocked by that")},
		{[]string{"a SLEEPING v5 -"}, Outcome{Why: "web is in progress in a"}},
		{[]string{"a CONVERGED - -", "b CONVERGED - -"}, Final(0, "no version of web was released yet")},
		{[]string{"a CONVERGED v5 -", "b CONVERGED - -"}, Final(0, "web converged in a; nothing was released yet to b")},
		{[]string{"a CONVERGED v5 -", "b WAITING_MANUAL_APPROVAL v5 -", "c WAITING_PRECONDITIONS v5 - / channel-stable/b alerts?"}, Final(8, "web waits for an approval in b")},
	} {
		require.Equal(t, tt.want, Of(outcomeStatus(t, tt.channels...), Goal{}), strings.Join(tt.channels, "; "))
	}
}
