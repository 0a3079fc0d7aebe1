package security

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/fakeruntime"
	"github.com/converge-engine/converge/tests/internal/stage"
)

const ownersRuntime = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: production, runtimes: [{name: OWNER-rt}]}
`

// An application that a runtime's owner no longer allows changes nothing there any more, although its service knows the
// declaration of before and is told nothing: by an update, by a signal, by a repair. The trail says that it failed.
func TestRuntimeIsForWhomItsOwnerAllows_G8(t *testing.T) {
	t.Parallel()
	owner, other := shared.World(t), shared.World(t)
	declareRuntime(owner, "")
	other.Write(strings.ReplaceAll(ownersRuntime, "OWNER", owner.App) + stage.Web + "autoRollback: false\n")
	other.Publish()
	other.Release("web", "v1")
	other.Await("web", "production CONVERGED v1")

	declareRuntime(owner, "allow: {applications: [nobody-else]}\n")
	owner.Release("web", "v1")
	owner.Await("web", "production CONVERGED v1")
	before := appliesOf(other)
	other.Release("web", "v2")
	refused := func(s protocol.Status) bool {
		text, err := json.Marshal(s.Channels)
		return err == nil && strings.Contains(string(text), "is not for application "+other.App+"; its owner allows one of nobody-else")
	}
	s := other.AwaitThat("web", "v2 refused", func(s protocol.Status) bool { return s.Channels[0].Desired == "v2" && refused(s) })
	if s.Channels[0].Status == string(entities.StatusFailed) { // or a reading was refused before, and there was no apply
		require.Contains(t, trail(t, other), "failed")
	}
	other.Signal("web", protocol.Release, `{"by":"mallory","version":"v3"}`)
	require.True(t, refused(other.AwaitThat("web", "v3", func(s protocol.Status) bool { return s.Channels[0].Desired == "v3" })))
	require.Equal(t, before, appliesOf(other))

	_, err := publish.Publish(t.Context(), publish.Options{Client: other.Client, Dir: other.Dir, StoreURL: other.Store, By: "mallory", Fake: true})
	require.ErrorContains(t, err, "is not for application "+other.App)
}

// An application changes nothing on a runtime of another one whose owner made it read-only, although its service knows the declaration of
// before. That is not a failure of the release.
func TestOwnersReadOnlyRuntimeIsNotWritten_A25(t *testing.T) {
	t.Parallel()
	owner, other := shared.World(t), shared.World(t)
	declareRuntime(owner, "")
	other.Write(strings.ReplaceAll(ownersRuntime, "OWNER", owner.App) + stage.Web)
	other.Publish()
	other.Release("web", "v1")
	other.Await("web", "production CONVERGED v1")
	before := appliesOf(other)

	declareRuntime(owner, "access: read\n")
	other.Release("web", "v2")
	s := other.AwaitThat("web", "v2 waits", func(s protocol.Status) bool {
		text, err := json.Marshal(s.Channels)
		return err == nil && s.Channels[0].Desired == "v2" && strings.Contains(string(text), "has access: read by now")
	})
	require.NotEqual(t, string(entities.StatusFailed), s.Channels[0].Status)
	require.Equal(t, before, appliesOf(other))

	declareRuntime(owner, "")
	other.Await("web", "production CONVERGED v2")
}

// declareRuntime publishes the owner's runtime, with a line about who may do what there.
func declareRuntime(owner *stage.World, line string) {
	owner.T.Helper()
	owner.Write(strings.ReplaceAll(ownersRuntime, "OWNER", "APP") + "---\napiVersion: converge/v1\nkind: Runtime\nname: APP-rt\n" + line +
		"fake: {pollInterval: 100ms, steadyPollInterval: 300ms, retry: {maxAttempts: 1}}\n" + stage.Web)
	owner.Publish()
}

// appliesOf are the applies of an application on the runtime in memory, which all share.
func appliesOf(w *stage.World) (all []fakeruntime.Apply) {
	for _, a := range w.Fake.Applies() {
		if strings.HasPrefix(a.Instance, w.App+"/") {
			all = append(all, a)
		}
	}
	return all
}
