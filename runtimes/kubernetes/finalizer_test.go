package kubernetes

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// A pruned object that a finalizer holds is being deleted, not left in place: the log of the apply, status and plan name the finalizer and
// since when it holds the object, at the first apply and later. Its kind stays in the inventory, so that it is not lost.
func TestAPrunedObjectThatAFinalizerHoldsIsBeingDeleted_D10(t *testing.T) {
	for _, kind := range []string{"ConfigMap", "Secret"} { // the inventory is a ConfigMap; no other object is a Secret
		t.Run(kind, func(t *testing.T) {
			d := newTestCluster(t).recording()
			held := "{apiVersion: v1, kind: " + kind + ", metadata: {name: held}}"
			d.mustApply(d.instance("v1", config, held))
			d.patchAs("holder", kind, "held", `{"metadata":{"finalizers":["example.com/hold"]}}`)
			at := d.admin.resourceClient(d.resourceOf(kind), d.namespace)
			let := func() {
				_, _ = at.Patch(context.Background(), "held", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			}
			t.Cleanup(let)
			d.waitWatchedAs(kind, "held")

			v2 := withPrune(d.instance("v2", config))
			lines := d.mustApply(v2)
			since := d.liveObject(kind, "held").GetDeletionTimestamp().UTC().Format("2006-01-02 15:04:05 UTC")
			text := "being deleted, held by example.com/hold since " + since
			require.Contains(t, lines, "pruned "+kind+"/held: "+text)
			d.waitWatchedAs(kind, "held")
			for _, in := range []runtimes.Request{v2, withPrune(d.instance("v3", config)), d.instance("v3", config)} {
				require.Equal(t, "no longer declared, "+text, messageOf(d.observe(in), "held"))
				plan, err := d.Plan(t.Context(), in)
				require.NoError(t, err)
				require.Contains(t, plan, runtimes.Change{Action: runtimes.ActionPrune, Type: kind, Name: "held", Namespace: d.namespace, Message: text})
				require.Contains(t, d.mustApply(in), kind+"/held, which is no longer declared: "+text)
			}
			let()
			d.wait("the end of the object", func() bool { return len(d.observe(v2)) == 1 }, func() any { return d.observe(v2) })
		})
	}
}

func messageOf(objects []entities.Object, name string) string {
	for _, o := range objects {
		if o.Name == name {
			return o.Message
		}
	}
	return ""
}
