package kubernetes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/entities"
)

const config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: b}}"

// A rolling update is seen as two active versions, then one; objects that are not there have none.
func TestARollingUpdateHasTwoVersionsAndThenOne_C4(t *testing.T) {
	b := newTestCluster(t)
	v1 := b.instance("v1", deploymentOf("web:1", 2, ""), config)
	for _, o := range b.observe(v1) {
		require.Equal(t, entities.ObjectPending, o.Status)
		require.Equal(t, "does not exist", o.Message)
		require.Empty(t, o.Versions)
	}
	require.Empty(t, b.observe(b.instance("v1")))

	b.put(v1)
	seen := b.until(v1, "v1", settled("v1"))
	require.Equal(t, []entities.Object{
		{Name: "settings", Type: "ConfigMap", Status: entities.ObjectSucceeded, Message: "Resource is always ready", Versions: []entities.ObjectVersion{{Version: "v1", Active: true}}},
		{
			Name: "web", Type: "Deployment", Status: entities.ObjectSucceeded, Message: "Deployment is available. Replicas: 2",
			Versions: []entities.ObjectVersion{{Version: "v1", Active: true, Replicas: 2, AvailableReplicas: 2, TargetReplicas: 2}},
		},
	}, seen)

	v2 := b.instance("v2", deploymentOf("web:2", 2, "kubelab/ready-in: 500ms"), config)
	b.put(v2)
	b.until(v2, "both versions active", func(objects []entities.Object) bool {
		versions := objects[1].Versions
		return objects[1].Status == entities.ObjectPending && len(versions) == 2 &&
			versions[0].Version == "v2" && versions[0].Active && versions[1].Version == "v1" && versions[1].Active
	})
	b.until(v2, "v2 alone", settled("v2"))
}

// A manual change is drift; fields that others add are theirs.
func TestHandEditsAreDriftAndForeignFieldsAreNot_A12(t *testing.T) {
	b := newTestCluster(t)
	v1 := b.instance("v1", deploymentOf("web:1", 2, ""), config)
	b.put(v1)
	b.until(v1, "v1", settled("v1"))
	hints := b.hintsOf()
	b.waitQuiet(v1, hints)
	apps := b.admin.typed.AppsV1().Deployments(b.namespace)

	foreign := `{"metadata":{"labels":{"team":"a"},"annotations":{"other/note":"x"}},"spec":{"template":{"spec":{"terminationGracePeriodSeconds":5}}}}`
	_, err := apps.Patch(t.Context(), "web", types.MergePatchType, []byte(foreign), metav1.PatchOptions{FieldManager: "other"})
	require.NoError(t, err)
	b.waitHint(hints)
	b.waitQuiet(v1, hints)
	web := b.until(v1, "v1 again", settled("v1"))[1]
	require.False(t, web.Versions[0].Drifted, web.Message)

	_, err = apps.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"})
	require.NoError(t, err)
	seen := b.until(v1, "drift", func(objects []entities.Object) bool {
		return objects[1].Status == entities.ObjectSucceeded && objects[1].Versions[0].Drifted
	})
	require.Equal(t, "spec.replicas 5, declared 2 (written by kubectl-edit)", seen[1].Message)
	require.False(t, seen[0].Versions[0].Drifted)

	b.put(v1)
	b.until(v1, "repaired", func(objects []entities.Object) bool { return settled("v1")(objects) && !objects[1].Versions[0].Drifted })
}

