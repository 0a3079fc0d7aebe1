package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/kubetest"
)

// createDefinition makes a CustomResourceDefinition for all tests of this program.
func (d *recordingCluster) createDefinition(definition *unstructured.Unstructured) {
	d.Helper()
	at := d.admin.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := at.Create(d.Context(), definition, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		require.NoError(d, err)
	}
	spec := nestedMap(definition.Object, "spec")
	versions, _ := spec["versions"].([]any)
	gvk := schema.GroupVersionKind{Group: text(definition, "spec", "group"), Kind: text(definition, "spec", "names", "kind")}
	gvk.Version, _ = versions[0].(map[string]any)["name"].(string)
	d.wait("the kind to be served", func() bool {
		live, err := at.Get(d.Context(), definition.GetName(), metav1.GetOptions{})
		if err != nil || !conditionOf(live, "Established").is("True") {
			return false
		}
		_, err = d.cluster.resource(d.Context(), gvk) // which is listed a moment later
		return err == nil
	}, func() any { return nil })
}

// setStatus writes the status of a custom resource as its controller does.
func (d *recordingCluster) setStatus(gvk schema.GroupVersionKind, name, status string) *unstructured.Unstructured {
	d.Helper()
	r, err := d.cluster.resource(d.Context(), gvk)
	require.NoError(d, err)
	o, err := d.admin.resourceClient(r, d.namespace).Patch(d.Context(), name, types.MergePatchType, []byte(`{"status":`+status+`}`), metav1.PatchOptions{FieldManager: "controller"}, "status")
	require.NoError(d, err)
	return o
}

// waitOnlyObject observes until the message of the only object contains a text.
func (d *recordingCluster) waitOnlyObject(in runtimes.Request, says string) entities.Object {
	d.Helper()
	return d.until(in, says, func(objects []entities.Object) bool {
		return len(objects) == 1 && strings.Contains(objects[0].Message, says)
	})[0]
}

// A Rollout whose controller paused it for a person is suspended, with the command in its message; it is promoted once, by the status
// that kubectl's plugin would patch, and aborted, and none of that is drift.
func TestARolloutIsPromotedAndAborted_H3(t *testing.T) {
	folder := kubetest.PublicRollouts(t)
	d := newTestCluster(t).recording()
	text, err := os.ReadFile(filepath.Join(folder, "rollout-crd.yaml"))
	require.NoError(t, err)
	d.createDefinition(object(t, string(text)))
	gvk := schema.FromAPIVersionAndKind("argoproj.io/v1alpha1", "Rollout")
	at := func(version string) runtimes.Request {
		return d.instance(version, `{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: web}, spec: {replicas: 2, selector: {matchLabels: {app: web}},
			strategy: {canary: {steps: [{setWeight: 50}, {pause: {}}, {setWeight: 100}]}},
			template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "web:`+version+`"}]}}}}`)
	}
	v1 := at("v1")
	d.mustApply(v1)
	seen := d.waitOnlyObject(v1, "Rollout is not seen by its controller yet")
	require.Equal(t, entities.ObjectPending, seen.Status)

	paused := `{"observedGeneration":"1","phase":"Paused","message":"CanaryPauseStep","controllerPause":true,"currentStepIndex":1,
		"pauseConditions":[{"reason":"CanaryPauseStep","startTime":"2026-01-02T03:04:05Z"}]}`
	d.setStatus(gvk, "web", paused)
	seen = d.waitOnlyObject(v1, "paused at step 2 of 3 (CanaryPauseStep); converge promote "+d.namespace+"/web prod")
	require.Equal(t, "CanaryPauseStep at step 2 of 3 since 2026-01-02T03:04:05Z", seen.Suspended)
	require.True(t, seen.Steerable)

	_, err = d.Steer(t.Context(), v1, runtimes.Steer{At: "CanaryPauseStep at step 1 of 3"})
	require.ErrorContains(t, err, "no Rollout waits at that step")
	_, err = d.Steer(t.Context(), at("v2"), runtimes.Steer{At: seen.Suspended})
	require.ErrorContains(t, err, "has another version")
	did, err := d.Steer(t.Context(), v1, runtimes.Steer{At: seen.Suspended})
	require.NoError(t, err)
	require.Equal(t, []string{"Rollout/web continues after " + seen.Suspended}, did)
	seen = d.waitOnlyObject(v1, "Rollout continues")
	require.Empty(t, seen.Suspended)
	require.False(t, seen.Versions[0].Drifted)
	_, err = d.Steer(t.Context(), v1, runtimes.Steer{At: "CanaryPauseStep at step 2 of 3 since 2026-01-02T03:04:05Z"})
	require.ErrorContains(t, err, "no Rollout waits at that step", "asking twice does once")

	did, err = d.Steer(t.Context(), v1, runtimes.Steer{Abort: true})
	require.NoError(t, err)
	require.Equal(t, []string{"Rollout/web is aborted"}, did)
	live := d.setStatus(gvk, "web", `{"phase":"Degraded","message":"RolloutAborted: Rollout aborted update to revision 2","controllerPause":false}`)
	require.Equal(t, true, nestedMap(live.Object, "status")["abort"])
	seen = d.waitOnlyObject(v1, "Rollout is degraded: RolloutAborted")
	require.Equal(t, entities.ObjectFailed, seen.Status)
	require.False(t, seen.Versions[0].Drifted)

	d.mustApply(at("v2"))
	seen = d.waitOnlyObject(at("v2"), "Rollout generation is 2, but latest observed generation is 1")
	require.Equal(t, entities.ObjectPending, seen.Status, "that it failed is about the spec before")
	d.setStatus(gvk, "web", `{"observedGeneration":"2","phase":"Healthy","abort":false,"replicas":2}`)
	d.until(at("v2"), "v2", settled("v2"))
}

