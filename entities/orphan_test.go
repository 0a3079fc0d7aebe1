package entities

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// D10: what is no longer declared is shown, and counts neither for nor against what is.
func TestOrphanedObjectsDoNotCountD10(t *testing.T) {
	left := Object{Name: "old", Type: "ConfigMap", Status: ObjectPending, Orphaned: true, Versions: []ObjectVersion{{Version: "v1", Active: true, Drifted: true}}}
	web := Object{Name: "web", Type: "Deployment", Status: ObjectSucceeded, Versions: []ObjectVersion{{Version: "v2", Active: true}}}
	target := &Target{FullVersion: "v2"}
	fetch := func(objects ...Object) Current {
		return ServiceInstance{&Instance{Reading: Reading{Objects: objects}, Known: "seen", Fresh: true}}.Fetch(target)
	}
	require.Equal(t, Current{Known: true, Stable: true, Active: []string{"v2"}}, fetch(left, web))
	require.Equal(t, Current{Known: true, Reason: "nothing is running"}, fetch(left), "what is left is not what was asked for")
	require.NotEqual(t, Reading{Objects: []Object{left, web}}.Digest(), Reading{Objects: []Object{web}}.Digest(), "it is news")
}
