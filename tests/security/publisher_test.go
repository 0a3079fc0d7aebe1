package security

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// Who published does not approve the config release that follows, whatever they are called by then: they are who they are by
// their subject, as whoever releases is.
func TestPublisherIsOnePerson_G3(t *testing.T) {
	t.Parallel()
	configuration := strings.Replace(guarded, "minApprovers: 2", "minApprovers: 1", 1)
	w, issuer := worldOf(t, configuration)
	as := func(sub, email string) string {
		return issuer.Token(t, map[string]any{"sub": sub, "email": email, "email_verified": true, "groups": []string{"sre"}})
	}
	approve := func(version, token string) string {
		return fmt.Sprintf(`{"version":%q,"topic":"go-live","token":%q}`, version, token)
	}
	require.NoError(t, w.Update(w.ID("web"), protocol.Release, raw(fmt.Sprintf(`{"version":"v1","token":%q}`, as("u-2", "bob@shop.dev"))), &protocol.ReleaseAnswer{}))
	w.Act("web", protocol.Approve, approve("v1", as("u-3", "carol@shop.dev")))
	w.Await("web", "production CONVERGED v1")

	w.Write(strings.ReplaceAll(configuration, "ISSUER", issuer.URL) + strings.Replace(stage.Web, "default: hello", "default: bye", 1))
	_, err := publish.Publish(t.Context(), publish.Options{
		Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "test", Fake: true, Token: as("u-1", "ann@shop.dev"),
	})
	require.NoError(t, err)
	w.AwaitThat("web", "the config release", func(s protocol.Status) bool {
		return s.Channels[0].Status == "WAITING_MANUAL_APPROVAL" && strings.Contains(s.Channels[0].Conditions[0].Reason, "ann@shop.dev (the releaser)")
	})
	tried(t, w, "web", protocol.Approve, func() string { return approve("v1-i2", as("u-1", "ann@new.dev")) }, "ann@new.dev released v1-i2")
	w.Act("web", protocol.Approve, approve("v1-i2", as("u-3", "carol@shop.dev")))
	w.Await("web", "production CONVERGED v1-i2")
}