const thingYAML = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ruleds.health.example.com}
spec:
  group: health.example.com
  scope: Namespaced
  names: {kind: Ruled, plural: ruleds, singular: ruled}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// A kind is as healthy as the expressions of its runtime say. One that yields nothing fails the reading, by kind and field.
func TestHealthByExpressions_H3(t *testing.T) {
	d := newTestCluster(t).recording()
	d.createDefinition(object(t, thingYAML))
	d.useHealthRules(entities.HealthRule{
		Group: "health.example.com", Kind: "Ruled", Current: "status.state == 'up' && status.replicas >= spec.replicas", Failed: "status.state == 'broken'",
		InProgress: "status.state in ['starting', 'moving']", Suspended: "status.state == 'held'",
	})
	gvk := schema.FromAPIVersionAndKind("health.example.com/v1", "Ruled")
	v1 := d.instance("v1", "{apiVersion: health.example.com/v1, kind: Ruled, metadata: {name: a}, spec: {replicas: 2}}")
	d.mustApply(v1)
	require.Equal(t, entities.ObjectPending, d.waitOnlyObject(v1, "Ruled is in progress").Status, "without a status")
	d.setStatus(gvk, "a", `{"state":"up","replicas":2,"observedGeneration":0}`)
	require.Equal(t, entities.ObjectPending, d.waitOnlyObject(v1, "latest observed generation is 0").Status)
	d.setStatus(gvk, "a", `{"observedGeneration":1,"state":"moving"}`)
	require.Equal(t, entities.ObjectPending, d.waitOnlyObject(v1, "Ruled is in progress").Status)
	d.setStatus(gvk, "a", `{"state":"held","conditions":[{"type":"Ready","status":"False","reason":"Held","message":"by ann"}]}`)
	seen := d.waitOnlyObject(v1, "Ruled is suspended: Held: by ann")
	require.Equal(t, "suspended", seen.Suspended)
	require.False(t, seen.Steerable)
	d.setStatus(gvk, "a", `{"state":"broken"}`)
	require.Equal(t, entities.ObjectFailed, d.waitOnlyObject(v1, "Ruled has failed").Status)
	d.setStatus(gvk, "a", `{"state":"up","replicas":null}`)
	require.ErrorContains(t, d.untilError(v1, runtimes.CodeHealth), `health of Ruled, expression "current": no such key: replicas`)
	d.setStatus(gvk, "a", `{"state":"up","replicas":2}`)
	d.until(v1, "current", settled("v1"))
}

