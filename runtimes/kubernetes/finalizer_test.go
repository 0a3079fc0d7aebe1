package kubernetes

import (
	"context"
	"slices"
	"strings"
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

// The annotation for the propagation says how the dependents of a pruned object are deleted: with the object, before it, or not.
func TestPrunePropagation_D10(t *testing.T) {
	d := newTestCluster(t).recording()
	of := func(name, propagation string) string {
		annotations := ""
		if propagation != "" {
			annotations = ", annotations: {converge/prune-propagation: " + propagation + "}"
		}
		return strings.Replace(strings.ReplaceAll(deploymentOf("web:v1", 1, ""), "app: web", "app: "+name), "name: web", "name: "+name+annotations, 1)
	}
	v1 := d.instance("v1", config, of("plain", ""), of("kept", "orphan"), of("first", "foreground"))
	d.mustApply(v1)
	d.until(v1, "v1", settled("v1"))
	pods := func() (names []string) {
		list, err := d.admin.typed.CoreV1().Pods(d.namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for i := range list.Items {
			if list.Items[i].DeletionTimestamp == nil {
				names = append(names, list.Items[i].Labels["app"])
			}
		}
		slices.Sort(names)
		return names
	}
	require.Equal(t, []string{"first", "kept", "plain"}, pods())
	lines := d.mustApply(withPrune(d.instance("v2", config)))
	require.Contains(t, lines, "pruned Deployment/plain")
	require.Contains(t, strings.Join(lines, "\n"), "pruned Deployment/kept")
	require.Contains(t, strings.Join(lines, "\n"), "pruned Deployment/first")
	d.wait("the deletion of the dependents", func() bool { return slices.Equal(pods(), []string{"kept"}) }, func() any { return pods() })
	d.wait("the deletion of the object after them", func() bool { return d.liveObject("Deployment", "first") == nil }, func() any { return nil })
}

func messageOf(objects []entities.Object, name string) string {
	for _, o := range objects {
		if o.Name == name {
			return o.Message
		}
	}
	return ""
}
