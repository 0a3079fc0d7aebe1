package kubernetes

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is watched shows an apply when it is that object, and of that generation or a later one.
func TestWatchedObjectReflectsAnApply_F9(t *testing.T) {
	at := func(uid string, generation int) string {
		return fmt.Sprintf("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, uid: %s, generation: %d}}", uid, generation)
	}
	applied := &trial{applied: object(t, at("a", 2))}
	require.False(t, applied.reflects(nil), "not seen yet")
	require.False(t, applied.reflects(object(t, at("a", 1))), "as it was before")
	require.True(t, applied.reflects(object(t, at("a", 2))))
	require.True(t, applied.reflects(object(t, at("a", 3))), "a later change")
	require.False(t, applied.reflects(object(t, at("b", 3))), "another one of that name")
	require.True(t, (&trial{}).reflects(object(t, at("a", 1))), "nothing was applied")
}