const rolloutYAML = `{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: web}, spec: {replicas: 2, selector: {matchLabels: {app: web}},
	strategy: {canary: {steps: [{setWeight: 50}, {pause: {}}, {setWeight: 100}]}},
	template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "web:v1"}]}}}}`

// A Rollout of another installation has the same labels, where both declare a service of that name: it is neither promoted nor
// aborted.
func TestARolloutOfAnotherInstallationIsNotChanged_H3_H10(t *testing.T) {
	folder := kubetest.PublicRollouts(t)
	d := newTestCluster(t).recording()
	crd, err := os.ReadFile(filepath.Join(folder, "rollout-crd.yaml"))
	require.NoError(t, err)
	d.createDefinition(object(t, string(crd)))
	gvk := schema.FromAPIVersionAndKind("argoproj.io/v1alpha1", "Rollout")
	ours := asInstallation("ours", d.instance("v1", rolloutYAML), 3, 7)
	d.mustApply(ours)
	d.setStatus(gvk, "web", `{"observedGeneration":"1","phase":"Paused","message":"CanaryPauseStep","controllerPause":true,"currentStepIndex":1,
		"pauseConditions":[{"reason":"CanaryPauseStep","startTime":"2026-01-02T03:04:05Z"}]}`)
	at := d.waitOnlyObject(ours, "paused at step 2 of 3").Suspended

	theirs := asInstallation("new", d.instance("v1", rolloutYAML), 1, 1)
	d.takeWrites()
	for _, way := range []runtimes.Steer{{At: at}, {At: at, Full: true}, {Abort: true}} {
		_, err = d.Steer(t.Context(), theirs, way)
		require.ErrorContains(t, err, "no Rollout waits at that step", "%+v", way)
	}
	writes, _ := d.takeWrites()
	require.Empty(t, writes)
	did, err := d.Steer(t.Context(), ours, runtimes.Steer{At: at})
	require.NoError(t, err)
	require.Equal(t, []string{"Rollout/web continues after " + at}, did)
}

// What a hook waits for is said by the runtime's expressions, as of any other object.
func TestHealthOfHooksByExpressions_H3_H6(t *testing.T) {
	d := newTestCluster(t).recording()
	d.createDefinition(object(t, thingYAML))
	d.useHealthRules(entities.HealthRule{Group: "health.example.com", Kind: "Ruled", Current: "status.state == 'up'", Suspended: "status.state == 'held'"})
	gvk := schema.FromAPIVersionAndKind("health.example.com/v1", "Ruled")
	v1 := d.instance("v1", configOf("settings", "v1"), "{apiVersion: health.example.com/v1, kind: Ruled, metadata: {name: a, annotations: {converge/hook: post-install}}}")
	v1.Attempt, v1.AttemptID = 1, "a"
	ended := make(chan error, 1)
	go func() {
		_, err := d.Apply(t.Context(), v1)
		ended <- err
	}()
	says := func(text string) {
		t.Helper()
		d.until(v1, text, func(objects []entities.Object) bool { return len(objects) == 2 && objects[1].Message == text })
	}
	says("hook post-install: Ruled is in progress")
	d.setStatus(gvk, "a", `{"state":"held","conditions":[{"type":"Ready","status":"True"}]}`)
	says("hook post-install: Ruled is suspended")
	d.setStatus(gvk, "a", `{"state":"up"}`)
	require.NoError(t, <-ended)
}

// useHealthRules makes the runtime evaluate health by these expressions.
func (d *recordingCluster) useHealthRules(rules ...entities.HealthRule) {
	d.Helper()
	connection := *d.def.Kubernetes
	connection.Health = rules
	d.def.Kubernetes = &connection
	var err error
	d.rules, err = newHealthRules(d.def)
	require.NoError(d, err)
}
