package security

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/idptest"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker/embedded"
)

// Verbs of a runtime and of everything take the proof that the rules of the installation ask for, as those of services do: stated
// names and tokens that served another request are refused, as an update and as a signal, and what was refused is in no history.
func TestVerbsOfRuntimesTakeProof(t *testing.T) {
	t.Parallel()
	w, issuer := shared.OwnServerWith(t, embedded.Options{}), idptest.New(t)
	rules := entities.Rules{
		Identity: &entities.Identity{Issuer: issuer.URL, Audience: idptest.Audience},
		Grants:   []entities.Grant{{Verbs: []string{"*"}, To: []string{"alice@shop.dev"}}},
	}
	installation := protocol.InstallationID()
	require.NoError(t, w.Update(installation, protocol.Configure, protocol.ConfigureRequest{RequestMeta: protocol.RequestMeta{By: "root"}, Rules: rules}, &protocol.Answer{}))
	runtime := protocol.RuntimeID("eu")
	_, err := w.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: runtime, TaskQueue: protocol.TaskQueue},
		protocol.RuntimeWorkflow, protocol.RuntimeInput{Runtime: "eu", StartMode: protocol.StartMode{Adopt: true}})
	require.NoError(t, err)

	alice := issuer.TokenOf(t, "alice@shop.dev")
	first := fmt.Sprintf(`{"requestId":"r1","reason":"incident","token":%q}`, alice)
	require.NoError(t, w.Update(runtime, protocol.Pause, raw(first), &protocol.Answer{}))
	for id, verb := range map[string]string{runtime: protocol.Resume, installation: protocol.Pause} {
		for payload, why := range map[string]string{
			`{"by":"alice@shop.dev"}`:                               `needs proof of identity`,
			fmt.Sprintf(`{"requestId":"r2","token":%q}`, alice):     `the token was used for another request`,
			fmt.Sprintf(`{"token":%q}`, issuer.TokenOf(t, "bob@x")): "bob@x may not " + verb,
		} {
			require.ErrorContains(t, w.Update(id, verb, raw(payload), &protocol.Answer{}), why)
		}
		before := len(standing(t, w.Client, id).Refused)
		require.NoError(t, w.Client.SignalWorkflow(t.Context(), id, "", verb, raw(`{"by":"alice@shop.dev"}`)))
		require.NoError(t, w.Client.SignalWorkflow(t.Context(), id, "", verb, raw(fmt.Sprintf(`{"token":%q}`, alice))))
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			s := standing(t, w.Client, id)
			return len(s.Refused) == before+2, fmt.Sprint(s.Refused)
		})
	}
	s := standing(t, w.Client, runtime)
	require.Equal(t, "alice@shop.dev", s.Pause.By)
	require.Len(t, s.Audit, 1)
	require.True(t, s.Audit[0].Who.Proven)
	require.Nil(t, standing(t, w.Client, installation).Pause)
}

// A token that pauses an application pauses nothing else, whatever the application is called.
func TestATokenOfAnApplicationServesNothingElse_G3(t *testing.T) {
	t.Parallel()
	w, issuer := shared.OwnServerWith(t, embedded.Options{}), idptest.New(t)
	w.App = "everything" // as messages call the installation
	w.Write(strings.ReplaceAll(proven, "ISSUER", issuer.URL) + stage.Web)
	w.Publish()
	rules := entities.Rules{
		Identity: &entities.Identity{Issuer: issuer.URL, Audience: idptest.Audience},
		Grants:   []entities.Grant{{Verbs: []string{"*"}, To: []string{"alice@shop.dev"}}},
	}
	installation := protocol.InstallationID()
	require.NoError(t, w.Update(installation, protocol.Configure, protocol.ConfigureRequest{RequestMeta: protocol.RequestMeta{By: "root"}, Rules: rules}, &protocol.Answer{}))
	seen := raw(fmt.Sprintf(`{"requestId":"r1","token":%q}`, issuer.TokenOf(t, "alice@shop.dev")))
	require.NoError(t, w.Update(protocol.ApplicationID(w.App), protocol.Pause, seen, &protocol.Answer{}))
	require.ErrorContains(t, w.Update(installation, protocol.Pause, seen, &protocol.Answer{}), "the token was used for another request")
	require.Nil(t, standing(t, w.Client, installation).Pause)
}

// standing is what the status of a runtime and of the installation have in common.
func standing(t *testing.T, c client.Client, id string) (s protocol.InstallationStatus) {
	t.Helper()
	value, err := temporaltest.Query(t.Context(), c, id, protocol.QueryStatus)
	require.NoError(t, err)
	var out json.RawMessage
	require.NoError(t, value.Get(&out))
	require.NoError(t, json.Unmarshal(out, &s))
	return s
}
