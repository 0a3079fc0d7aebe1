package kubernetes_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// No request that writes reaches a channel that only reports: not with what is there by somebody else, nor for a release,
// drift, a restart, or a rollback and a retry by hand.
func TestOnlyReadsWhereItIsOnlyReported_A25(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "web")
	record := requestsOf(w.cluster.Kubeconfig)
	reported := "- name: production\n  enforcement: report\n"
	would := func(text string) {
		t.Helper()
		w.AwaitThat("web", text, func(s protocol.Status) bool {
			return channelOf(s, "production").ReportOnly && strings.Contains(reasons(s, "production"), text)
		})
	}
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.edit(configFile, "- name: production\n", reported)
	w.Publish()
	w.AwaitThat("web", "report only", func(s protocol.Status) bool { return channelOf(s, "production").ReportOnly })
	before := record.writtenTo(w.production)
	require.NotEmpty(t, before, "the record sees writes")

	w.Release("web", "v2")
	would("report only: Converge would apply v2")
	w.Act("web", protocol.Rollback, `{"by":"test","channel":"production","reason":"bad"}`)
	w.Await("web", "staging CONVERGED v2, production ROLLED_BACK v1")
	err := w.Update(w.ID("web"), protocol.RestartService, protocol.ScopeRequest{RequestMeta: protocol.RequestMeta{By: "test"}, Channel: "production"}, nil)
	require.ErrorContains(t, err, "its channel is report-only")
	w.patchWeb(w.production, "kubectl-edit", `{"spec":{"replicas":5}}`)
	would("report only: Converge would repair it to v1")
	w.Act("web", protocol.Retry, `{"by":"test","channel":"production","version":"v2"}`)
	would("report only: Converge would apply v2")

	require.Equal(t, before, record.writtenTo(w.production))
	require.Equal(t, int32(5), *w.deployment(w.production, "web").Spec.Replicas)
}
