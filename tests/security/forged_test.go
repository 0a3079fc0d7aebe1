package security

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// strict is an application whose production waits for a person; without APPROVAL it does not.
const strict = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: staging, runtimes: [{name: APP-rt}]}
- name: production
  runtimes: [{name: APP-rt}]
  preconditions: [{releaseChannelStable: {releaseChannel: staging}}APPROVAL]
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
---
{apiVersion: converge/v1, kind: Service, name: api}
`

func publishes(w *stage.World, approval string) {
	w.Write(strings.ReplaceAll(strict, "APPROVAL", approval) + stage.Web)
	w.Publish()
}

// incarnations are those of an application, oldest first, with the digests of what its services go by.
func incarnations(t *testing.T, w *stage.World) (all []protocol.ServicePublish) {
	t.Helper()
	s, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	defer s.Close() // only read
	numbers, err := s.ListNumbers(t.Context(), w.App)
	require.NoError(t, err)
	for _, n := range numbers {
		record, err := s.Number(t.Context(), w.App, n)
		require.NoError(t, err)
		manifest, err := s.Manifest(t.Context(), record.Manifest)
		require.NoError(t, err)
		all = append(all, protocol.ServicePublish{Incarnation: n, Hash: record.Hash, Spec: manifest["web"], Store: w.Store, By: "ann"})
	}
	return all
}

// Whoever can signal a service makes it believe no other rules than those that were published last, by no number, order, time,
// digest or store; what comes later is taken over all the same. The status says what was refused.
func TestForgedPublicationChangesNothing_G1(t *testing.T) {
	t.Parallel()
	w := shared.World(t)
	publishes(w, "")
	publishes(w, ", {manualApproval: {}}")
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production WAITING_MANUAL_APPROVAL")
	known := incarnations(t, w)
	require.Len(t, known, 2)
	old, newest := known[0], known[1]
	api := newest
	s, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	record, err := s.Number(t.Context(), w.App, 2)
	require.NoError(t, err)
	manifest, err := s.Manifest(t.Context(), record.Manifest)
	require.NoError(t, err)
	api.Spec = manifest["api"]
	require.NoError(t, s.Close())

	forged := func(from protocol.ServicePublish, change string) string {
		raw, err := json.Marshal(from)
		require.NoError(t, err)
		all := map[string]any{}
		require.NoError(t, errors.Join(json.Unmarshal(raw, &all), json.Unmarshal([]byte(change), &all)))
		raw, err = json.Marshal(all)
		require.NoError(t, err)
		return string(raw)
	}
	later := `{"order":{"newest":99,"count":99999999999},"at":"2099-01-01T00:00:00Z"}`
	pinned := `{"pinned":true,"order":{"newest":99,"count":99999999999},"at":"2099-01-01T00:00:00Z"}`
	for what, raw := range map[string]string{
		"a replay":                   forged(old, `{}`),
		"a replay, later":            forged(old, later),
		"a replay, as a pin":         forged(old, pinned),
		"a later one":                forged(old, `{"incarnation":3,"order":{"newest":3,"count":99999999999}}`),
		"the old rules as the new":   forged(newest, fmt.Sprintf(`{"spec":%q}`, old.Spec)),
		"the rules of another":       forged(api, later),
		"another hash":               forged(newest, fmt.Sprintf(`{"hash":%q}`, old.Hash)),
		"no longer declared":         forged(newest, `{"spec":""}`),
		"no longer declared, later":  forged(newest, `{"spec":"","order":{"newest":99,"count":99999999999}}`),
		"a number out of range":      forged(newest, `{"incarnation":9223372036854775807,"order":{"newest":9223372036854775807,"count":9223372036854775807}}`),
		"a negative number":          forged(newest, `{"incarnation":-1,"order":{"newest":-1,"count":-1}}`),
		"another store":              forged(newest, `{"store":"file:///tmp/elsewhere","order":{"newest":99,"count":99999999999}}`),
		"nothing":                    `{}`,
		"a digest nobody has stored": forged(newest, `{"spec":"0000","order":{"newest":99,"count":99999999999}}`),
	} {
		w.Signal("web", protocol.Publish, raw)
		w.Act("web", protocol.Refresh, `{"by":"ann"}`) // which comes after it
		got := w.Status("web")
		require.Equal(t, int64(2), got.Incarnation, what)
		require.Equal(t, "staging CONVERGED v1, production WAITING_MANUAL_APPROVAL", stage.Channels(got), what)
	}
	text := ""
	for _, r := range w.Status("web").Refused {
		text += r.Reason + "\n"
	}
	require.Contains(t, text, "was never published")
	require.Contains(t, text, "incarnation 1 of "+w.App+" was not published or pinned after incarnation 2")
	require.Zero(t, w.Fake.At(w.App, "web", "production").Applies())

	publishes(w, ", {sharedManualApproval: {name: go-live}}")
	w.AwaitThat("web", "what was published last", func(s protocol.Status) bool { return s.Incarnation == 3 })
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v1","topic":"go-live"}`)
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
}

// The number of an incarnation comes from the store: a publication cannot name one.
func TestPublicationTakesItsNumberFromTheStore_G1(t *testing.T) {
	t.Parallel()
	w := shared.World(t)
	publishes(w, "")
	publishes(w, ", {manualApproval: {}}")
	s, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	defer s.Close() // only read
	record, err := s.Number(t.Context(), w.App, 1)
	require.NoError(t, err)
	request := map[string]any{
		"by": "mallory", "hash": record.Hash, "manifest": record.Manifest, "services": record.Services, "store": w.Store, "origin": record.Origin,
	}
	var answer protocol.PublishAnswer
	require.NoError(t, w.Update(protocol.ApplicationID(w.App), protocol.Publish, request, &answer))
	require.Equal(t, int64(3), answer.Incarnation)
	request["floor"] = int64(1 << 40)
	require.ErrorContains(t, w.Update(protocol.ApplicationID(w.App), protocol.Publish, request, &answer), `"floor"`)
}
