package kubernetes

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/runtimes"
)

// What is watched stays small: a Deployment with its ReplicaSets and pods is one of thousands.
func TestWatchedObjectsAreSmall(t *testing.T) {
	b := newExclusiveTestCluster(t)
	v1 := b.instance("v1", deploymentOf("web:1", 1, ""))
	b.put(v1)
	b.until(v1, "v1", settled("v1"))
	for kind, limit := range map[schema.GroupVersionResource]int64{
		{Group: "apps", Version: "v1", Resource: "deployments"}: 10 << 10,
		{Group: "apps", Version: "v1", Resource: "replicasets"}: 4 << 10,
		{Version: "v1", Resource: "pods"}:                       4 << 10,
	} {
		list, err := b.admin.dynamic.Resource(kind).Namespace(b.namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		raw, err := list.Items[0].MarshalJSON()
		require.NoError(t, err)

		const many = 1000
		s := newStore(func(runtimes.Owner) {}, func() {})
		before := heap(t)
		for i := range many {
			o := &unstructured.Unstructured{}
			require.NoError(t, o.UnmarshalJSON(raw))
			o.SetName(fmt.Sprintf("web-%d", i))
			labels := o.GetLabels()
			labels[LabelService] = o.GetName()
			o.SetLabels(labels)
			require.NoError(t, s.Add(o))
		}
		each := (heap(t) - before) / many
		t.Logf("%s: %d bytes, %d as the server sends it", kind.Resource, each, len(raw))
		require.Positive(t, each, kind.Resource)
		require.Less(t, each, limit, kind.Resource)
		runtime.KeepAlive(s)
	}
}

// heap returns the size of the heap, in bytes, once it stays the same: what ended before may still be freed.
func heap(t *testing.T) (size int64) {
	t.Helper()
	const noise = 64 << 10
	for deadline := time.Now().Add(time.Minute); ; {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		before := size
		size = int64(m.HeapAlloc) //nolint:gosec // no heap is that large
		if max(size-before, before-size) < noise {
			return size
		}
		require.True(t, time.Now().Before(deadline), "the heap had %d bytes, and has %d", before, size)
	}
}
