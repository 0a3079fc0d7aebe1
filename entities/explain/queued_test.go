package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// Hundreds of queued releases share a line with their number and range; a release with details has its own line.
func TestManyQueuedReleasesShareALine_B3_A13(t *testing.T) {
	s := protocol.Status{Application: "shop", Service: "web", Channels: []protocol.ChannelStatus{{
		Name: "prod", Status: "WAITING_MANUAL_APPROVAL", Desired: "v1",
		Conditions: []protocol.ConditionStatus{{ID: "approval/go", Kind: approval, Subject: "go", Verdict: "WAIT", Reason: "0 of 1, by any caller"}},
	}}}
	for n := 300; n > 0; n-- { // newest first
		s.Releases = append(s.Releases, protocol.ReleaseStatus{ID: fmt.Sprint(n), Version: fmt.Sprintf("v%d", n), Phases: map[string]string{"prod": pending}})
	}
	s.Releases[99].Reasons = map[string]string{"prod": "retried by bob"} // v201
	var lines []string
	for _, line := range Lines(s, "", time.Time{}) {
		if strings.Contains(line, "behind") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	require.Equal(t, []string{
		"199 releases, v2 to v200, are behind v1.",
		"v201 is behind v1 (retried by bob).",
		"99 releases, v202 to v300, are behind v1.",
	}, lines)
}

// A channel's conditions are about the release that is next there. They are no reason for another release, which may have its own.
func TestQueuedReleaseNamesTheOneAhead_B6_A13(t *testing.T) {
	s := protocol.Status{Application: "shop", Service: "web", Channels: []protocol.ChannelStatus{
		{Name: "staging", Status: converged, Desired: "v9"},
		{Name: "prod", Status: "WAITING_MANUAL_APPROVAL", Desired: "v9", Conditions: []protocol.ConditionStatus{
			{ID: "approval/go", Kind: approval, Subject: "go", Verdict: "WAIT", Need: 1},
		}},
	}}
	add := func(version, staging string) {
		s.Releases = append(s.Releases, protocol.ReleaseStatus{ID: version, Version: version, Phases: map[string]string{"staging": staging, "prod": pending}})
	}
	add("v9", "succeeded")
	add("v8-i3", "cancelled")
	rows := func() (out []string) {
		for _, row := range Table([]protocol.Status{s}, time.Time{}).Releases[0].Rows {
			out = append(out, strings.Join(row, " | "))
		}
		return out
	}
	require.Equal(t, []string{"web v9 | succeeded | pending | go 0/1", "web v8-i3 | cancelled | pending | behind v9"}, rows())
	s.Releases = s.Releases[:1]
	add("v8", "succeeded")
	add("v7", "succeeded")
	require.Equal(t, []string{"web v7 … v9 | succeeded | pending | 3 wait: go 0/1"}, rows(), "the newest is next, and names the reason")
}
