package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// newHandover is a trial whose worker may write, and whose channel production is report-only.
func newHandover(t *testing.T, tool string) *trial {
	t.Helper()
	w := &trial{kubeWorld: newKubeWorld(t, "web")}
	w.mayAdopt()
	w.mayWrite()
	w.deploys(tool, "v1")
	return w
}

// managers are the field managers of the Deployment web.
func (w *trial) managers() (all []string) {
	w.T.Helper()
	for _, entry := range w.deployment(w.production, "web").ManagedFields {
		if entry.Subresource == "" {
			all = append(all, entry.Manager)
		}
	}
	return all
}

// A service is adopted from the tool that deploys it, released by Converge, and returned, without a restarted pod at either moment. Then
// the other tool deploys again, and Converge recognises what it deploys.
func TestServiceIsAdoptedAndReturned_A25(t *testing.T) {
	t.Parallel()
	w := newHandover(t, "argocd-controller")
	w.Publish()
	s := w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.True(t, channelOf(s, "production").ReportOnly)
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { return len(w.pods(w.production)) == 3, fmt.Sprint(w.pods(w.production)) })
	before := w.pods(w.production)
	plan, code := w.prompt().Converge("plan", w.App+"/web", "v1")
	require.Zero(t, code, plan)
	require.Contains(t, plan, "it is adopted from argocd-controller")

	w.Act("web", protocol.Adopt, `{"by":"alice","channel":"production","reason":"two weeks without a difference"}`)
	w.awaitAdoption("v1")
	require.Equal(t, before, w.pods(w.production), "nothing is restarted by the adoption")
	require.Contains(t, w.managers(), "converge")
	require.NotContains(t, w.managers(), "argocd-controller")

	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { return len(w.pods(w.production)) == 3, fmt.Sprint(w.pods(w.production)) })
	before = w.pods(w.production)

	w.Act("web", protocol.Return, `{"by":"alice","channel":"production","reason":"after the migration"}`)
	w.awaitReturn("v2")
	web := w.deployment(w.production, "web")
	for name := range web.Labels {
		require.NotContains(t, name, "converge/")
	}
	require.NotContains(t, w.managers(), "converge")
	require.Equal(t, before, w.pods(w.production), "nothing is restarted by the return")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	left, err := w.cluster.Client.CoreV1().ConfigMaps(w.production).List(t.Context(), metav1.ListOptions{LabelSelector: "converge/service=web"})
	require.NoError(t, err)
	require.Empty(t, left.Items, "its inventory, and its settings")

	w.deploys("argocd-controller", "v3")
	w.Release("web", "v3")
	w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
}

// awaitAdoption waits until Converge applies a version to production.
func (w *trial) awaitAdoption(version string) {
	w.T.Helper()
	w.AwaitThat("web", "Converge applies", func(s protocol.Status) bool {
		return !channelOf(s, "production").ReportOnly && stage.Channels(s) == fmt.Sprintf("staging CONVERGED %s, production CONVERGED %[1]s", version) &&
			w.deployment(w.production, "web").Labels["converge/service"] == "web"
	})
}

func (w *trial) awaitReturn(version string) {
	w.T.Helper()
	w.AwaitThat("web", "its objects are given up", func(s protocol.Status) bool {
		return channelOf(s, "production").ReportOnly && strings.Contains(journalOf(s), "return of "+version+": ")
	})
}

// What cannot be adopted or returned is refused, with what to do instead.
func TestHandoverIsRefused_A25(t *testing.T) {
	t.Parallel()
	w := newTrial(t, "helm")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	refused := func(verb, channel, text string) {
		t.Helper()
		err := w.Update(w.ID("web"), verb, protocol.ScopeRequest{RequestMeta: protocol.RequestMeta{By: "test"}, Channel: channel}, nil)
		require.ErrorContains(t, err, text)
	}
	refused(protocol.Adopt, "production", "has access: read; give its workers credentials that may write")
	refused(protocol.Adopt, "staging", "staging is not report-only: Converge applies there already")
	refused(protocol.Return, "production", "production was not adopted: to stop applying there, declare enforcement: report")
}

func journalOf(s protocol.Status) string {
	var lines []string
	for _, line := range s.Journal {
		lines = append(lines, line.Text)
	}
	return strings.Join(lines, "\n")
}
