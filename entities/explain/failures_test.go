package explain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// What fails is reported when it begins, at each further attempt of an apply, and again after it was good in between.
func TestFailuresAreReportedOnce(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	status := func(reason string, conditions ...protocol.ConditionStatus) protocol.Status {
		c := protocol.ChannelStatus{Name: "staging", Status: "CONVERGING", NextChange: now.Add(8 * time.Second), Conditions: conditions}
		if reason != "" {
			c.Reasons = []protocol.Reason{{Code: "failure", Text: reason}}
		}
		return protocol.Status{Application: "hello", Service: "web", Channels: []protocol.ChannelStatus{c}}
	}
	broken := protocol.ConditionStatus{ID: "smoke", Kind: "check", Verdict: "ERROR", Reason: "no answer", NextCheck: now.Add(30 * time.Second)}
	var f Failures
	for _, step := range []struct {
		status protocol.Status
		want   []string
		last   string
	}{
		{status(""), nil, ""},
		{status("apply failed once: port\ntaken"), []string{"apply failed once: port taken; next attempt in 8s"}, "staging: apply failed once: port taken"},
		{status("apply failed once: port\ntaken"), nil, "staging: apply failed once: port taken"},
		{status("apply failed twice: port taken", broken), []string{"apply failed twice: port taken; next attempt in 8s", "smoke cannot be evaluated: no answer; next attempt in 30s"}, "staging: apply failed twice: port taken"},
		{status("", broken), nil, "staging: smoke cannot be evaluated: no answer"},
		{status(""), nil, ""},
		{status("", broken), []string{"smoke cannot be evaluated: no answer; next attempt in 30s"}, "staging: smoke cannot be evaluated: no answer"},
	} {
		var texts []string
		for _, e := range f.New(step.status, now) {
			require.Equal(t, "staging", e.Channel)
			texts = append(texts, e.Text)
		}
		require.Equal(t, step.want, texts)
		require.Equal(t, step.last, f.Last())
	}
}
