package tests

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// reporting is staging before a production that only reports.
var reporting = strings.Replace(stage.TwoChannels, "- {name: production, ", "- {name: production, enforcement: report, ", 1)

// In a channel that only reports nothing is written, whatever people ask for; what somebody else brings there counts. Enforced,
// it goes on from there.
func TestAChannelThatOnlyReports_A25(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(reporting + stage.Web)
	w.Publish()
	production := w.Fake.At(w.App, "web", "production")
	applied := func() int { return production.Applies() }
	would := func(text string) {
		t.Helper()
		s := w.AwaitThat("web", text, func(s protocol.Status) bool {
			c := s.Channels[1]
			return c.ReportOnly && len(c.Reasons) > 0 && strings.Contains(c.Reasons[0].Text, text)
		})
		require.Equal(t, "report", s.Channels[1].Reasons[0].Code)
	}
	w.Release("web", "v1")
	would("report only: Converge would apply v1 since ")
	require.Contains(t, w.Status("web").Headline, "report only: Converge would apply v1")
	page := stage.Text(t, "../docs/spec/application.md", "Report only").With(strings.NewReplacer("v8", "v1"))
	c := w.Status("web").Channels[1]
	require.Empty(t, page.Missing(c.Name+" "+c.Status+": "+c.Reasons[0].Text))

	production.SetVersion("v1") // the old pipeline
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	production.SetVersion("by-hand")
	would("report only: Converge would repair it to v1")
	w.Act("web", protocol.Refresh, `{"by":"test"}`)
	production.SetVersion("v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")

	w.Release("web", "v2")
	would("report only: Converge would apply v2 since ")
	w.Act("web", protocol.Pin, `{"by":"test","channel":"production","version":"v1"}`)
	w.Await("web", "staging CONVERGED v2, production WAITING_PRECONDITIONS v1")
	w.Act("web", protocol.Unpin, `{"by":"test","channel":"production"}`)
	would("report only: Converge would apply v2 since ")
	w.Act("web", protocol.Rollback, `{"by":"test","channel":"production","reason":"bad"}`)
	w.Await("web", "staging CONVERGED v2, production ROLLED_BACK v1")
	w.Act("web", protocol.Retry, `{"by":"test","channel":"production","version":"v2"}`)
	would("report only: Converge would apply v2 since ")
	w.Release("web", "v3")
	would("report only: Converge would apply v3 since ")
	require.Zero(t, applied())
	require.NotContains(t, production.Version(), "v3")

	w.Write(stage.TwoChannels + stage.Web)
	require.Contains(t, w.Publish().Loosened[0].String(), "web in production: Converge applies instead of only reporting")
	w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
	require.Equal(t, 1, applied())

	w.Write(reporting + stage.Web)
	w.Publish()
	w.AwaitThat("web", "report", func(s protocol.Status) bool { return s.Channels[1].ReportOnly })
	production.SetVersion("by-hand")
	would("report only: Converge would repair it to v3")
	require.Equal(t, 1, applied())
	w.Write(strings.Replace(reporting, "- {name: production, enforcement: report, runtimes: [{name: APP-rt}], preconditions: [{releaseChannelStable: {releaseChannel: staging}}]}\n", "", 1) + stage.Web + "onDelete: remove\n")
	w.Publish()
	s := w.AwaitThat("web", "left in place", func(s protocol.Status) bool { return len(s.Channels) == 2 && s.Channels[1].Status == "ORPHANED" })
	require.Contains(t, s.Channels[1].Reasons[0].Text, "its channel was report-only: its objects were left in place")
	require.Equal(t, "by-hand", production.Version())
}
