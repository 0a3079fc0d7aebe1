package explain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// An approval is listed while people are asked for it, with everything else that the release waits for.
func TestOpenApprovals_A14(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	goLive := protocol.ConditionStatus{
		ID: "approval/go-live", Kind: "approval", Subject: "go-live", Verdict: "WAIT", Reason: "1 of 2, by any of bob, carol, dave", ApprovedBy: []string{"dave"}, Need: 2,
		Code: "open", Since: now.Add(-time.Hour), Unblock: "converge approve shop/web v2 go-live",
	}
	early := goLive
	early.Code = ""
	condition := func(id, kind, verdict string) protocol.ConditionStatus {
		return protocol.ConditionStatus{ID: id, Kind: kind, Verdict: verdict, Reason: "…"}
	}
	in := func(channel, current string, conditions ...protocol.ConditionStatus) protocol.ChannelStatus {
		return protocol.ChannelStatus{Name: channel, Current: current, Target: current, Desired: "v2", Conditions: conditions}
	}
	service := func(name string, channels ...protocol.ChannelStatus) protocol.Status {
		return protocol.Status{Application: "shop", Service: name, Channels: channels}
	}
	unasked, given := goLive, goLive
	unasked.Code, given.Code, given.Verdict = "not-asked", "", "PASS"
	newer := goLive
	newer.Since, newer.Unblock = now.Add(-time.Minute), "converge approve shop/api v2 go-live"

	open := OpenApprovals([]protocol.Status{
		service("api", in("production", "", newer)),
		service("web", in("staging", "v2"), in("eu", "v1", condition("channel-stable/staging", "channel-stable", "PASS"), condition("business-hours", "check", "WAIT"), goLive),
			in("us", "v1", goLive, condition("smoke", "check", "ERROR"))),
		service("early", in("production", "v1", condition("channel-stable/staging", "channel-stable", "WAIT"), early)),
		service("barred", in("production", "v1", condition("bad-versions", "check", "FAIL"), early)),
		service("unasked", in("production", "v1", unasked)),
		service("given", in("production", "v1", given)),
	})
	var lines []string
	for _, a := range open {
		lines = append(lines, a.Lines(now)...)
	}
	require.Equal(t, []string{
		"shop/web v2 go-live: 1 of 2, by any of bob, carol, dave; since 09:00 UTC (1h ago)",
		"  eu v1 → v2, which also waits for business-hours",
		"  us v1 → v2, which also waits for smoke",
		"  converge approve shop/web v2 go-live",
		"shop/api v2 go-live: 1 of 2, by any of bob, carol, dave; since 09:59 UTC (1m ago)",
		"  production (nothing) → v2",
		"  converge approve shop/api v2 go-live",
	}, lines)
	require.Equal(t, []string{"dave"}, open[0].ApprovedBy)
	require.True(t, open[0].MayGive(entities.Who{Name: "eve"}), "everybody may")
	open[0].Channels[0].Eligible = &entities.Eligible{Except: []string{"eve"}}
	require.True(t, open[0].MayGive(entities.Who{Name: "eve"}), "for the other channel")
	open[0].Channels[1].Eligible = open[0].Channels[0].Eligible
	require.False(t, open[0].MayGive(entities.Who{Name: "eve"}))
	require.NotNil(t, OpenApprovals(nil), "JSON has an empty list")
}
