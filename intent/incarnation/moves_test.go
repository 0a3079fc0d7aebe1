package incarnation_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/intenttest"
)

const channelOn = `apiVersion: converge/v1
kind: Application
name: shop
releaseChannels: [{name: prod, runtimes: [ON]}]
---
{apiVersion: converge/v1, kind: Runtime, name: eu, custom: {apply: {command: [./eu]}}}
---
{apiVersion: converge/v1, kind: Runtime, name: us, custom: {apply: {command: [./us]}}}
---
{apiVersion: converge/v1, kind: Service, name: web, RUNTIME}
`

// A service that goes to another runtime says from which one it moves. That is a rule: it changes no payload.
func TestUndeclaredMoves(t *testing.T) {
	on := func(runtimes, wanted string) *incarnation.Incarnation {
		return intenttest.Text(t, strings.NewReplacer("ON", runtimes, "RUNTIME", "runtime: "+wanted).Replace(channelOn)).Incarnation
	}
	eu := on("{name: eu}, {name: us}", "eu")
	require.Empty(t, incarnation.UndeclaredMoves(nil, eu))
	require.Empty(t, incarnation.UndeclaredMoves(eu, on("{name: eu}", "eu")))
	refused := []string{"web would move from runtime eu to us in prod; to move it, declare there: {name: us, movedFrom: {runtime: eu, then: keep}} (or remove)"}
	require.Equal(t, refused, incarnation.UndeclaredMoves(eu, on("{name: eu}, {name: us}", "us")))
	require.Equal(t, refused, incarnation.UndeclaredMoves(eu, on("{name: us, movedFrom: {runtime: old}}", "us")))
	moved := on("{name: us, movedFrom: {runtime: eu, then: remove}}", "us")
	require.Empty(t, incarnation.UndeclaredMoves(eu, moved))

	before, err := on("{name: us}", "us").Template("web", "prod")
	require.NoError(t, err)
	declared, err := moved.Template("web", "prod")
	require.NoError(t, err)
	require.Equal(t, before, declared)
}

// What runs on a named runtime is not orphaned without a word, as its channel becomes a fleet that does not have it (D10).
func TestMovesIntoAFleet_D10(t *testing.T) {
	on := func(runtimes, labels string) *incarnation.Incarnation {
		text := strings.NewReplacer("[ON]", "["+runtimes+"]", "name: us, custom", "name: us, labels: {tier: prod}, custom", ", RUNTIME", "").Replace(channelOn)
		return intenttest.Text(t, strings.Replace(text, "name: eu, custom", "name: eu, labels: {"+labels+"}, custom", 1)).Incarnation
	}
	eu := on("{name: eu}", "")
	require.Equal(t, []string{
		"web would move from runtime eu to a fleet without it in prod, and its objects would be orphaned; let the selector match eu, and remove its label later to take it out of the fleet",
	}, incarnation.UndeclaredMoves(eu, on("{selector: {tier: prod}}", "")))
	both := on("{selector: {tier: prod}}", "tier: prod")
	require.Empty(t, incarnation.UndeclaredMoves(eu, both))
	require.Empty(t, incarnation.UndeclaredMoves(both, on("{selector: {tier: prod}}", "")), "leaving a fleet is reported")
}
