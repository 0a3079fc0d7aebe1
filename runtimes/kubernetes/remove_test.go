package kubernetes

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// All objects of the inventory are removed, later waves first, each once the one before is gone, the inventory last; objects of
// others stay.
func TestRemoveDeletesInReverseOrder_A24(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1",
		"{apiVersion: v1, kind: Namespace, metadata: {name: "+d.namespace+"-own}}",
		configOf("settings", "b"),
		deploymentOf("web:1", 1, ""),
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: late, annotations: {converge/wave: '5'}}}")
	d.mustApply(v1)
	d.applyAs("helm", "ConfigMap", "theirs", "{apiVersion: v1, kind: ConfigMap, metadata: {name: theirs}, data: {b: theirs}}")
	clone := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	clone.SetName("settings-debug")
	clone.SetLabels(d.liveObject("ConfigMap", "settings").GetLabels())
	_, err := d.admin.resourceClient(d.resourceOf("ConfigMap"), d.namespace).Create(t.Context(), clone, metav1.CreateOptions{FieldManager: "kubectl-create"})
	require.NoError(t, err)

	require.Equal(t, []string{
		"remove ConfigMap/late", "remove Deployment/web", "remove ConfigMap/settings", "keep Namespace/" + d.namespace + "-own: " + namespacesKeptReason,
	}, d.removal(v1))

	d.takeWrites()
	require.NoError(t, d.Remove(t.Context(), v1))
	writes, _ := d.takeWrites()
	at := "/api/v1/namespaces/" + d.namespace + "/configmaps/"
	require.Equal(t, []string{
		"DELETE " + at + "late",
		"DELETE /apis/apps/v1/namespaces/" + d.namespace + "/deployments/web",
		"DELETE " + at + "settings",
		"DELETE " + at + "converge." + d.namespace + ".web.prod",
	}, writes)
	for _, gone := range []string{"late", "settings", "converge." + d.namespace + ".web.prod"} {
		require.Nil(t, d.liveObject("ConfigMap", gone), gone)
	}
	require.Nil(t, d.liveObject("Deployment", "web"))
	require.NotNil(t, d.liveObject("ConfigMap", "theirs"))
	require.NotNil(t, d.liveObject("ConfigMap", "settings-debug"), "an object with copied labels")
	require.NotNil(t, d.liveObject("Namespace", d.namespace+"-own"), "namespaces are never removed")

	require.NoError(t, d.Remove(t.Context(), v1))
	writes, _ = d.takeWrites()
	require.Empty(t, writes, "missing objects are not removed again")
}

// Declared objects are removed, and planned to be removed, even if the inventory is lost.
func TestRemoveWithoutItsInventory_A24(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", configOf("settings", "b"), deploymentOf("web:1", 1, ""))
	d.mustApply(v1)
	inventory := inventoryName(v1.Owner)
	require.NoError(t, d.admin.resourceClient(d.resourceOf("ConfigMap"), d.namespace).Delete(t.Context(), inventory, metav1.DeleteOptions{}))
	d.waitWatchedAs("ConfigMap", inventory)
	require.Equal(t, []string{"remove Deployment/web", "remove ConfigMap/settings"}, d.removal(v1))
	require.NoError(t, d.Remove(t.Context(), v1))
	require.Nil(t, d.liveObject("ConfigMap", "settings"))
	require.Nil(t, d.liveObject("Deployment", "web"))
}

// A copy of an instance in another namespace, such as a restored backup, is never removed or pruned, though it looks like applied
// objects; and its inventory does not count.
func TestCopiesInAnotherNamespaceStay_A24(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", configOf("settings", "b"), configOf("old", "b"))
	d.mustApply(v1)
	restored := d.namespace + "-restore"
	made := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	made.SetName(restored)
	_, err := d.admin.resourceClient(d.resourceOf("Namespace"), "").Create(t.Context(), made, metav1.CreateOptions{})
	require.NoError(t, err)
	copies := d.admin.resourceClient(d.resourceOf("ConfigMap"), restored)
	names := []string{"settings", "old", inventoryName(v1.Owner)}
	for _, name := range names {
		from := d.liveObject("ConfigMap", name)
		twin := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": from.Object["data"]}}
		twin.SetName(name)
		twin.SetLabels(from.GetLabels())
		twin.SetAnnotations(from.GetAnnotations())
		_, err := copies.Create(t.Context(), twin, metav1.CreateOptions{FieldManager: FieldManager})
		require.NoError(t, err)
	}
	stay := func() {
		for _, name := range names {
			_, err := copies.Get(t.Context(), name, metav1.GetOptions{})
			require.NoError(t, err, name)
		}
	}
	v2 := d.instance("v2", configOf("settings", "c"))
	require.NotContains(t, d.mustApply(withPrune(v2)), "pruned ConfigMap/settings")
	require.Nil(t, d.liveObject("ConfigMap", "old"))
	stay()
	reading, err := d.Observe(t.Context(), v2)
	require.NoError(t, err)
	for _, o := range reading {
		require.False(t, o.Orphaned, o.Name)
	}
	require.NoError(t, d.Remove(t.Context(), v2))
	require.Nil(t, d.liveObject("ConfigMap", "settings"))
	stay()
}

