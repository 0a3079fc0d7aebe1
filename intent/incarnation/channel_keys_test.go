package incarnation_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/intenttest"
)

const channels = `apiVersion: converge/v1
kind: Application
name: shop
releaseChannels: [CHANNELS]
---
{apiVersion: converge/v1, kind: Runtime, name: edge, custom: {apply: {command: [./edge]}}}
---
{apiVersion: converge/v1, kind: Service, name: web, custom: {env: {TEXT: "TEXT"}}}
`

// A channel keeps the identity that it had first, whatever it is called by now and whether its configuration still says so: it
// renders to the same, unless it speaks of its name.
func TestChannelsInheritKeys(t *testing.T) {
	of := func(list, text string) *incarnation.Incarnation {
		list = strings.ReplaceAll(list, "}", ", runtimes: [{name: edge}]}")
		return intenttest.Text(t, strings.NewReplacer("CHANNELS", list, "TEXT: \"TEXT", "TEXT: \""+text).Replace(channels)).Incarnation
	}
	inherited := func(before, inc *incarnation.Incarnation) *incarnation.Incarnation {
		out, err := incarnation.InheritChannelKeys(before, inc)
		require.NoError(t, err)
		return out
	}
	template := func(inc *incarnation.Incarnation, channel string) string {
		payload, err := inc.Template("web", channel)
		require.NoError(t, err)
		return entities.DigestOf(payload)
	}
	first := of("{name: live}", "x")
	require.Same(t, first, inherited(nil, first))
	second := inherited(first, of("{name: production, renamedFrom: live}", "x"))
	third := inherited(second, of("{name: prod, renamedFrom: production}", "x"))
	require.Equal(t, map[string]string{"prod": "live"}, third.Keys())
	fourth := inherited(third, of("{name: prod}", "x"))
	require.Equal(t, map[string]string{"prod": "live"}, fourth.Keys(), "for good")
	require.Equal(t, template(first, "live"), template(fourth, "prod"))
	require.Empty(t, inherited(fourth, of("{name: live, renamedFrom: prod}", "x")).Keys(), "and back")
	require.Empty(t, inherited(first, of("{name: live, renamedFrom: never}", "x")).Keys(), "an unknown former name")

	named := of("{name: live}", "${{ channel }}")
	renamed := inherited(named, of("{name: prod, renamedFrom: live}", "${{ channel }}"))
	require.NotEqual(t, template(named, "live"), template(renamed, "prod"))

	_, err := incarnation.InheritChannelKeys(third, of("{name: prod}, {name: live}", "x"))
	require.EqualError(t, err, "release channels prod and live would have the same identity, because one of them was first named live; choose another name for the new one")
}
