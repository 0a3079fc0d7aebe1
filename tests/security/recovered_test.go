package security

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/idptest"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// ownWorldOf is worldOf on a server of its own, whose worker can be stopped.
func ownWorldOf(t *testing.T, configuration string) (*stage.World, *idptest.Issuer) {
	t.Helper()
	w, issuer := shared.OwnServer(t, 0), idptest.New(t)
	w.Write(strings.ReplaceAll(configuration, "ISSUER", issuer.URL) + stage.Web)
	w.Publish()
	return w, issuer
}

// An act with a token that was answered and is in no checkpoint yet is done again by whoever starts the workflow again, whether the
// request had an id of its own or only that of its update: it is the request that the token has served.
func TestProvenActsOutliveTheirWorkflow_G7(t *testing.T) {
	t.Parallel()
	w, issuer := ownWorldOf(t, proven)
	w.Release("web", "v1")
	w.AwaitThat("web", "it waiting", func(s protocol.Status) bool { return s.Channels[0].Status == "WAITING_MANUAL_APPROVAL" })
	checkpoints := keptCheckpoints(t, w, "web")
	w.Act("web", protocol.Approve, approving(issuer.TokenOf(t, "alice@shop.dev")))
	w.Act("web", protocol.Pause, fmt.Sprintf(`{"requestId":"p1","token":%q}`, issuer.TokenOf(t, "alice@shop.dev")))
	w.StopWorker()
	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), w.ID("web"), "", "as an operator does"))
	checkpoints.restore()
	w.StartWorker()
	runsAgain(w, w.ID("web"))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		s := w.Status("web")
		return len(s.Pauses) == 1, fmt.Sprintf("%v", s.Refused)
	})
	s := w.Status("web")
	require.Empty(t, s.Refused)
	require.Contains(t, s.Channels[0].Conditions[0].Reason, "1 of 2 (alice@shop.dev)")
}

// So is one of a run that was started again and ended before it left a checkpoint: not only the run whose checkpoint it is counts.
func TestActsOfARunInBetweenAreKept_G7(t *testing.T) {
	stage.Long(t, "a minute")
	t.Parallel()
	w, issuer := ownWorldOf(t, proven)
	w.Release("web", "v1")
	w.AwaitThat("web", "it waiting", func(s protocol.Status) bool { return s.Channels[0].Status == "WAITING_MANUAL_APPROVAL" })
	checkpoints := keptCheckpoints(t, w, "web")
	ended := func() {
		w.StopWorker()
		require.NoError(t, w.Client.TerminateWorkflow(t.Context(), w.ID("web"), "", "as an operator does"))
		checkpoints.restore()
		w.StartWorker()
		runsAgain(w, w.ID("web"))
	}
	ended()
	w.Act("web", protocol.Approve, approving(issuer.TokenOf(t, "alice@shop.dev")))
	ended()
	w.AwaitThat("web", "the approval", func(s protocol.Status) bool {
		return strings.Contains(s.Channels[0].Conditions[0].Reason, "1 of 2 (alice@shop.dev)")
	})
}