// Another channel of the service, and another instance of the channel, keep what they have, though that lies in the same namespace.
func TestRemoveLeavesOtherInstances_A24(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", configOf("settings", "b"))
	d.mustApply(v1)
	beta := inChannel(d.instance("v1", configOf("settings-beta", "b")), "beta")
	d.mustApply(beta)
	eu := withInstanceName(d.instance("v1", configOf("settings-eu", "b")), "eu")
	d.mustApply(eu)
	require.NoError(t, d.Remove(t.Context(), v1))
	require.Nil(t, d.liveObject("ConfigMap", "settings"))
	require.NotNil(t, d.liveObject("ConfigMap", "settings-beta"))
	require.NotNil(t, d.liveObject("ConfigMap", "settings-eu"))
	require.NoError(t, d.Remove(t.Context(), eu))
	require.Nil(t, d.liveObject("ConfigMap", "settings-eu"))
	require.NotNil(t, d.liveObject("ConfigMap", "settings-beta"))
}

// An object that is not deleted blocks earlier waves, and the error says why; once it can be deleted, the removal is run again and
// continues.
func TestRemoveWaitsForEachWave_A24(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", configOf("settings", "b"),
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: held, annotations: {converge/wave: '5'}}}")
	d.mustApply(v1)
	d.patchAs("kubectl-edit", "ConfigMap", "held", `{"metadata": {"finalizers": ["example.com/hold"]}}`)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // the deadline is what is tested
	defer cancel()
	err := d.Remove(ctx, v1)
	require.ErrorContains(t, err, "remove "+d.namespace+"/web from prod: wait until ConfigMap "+d.namespace+"/held is gone: it is still there: being deleted, held by example.com/hold since ")
	require.NotNil(t, d.liveObject("ConfigMap", "settings"))

	d.patchAs("kubectl-edit", "ConfigMap", "held", `{"metadata": {"finalizers": null}}`)
	require.NoError(t, d.Remove(t.Context(), v1))
	require.Nil(t, d.liveObject("ConfigMap", "settings"))
}

// A definition stays while others have objects of it; it is removed once they are gone.
func TestRemoveLeavesADefinitionInUse_A24(t *testing.T) {
	d := newTestCluster(t).recording()
	group := strings.ReplaceAll(d.namespace, "-", "") + ".example.com"
	definition := "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets." + group + "}, " +
		"spec: {group: " + group + ", scope: Namespaced, names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}, " +
		"versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}"
	v1 := d.instance("v1", definition, "{apiVersion: "+group+"/v1, kind: Widget, metadata: {name: ours}}")
	widgets := "/apis/" + group + "/v1/namespaces/" + d.namespace + "/widgets"
	d.mustApply(d.instance("v0", definition))
	require.Eventually(t, func() bool { // an API server may take a moment after it says that a kind is established
		return d.admin.typed.Discovery().RESTClient().Get().AbsPath(widgets).Do(t.Context()).Error() == nil
	}, time.Minute, 10*time.Millisecond)
	d.mustApply(v1)
	theirs := `{"apiVersion":"` + group + `/v1","kind":"Widget","metadata":{"name":"theirs"}}`
	require.NoError(t, d.admin.typed.Discovery().RESTClient().Post().AbsPath(widgets).Body([]byte(theirs)).
		SetHeader("Content-Type", "application/json").Do(t.Context()).Error())

	keeps := "keep CustomResourceDefinition/widgets." + group + ": " + definitionKeptReason
	require.Equal(t, []string{"remove Widget/ours", keeps}, d.removal(v1))
	d.takeWrites()
	require.NoError(t, d.Remove(t.Context(), v1))
	writes, _ := d.takeWrites()
	require.Equal(t, []string{
		http.MethodDelete + " " + widgets + "/ours",
		http.MethodDelete + " /api/v1/namespaces/" + d.namespace + "/configmaps/converge." + d.namespace + ".web.prod",
	}, writes)
	require.NoError(t, d.admin.typed.Discovery().RESTClient().Get().AbsPath(widgets+"/theirs").Do(t.Context()).Error())

	d.mustApply(v1)
	require.NoError(t, d.admin.typed.Discovery().RESTClient().Delete().AbsPath(widgets+"/theirs").Do(t.Context()).Error())
	require.Equal(t, []string{"remove Widget/ours", "remove CustomResourceDefinition/widgets." + group}, d.removal(v1))
	d.takeWrites()
	require.NoError(t, d.Remove(t.Context(), v1))
	writes, _ = d.takeWrites()
	require.Contains(t, writes, "DELETE /apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets."+group)
}
