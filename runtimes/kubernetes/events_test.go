package kubernetes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A pod that was just taken away is no reason to ask for events of a ReplicaSet made long ago; one that waits since long is.
func TestWaitingSince_H8(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	made := func(kind string, ago time.Duration) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"kind": kind, "metadata": map[string]any{"creationTimestamp": now.Add(-ago).Format(time.RFC3339)}}}
	}
	pod := func(ready string, ago time.Duration) *unstructured.Unstructured {
		o := made("Pod", time.Hour)
		o.Object["status"] = map[string]any{"phase": "Running", "conditions": []any{
			map[string]any{"type": "Ready", "status": ready, "lastTransitionTime": now.Add(-ago).Format(time.RFC3339)},
		}}
		return o
	}
	ready := pod("True", time.Hour)
	for _, c := range []struct {
		name  string
		maker string
		pods  []*unstructured.Unstructured
		want  time.Duration
	}{
		{"a ReplicaSet whose pod is gone", "ReplicaSet", []*unstructured.Unstructured{ready}, 0},
		{"a ReplicaSet without pods", "ReplicaSet", nil, 0},
		{"a StatefulSet that has no pod", "StatefulSet", nil, time.Hour},
		{"a pod that waits", "ReplicaSet", []*unstructured.Unstructured{ready, pod("False", 2*time.Minute), pod("False", time.Minute)}, 2 * time.Minute},
	} {
		require.Equal(t, c.want, now.Sub(waitingSince(made(c.maker, time.Hour), c.pods, now).UTC()), c.name)
	}
}
