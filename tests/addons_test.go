package tests

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// A check goes by what the service carries in the newest configuration. A change of that alone applies nothing, and opens no release;
// where a payload names it, the change is released (D1).
func TestAddonsReachChecksAndApplyNothing_D1_A20_B9(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	carries := func(addon, greeting string) {
		w.Write(strings.Replace(stage.TwoChannels, "releaseChannels:", `addonTypes:
- {name: example.com/budget, schema: {properties: {spent: {type: boolean}, team: {type: string}}, required: [spent]}}
releaseChannels:`, 1) + strings.Replace(stage.Web, "default: hello", "default: \""+greeting+"\"", 1) + `addons: [{name: budget, type: example.com/budget, value: ` + addon + `}]
protections: [{name: budget, cel: {expression: "!addons.budget.value.spent"}, interval: 200ms}]
`)
		w.Publish()
	}
	carries("{spent: true}", "hello")
	w.Release("web", "v1")
	w.AwaitThat("web", "the check waits", func(s protocol.Status) bool {
		return slices.ContainsFunc(s.Channels[0].Checks, func(c protocol.CheckStatus) bool {
			return c.Verdict == "WAIT" && c.Reason == "false: !addons.budget.value.spent"
		})
	})
	carries("{spent: false, team: checkout}", "hello")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	carries("{spent: false, team: payments}", "hello")
	w.Release("web", "v2")
	s := w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.Len(t, s.Releases, 2, "a change of an addon is no release")
	require.EqualValues(t, 1, s.Incarnation, "the rules of the service are those of the first incarnation")
	require.Equal(t, 2, w.Fake.At(w.App, "web", "staging").Applies())
	require.Equal(t, 2, w.Fake.At(w.App, "web", "production").Applies())

	carries("{spent: false, team: payments}", "${{ addons.budget.team }}")
	w.Await("web", "staging CONVERGED v2-i4, production CONVERGED v2-i4")
	carries("{spent: false, team: checkout}", "${{ addons.budget.team }}")
	w.Await("web", "staging CONVERGED v2-i5, production CONVERGED v2-i5")
}