// An observation that finds what an earlier one found asks the server nothing, drifted or not.
func TestObservingWithoutChangesMakesNoRequests(t *testing.T) {
	b := newTestCluster(t)
	v1 := b.instance("v1", deploymentOf("web:1", 1, ""), config)
	b.put(v1)
	b.until(v1, "v1", settled("v1"))
	pods, err := b.cluster.resource(t.Context(), podKind())
	require.NoError(t, err)
	_, err = b.cluster.view(t.Context(), pods, b.namespace) // it begins with the first Deployment that is not well
	require.NoError(t, err)
	hints := b.hintsOf()
	b.waitQuiet(v1, hints)
	before := b.requests.Load()
	for range 100 {
		b.observe(v1)
	}
	b.requireFewRequests(before, 0, "idle")

	// Its status changes, and nothing that an apply could change.
	_, err = b.admin.typed.AppsV1().Deployments(b.namespace).Patch(t.Context(), "web", types.MergePatchType, []byte(`{"metadata":{"annotations":{"deployment.kubernetes.io/revision":"7"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	b.waitHint(hints)
	b.waitQuiet(v1, hints)
	b.requireFewRequests(before, 0, "an irrelevant change")

	_, err = b.admin.typed.CoreV1().ConfigMaps(b.namespace).Patch(t.Context(), "settings", types.MergePatchType, []byte(`{"data":{"a":"c"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	b.until(v1, "drift", func(objects []entities.Object) bool { return objects[0].Versions[0].Drifted })
	b.requireFewRequests(before, 2, "one dry run and one get")
	for range 100 {
		b.observe(v1)
	}
	b.requireFewRequests(before, 2, "drifted, and idle")
}

// What was just applied is as declared: observing it asks nothing.
func TestObservingAfterAnApplyMakesNoDryRun(t *testing.T) {
	b := newTestCluster(t)
	v1 := b.instance("v1", deploymentOf("web:1", 1, ""), config)
	_, err := b.Apply(t.Context(), v1)
	require.NoError(t, err)
	b.until(v1, "v1", settled("v1"))
	b.requestLog.Range(func(_, asked any) bool {
		if request := asked.(string); strings.HasPrefix(request, "PATCH ") && strings.Contains(request, "dryRun=All") {
			require.Contains(t, request, "force=false", "a trial of the apply") // an observation's own is forced
		}
		return true
	})
}

// A deleted object is hinted at within a second, and absent.
func TestADeletedObjectIsHintedAndAbsent(t *testing.T) {
	b := newTestCluster(t)
	v1 := b.instance("v1", config)
	b.put(v1)
	b.until(v1, "v1", settled("v1"))
	hints := b.hintsOf()
	drain(hints)
	require.NoError(t, b.admin.typed.CoreV1().ConfigMaps(b.namespace).Delete(t.Context(), "settings", metav1.DeleteOptions{}))
	b.waitHint(hints)
	seen := b.observe(v1)
	require.Equal(t, "does not exist", seen[0].Message)
	require.Empty(t, seen[0].Versions)
}

// Our objects that are no longer declared are reported, until they are gone; those of others are not.
func TestOrphansAreReported_D10(t *testing.T) {
	b := newTestCluster(t)
	b.put(b.instance("v1", config, "{apiVersion: v1, kind: Secret, metadata: {name: old}}", deploymentOf("web:1", 1, "")))
	other := b.instance("v1", "{apiVersion: v1, kind: ConfigMap, metadata: {name: others}}")
	other.Service = "api"
	b.put(other)
	parent := fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: converge.%s.web.prod, annotations: {applyset.kubernetes.io/contains-group-kinds: "ConfigMap,Deployment.apps,Secret,Gone.example.com"}}}`, b.namespace)
	b.put(b.instance("", parent))

	v2 := b.instance("v2", "{apiVersion: v1, kind: ConfigMap, metadata: {name: new}}")
	b.put(v2)
	seen := b.until(v2, "three orphans", func(objects []entities.Object) bool { return len(objects) == 4 })
	var names []string
	for _, o := range seen {
		names = append(names, fmt.Sprintf("%s/%s %v %s", o.Type, o.Name, o.Orphaned, o.Versions[0].Version))
	}
	require.Equal(t, []string{"ConfigMap/new false v2", "ConfigMap/settings true v1", "Deployment/web true v1", "Secret/old true v1"}, names)
	require.Equal(t, "no longer declared, left in place", seen[1].Message)

	belongs := b.observe(b.instance("v1", "{apiVersion: v1, kind: ConfigMap, metadata: {name: others}}"))
	require.Equal(t, "it exists, and belongs to "+b.namespace+"/api in prod", belongs[0].Message)
	require.Empty(t, belongs[0].Versions)
}

// BenchmarkObserve is what each service costs a worker at every steady reading.
func BenchmarkObserve(b *testing.B) {
	bench := newExclusiveTestCluster(b)
	v1 := bench.instance("v1", deploymentOf("web:1", 1, ""), config)
	bench.put(v1)
	bench.until(v1, "v1", settled("v1"))
	for b.Loop() {
		bench.observe(v1)
	}
}
