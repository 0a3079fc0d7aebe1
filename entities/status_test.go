package entities

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Statuses are one table, first match wins. Each fact alone gives its row, and
// together with all facts of the rows below it still does.
func TestStatusOf(t *testing.T) {
	rows := []struct {
		fact string // field of Facts
		want Status
		exit int
	}{
		{"Deleted", StatusDeleted, ExitConverged},
		{"Orphaned", StatusOrphaned, ExitWaiting},
		{"Paused", StatusPaused, ExitNeedsPerson},
		{"RollbackFailed", StatusFailedRollback, ExitFailed},
		{"RollingBack", StatusRollingBack, ExitWaiting},
		{"Failed", StatusFailed, ExitFailed},
		{"Unknown", StatusUnknown, ExitWaiting},
		{"Suspended", StatusSuspended, ExitNeedsPerson},
		{"Converging", StatusConverging, ExitWaiting},
		{"Degraded", StatusDegraded, ExitFailed},
		{"WaitsApproval", StatusManualApproval, ExitNeedsPerson},
		{"Blocked", StatusBlocked, ExitFailed},
		{"Waits", StatusPreconditions, ExitWaiting},
		{"RolledBack", StatusRolledBack, ExitFailed},
		{"Cancelled", StatusCancelled, ExitFailed},
		{"Progressing", StatusProgressing, ExitWaiting},
	}
	set := func(f *Facts, name string) { reflect.ValueOf(f).Elem().FieldByName(name).SetBool(true) }
	var below Facts
	for n := len(rows) - 1; n >= 0; n-- {
		row := rows[n]
		t.Run(string(row.want), func(t *testing.T) {
			var alone Facts
			set(&alone, row.fact)
			set(&below, row.fact)
			require.Equal(t, row.want, StatusOf(alone))
			require.Equal(t, row.want, StatusOf(below))
			require.Equal(t, row.exit, row.want.Row().Exit)
		})
	}
	require.Equal(t, StatusConverged, StatusOf(Facts{}))
	require.Equal(t, len(rows)+1, reflect.TypeFor[Facts]().NumField(), "every fact has a row, except the apply approval, which only affects the health")
	require.Len(t, StatusTable(), len(rows)+1)
}

// A pause, or a waiting release, does not change the health of the current version.
func TestHealth_D22(t *testing.T) {
	waits := Facts{Paused: true, WaitsApproval: true, Blocked: true, Waits: true}
	require.Equal(t, StatusConverged, waits.Health())
	for want, ill := range map[Status]Facts{
		StatusConverging: {Converging: true}, StatusDegraded: {Degraded: true}, StatusUnknown: {Unknown: true}, StatusFailed: {Failed: true},
		StatusRolledBack: {RolledBack: true}, StatusRollingBack: {RollingBack: true}, StatusFailedRollback: {RollbackFailed: true},
		StatusCancelled: {Cancelled: true}, StatusOrphaned: {Orphaned: true}, StatusDeleted: {Deleted: true}, StatusProgressing: {Progressing: true},
	} {
		require.Equal(t, want, ill.Health())
		ill.Paused, ill.WaitsApproval, ill.Blocked, ill.Waits = true, true, true, true
		require.Equal(t, want, ill.Health())
	}
	require.Equal(t, StatusConverging, Facts{WaitsApproval: true, ApplyNeedsApproval: true}.RollUp([]Facts{{}}).Health(), "its apply waits for a person")
	require.Equal(t, StatusConverging, Facts{}.RollUp([]Facts{{}, {WaitsApproval: true, ApplyNeedsApproval: true}}).Health())
}

func TestLength(t *testing.T) {
	for want, d := range map[string]time.Duration{"168h": 168 * time.Hour, "1h30m": 90 * time.Minute, "10m": 10 * time.Minute, "10s": 10 * time.Second, "1h0m5s": time.Hour + 5*time.Second, "500ms": 500 * time.Millisecond} {
		require.Equal(t, want, Length(d))
	}
}

// A service's status is that of its worst channel.
func TestWorst(t *testing.T) {
	order := strings.Fields(`DELETED CONVERGED ORPHANED PROGRESSING WAITING_PRECONDITIONS CONVERGING PAUSED WAITING_MANUAL_APPROVAL
		SUSPENDED ROLLING_BACK UNKNOWN BLOCKED DEGRADED CANCELLED ROLLED_BACK FAILED FAILED_ROLLBACK`)
	for i, mild := range order[1:] {
		for _, severe := range order[i+1:] {
			require.Equal(t, Status(severe), Worst(Status(mild), Status(severe)))
			require.Equal(t, Status(severe), Worst(Status(severe), Status(mild)))
		}
	}
	require.Len(t, order, len(StatusTable()))
	require.Equal(t, StatusConverged, Worst())
	require.Equal(t, StatusRow{Status: "OF_A_NEWER_VERSION", Exit: ExitWaiting}, Status("OF_A_NEWER_VERSION").Row())
}

func ExampleStatusTable() {
	for _, r := range StatusTable() {
		fmt.Printf("%-24s severity %2d, exit %2d: %s\n", r.Status, r.Severity, r.Exit, r.When)
	}
	// Output:
	// DELETED                  severity  0, exit  0: deleted, and its objects are removed
	// ORPHANED                 severity  2, exit -1: no longer declared, left in place
	// PAUSED                   severity  6, exit  8: paused at any scope
	// FAILED_ROLLBACK          severity 16, exit  2: a rollback target failed
	// ROLLING_BACK             severity  9, exit -1: moving to a rollback target
	// FAILED                   severity 15, exit  2: the release in progress failed here, no rollback
	// UNKNOWN                  severity 10, exit -1: no reading yet, readings fail, or no worker polls
	// SUSPENDED                severity  8, exit  8: a rollout waits at one of its own steps for a person
	// CONVERGING               severity  5, exit -1: target set, objects not yet stable
	// DEGRADED                 severity 12, exit  2: had converged, now unhealthy or drifted
	// WAITING_MANUAL_APPROVAL  severity  7, exit  8: the next release waits, and an approval can be given now
	// BLOCKED                  severity 11, exit  2: the next release or step waits for something that failed
	// WAITING_PRECONDITIONS    severity  4, exit -1: the next release or step waits for other conditions
	// ROLLED_BACK              severity 14, exit  2: at its rollback target; the release is barred
	// CANCELLED                severity 13, exit  2: the release was cancelled before it succeeded here
	// PROGRESSING              severity  3, exit -1: as declared, but not everything is ready: pods restart or scale
	// CONVERGED                severity  1, exit  0: at its target, which is the desired one
}
