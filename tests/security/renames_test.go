package security

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// naming is a channel with an approval of its own on a runtime in memory, and one of a command that writes down what it is
// given. QA and LIVE are for their names.
const naming = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {QA, runtimes: [{name: APP-sh}]}
- {LIVE, runtimes: [{name: APP-rt}], preconditions: [{manualApproval: {}}]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
---
apiVersion: converge/v1
kind: Runtime
name: APP-sh
custom: {apply: {command: [sh, -c, 'echo "$PVN_SERVICE_ID $PVN_RELEASE_CHANNEL $PVN_SERVICE_VERSION" >>DIR/log']}}
`

// names writes a configuration with names for the two channels.
func names(w *stage.World, qa, live string) {
	w.T.Helper()
	w.Write(strings.NewReplacer("QA", qa, "LIVE", live, "DIR", w.Dir).Replace(naming) + stage.Web)
}

// applied is what the command was given, a line each.
func applied(w *stage.World) []string {
	w.T.Helper()
	raw, err := os.ReadFile(filepath.Join(w.Dir, "log"))
	require.NoError(w.T, err)
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}

// A channel that is called otherwise stays what it is: what runs there is not applied again, and its pin, its pause and its
// approvals hold under the new name. What is released afterwards goes where it went before, under the same gates.
func TestAnotherNameOfAChannelAppliesNothing_G2(t *testing.T) {
	t.Parallel()
	w := shared.World(t)
	names(w, "name: test", "name: production")
	w.Publish()
	w.Release("web", "v1")
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v1","topic":"production"}`)
	w.Await("web", "test CONVERGED v1, production CONVERGED v1")
	w.Act("web", protocol.Pin, `{"by":"bob","channel":"production","version":"v1","reason":"audit"}`)
	w.Act("web", protocol.Pause, `{"by":"bob","channel":"test","reason":"tests"}`)
	production := w.Fake.At(w.App, "web", "production")
	require.Equal(t, 1, production.Applies())

	names(w, "name: qa, renamedFrom: test", "name: prod, renamedFrom: production")
	w.Publish()
	s := w.AwaitThat("web", "the new names", func(s protocol.Status) bool { return s.Incarnation == 2 })
	require.Equal(t, "qa PAUSED v1, prod CONVERGED v1", stage.Channels(s))
	require.Equal(t, []string{"test", "production"}, []string{s.Channels[0].Key, s.Channels[1].Key})
	require.Equal(t, "prod", s.Pins[0].Channel)
	require.Equal(t, "qa", s.Pauses[0].Channel)
	require.Len(t, s.Releases, 1, "nothing was released for it")
	require.Contains(t, trail(t, w), "production is called prod from incarnation 2 on")

	w.Act("web", protocol.Refresh, `{"by":"watch","channel":"production"}`) // who watches knows the first name
	w.Act("web", protocol.Unpin, `{"by":"bob","channel":"prod"}`)
	w.Act("web", protocol.Resume, `{"by":"bob","channel":"qa"}`)
	w.Await("web", "qa CONVERGED v1, prod CONVERGED v1")
	require.Equal(t, 1, production.Applies(), "for another name")
	require.Equal(t, []string{w.App + ".web test v1"}, applied(w))

	w.Release("web", "v2")
	w.AwaitThat("web", "v2 to wait for its approval", func(s protocol.Status) bool {
		return stage.Channels(s) == "qa CONVERGED v2, prod WAITING_MANUAL_APPROVAL v1"
	})
	require.Equal(t, 1, production.Applies())
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v2","topic":"prod"}`)
	w.Await("web", "qa CONVERGED v2, prod CONVERGED v2")
	require.Equal(t, 2, production.Applies())
	require.Equal(t, w.App+".web test v2", applied(w)[1], "commands know the channel by its first name")

	names(w, "name: qa", "name: prod, renamedFrom: production") // it may stay there, or go
	w.Publish()
	s = w.AwaitThat("web", "the third incarnation", func(s protocol.Status) bool { return true })
	require.Equal(t, "qa CONVERGED v2, prod CONVERGED v2", stage.Channels(s))
	names(w, "name: quality, renamedFrom: qa", "name: prod, renamedFrom: production")
	w.Publish()
	w.Release("web", "v3")
	w.AwaitThat("web", "v3 in the channel with a third name", func(s protocol.Status) bool {
		return strings.HasPrefix(stage.Channels(s), "quality CONVERGED v3")
	})
	require.Equal(t, w.App+".web test v3", applied(w)[2])
}

// A channel to which a release is on its way keeps its name, and so it does where the signal comes all the same: what was
// published waits until the release has arrived.
func TestAReleaseOnItsWayKeepsTheNameOfItsChannel_G2(t *testing.T) {
	t.Parallel()
	w := shared.World(t)
	names(w, "name: test", "name: production")
	w.Publish()
	w.Release("web", "v1")
	w.AwaitThat("web", "v1 to wait for its approval", func(s protocol.Status) bool {
		return s.Channels[1].Status == "WAITING_MANUAL_APPROVAL"
	})
	names(w, "name: test", "name: prod, renamedFrom: production")
	_, err := publish.Publish(t.Context(), publish.Options{Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "mallory", Fake: true})
	require.True(t, errors.Is(err, publish.ErrRefused), "%v", err)
	require.ErrorContains(t, err, "production is renamed to prod once no release is in progress there: v1 is pending")

	w.Act("web", protocol.Cancel, `{"by":"alice","version":"v1"}`)
	_, err = publish.Publish(t.Context(), publish.Options{ // and somebody releases just then
		Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "mallory", Fake: true,
		Before: func(publish.Result) error { w.Release("web", "v2"); return nil },
	})
	require.NoError(t, err)
	s := w.AwaitThat("web", "the incarnation to wait", func(s protocol.Status) bool {
		return slices.Contains(s.Notes, "incarnation 2 waits: production is renamed to prod once no release is in progress there: v2 is pending")
	})
	require.Equal(t, int64(1), s.Incarnation)
	w.Signal("web", protocol.Publish, `{"incarnation":2,"order":{"newest":9,"count":1}}`)
	w.AwaitThat("web", "a refusal of what was not published", func(s protocol.Status) bool { return len(s.Refused) > 0 })
	require.Zero(t, w.Fake.At(w.App, "web", "production").Applies())
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v2","topic":"production"}`)
	s = w.AwaitThat("web", "the new name", func(s protocol.Status) bool { return s.Incarnation == 2 })
	require.Equal(t, "test CONVERGED v2, prod CONVERGED v2", stage.Channels(s))
	require.Contains(t, trail(t, w), "production is called prod from incarnation 2 on")
}

// A name that was the first one of another channel is refused for a new one: where they run they would be the same.
func TestAFirstNameBelongsToItsChannel_G2(t *testing.T) {
	t.Parallel()
	w := shared.World(t)
	names(w, "name: test", "name: production")
	w.Publish()
	names(w, "name: test", "name: prod, renamedFrom: production")
	w.Publish()
	names(w, "name: production", "name: prod")
	_, err := publish.Publish(t.Context(), publish.Options{Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "mallory", Fake: true})
	require.True(t, errors.Is(err, publish.ErrRefused), "%v", err)
	require.ErrorContains(t, err, "choose another name for the new one")
}
