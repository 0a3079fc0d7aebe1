package incarnation_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/intenttest"
)

// services is an application with services as a test declares them, a line each.
func services(t *testing.T, declared ...string) *incarnation.Incarnation {
	t.Helper()
	text := `apiVersion: converge/v1
kind: Application
name: shop
releaseChannels: [{name: live, runtimes: [{name: edge}]}]
---
{apiVersion: converge/v1, kind: Runtime, name: edge, custom: {apply: {command: [./edge]}}}
`
	for _, d := range declared {
		text += "---\n{apiVersion: converge/v1, kind: Service, " + d + "}\n"
	}
	return intenttest.Text(t, text).Incarnation
}

// A service keeps the identity that it had first, whatever it is called by now and whether its configuration still says so. What
// runtimes are sent does not change for it.
func TestServicesInheritKeys(t *testing.T) {
	inherited := func(before, inc *incarnation.Incarnation, known protocol.ServiceNames) *incarnation.Incarnation {
		out, err := incarnation.InheritServiceKeys(before, inc, known)
		require.NoError(t, err)
		return out
	}
	first := services(t, "name: web")
	require.Same(t, first, inherited(nil, first, nil))
	second := inherited(first, services(t, "name: frontend, renamedFrom: web"), nil)
	require.Equal(t, protocol.ServiceNames{"web": "frontend"}, second.ServiceNames())
	third := inherited(second, services(t, "name: ui, renamedFrom: frontend"), nil)
	require.Equal(t, protocol.ServiceNames{"web": "ui"}, third.ServiceNames())
	require.Equal(t, []string{"web"}, third.ServiceKeys())
	fourth := inherited(third, services(t, "name: ui", "name: frontend"), nil)
	require.Equal(t, []string{"frontend", "web"}, fourth.ServiceKeys(), "keys are permanent; a name that is not a first name is free")
	require.Empty(t, inherited(third, services(t, "name: web, renamedFrom: ui"), nil).ServiceNames(), "and back")
	require.Empty(t, inherited(first, services(t, "name: api, renamedFrom: never"), nil).ServiceNames(), "an unknown former name")
	before, err := first.Template("web", "live")
	require.NoError(t, err)
	after, err := third.Template("ui", "live")
	require.NoError(t, err)
	require.Equal(t, before, after)

	specs, err := incarnation.Specs(third, nil)
	require.ErrorContains(t, err, "which has no definition")
	require.Empty(t, specs)
	difference, err := incarnation.Diff(first, third)
	require.NoError(t, err)
	require.Contains(t, difference.String(), "ui changed\n  rules\n")
	require.Contains(t, difference.String(), "~ name  web → ui")

	known := protocol.ServiceNames{"web": "frontend"} // by the application, where the newest incarnation does not know it
	require.Equal(t, known, inherited(nil, services(t, "name: frontend"), known).ServiceNames(), "in another store")
	removed := services(t, "name: api")
	require.Equal(t, known, inherited(removed, services(t, "name: frontend", "name: api"), known).ServiceNames(), "declared again")
	require.Equal(t, protocol.ServiceNames{"web": "ui"}, inherited(removed, services(t, "name: ui, renamedFrom: frontend"), known).ServiceNames())
}

// What would be two services in one, or be met by the name of another one, is refused.
func TestConflictingServiceKeysAreRejected(t *testing.T) {
	second, err := incarnation.InheritServiceKeys(services(t, "name: web"), services(t, "name: frontend, renamedFrom: web"), nil)
	require.NoError(t, err)
	for _, c := range []struct {
		before   *incarnation.Incarnation
		declared string
		known    protocol.ServiceNames
		refusal  string
	}{
		{second, "name: frontend|name: web", nil, "services frontend and web would have the same identity, because one of them was first named web; choose another name for the new one"},
		{services(t, "name: a", "name: b"), "name: a, renamedFrom: b", nil, "service a cannot be renamed from b, because both exist; remove a first"},
		{services(t, "name: b"), "name: a, renamedFrom: b", protocol.ServiceNames{"a": "c"}, "service a cannot have this name: it is the first name of c, and still its identity; choose another name"},
		{services(t, "name: a", "name: b"), "name: c, renamedFrom: a|name: b", nil, ""},
	} {
		_, err := incarnation.InheritServiceKeys(c.before, services(t, strings.Split(c.declared, "|")...), c.known)
		if c.refusal == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, c.refusal)
		}
	}
}
