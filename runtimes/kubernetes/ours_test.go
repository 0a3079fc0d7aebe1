package kubernetes

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// A clone of an object has the same labels, and so does the controller that makes Endpoints for a Service. Neither made them ours:
// they are not reported, and pruning leaves them.
func TestCopiedLabelsAreNoOwnership_D10_D11(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", config,
		"{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}",
		"{apiVersion: v1, kind: Service, metadata: {name: outside}, spec: {ports: [{port: 80}]}}",
		"{apiVersion: v1, kind: Endpoints, metadata: {name: outside}, subsets: [{addresses: [{ip: 10.9.9.9}], ports: [{port: 80}]}]}")
	d.mustApply(v1)
	settings := d.liveObject("ConfigMap", "settings")
	clone := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": settings.Object["data"]}}
	clone.SetName("settings-debug")
	clone.SetLabels(settings.GetLabels())
	clone.SetAnnotations(settings.GetAnnotations())
	_, err := d.admin.resourceClient(d.resourceOf("ConfigMap"), d.namespace).Create(t.Context(), clone, metav1.CreateOptions{FieldManager: "kubectl-create"})
	require.NoError(t, err)
	d.wait("Endpoints of the Service, with its labels", func() bool {
		made := d.liveObject("Endpoints", "web")
		return made != nil && made.GetLabels()[LabelApplication] == d.namespace
	}, func() any { return nil })
	d.waitWatchedAs("ConfigMap", "settings-debug")
	d.waitWatchedAs("Endpoints", "web")

	require.Len(t, d.observe(v1), 4)
	plan, err := d.Plan(t.Context(), withPrune(v1))
	require.NoError(t, err)
	require.Empty(t, plan)
	d.mustApply(withPrune(v1))
	require.NotNil(t, d.liveObject("ConfigMap", "settings-debug"))
	require.NotNil(t, d.liveObject("Endpoints", "web"))
}

// An instance that moves to another namespace leaves objects behind, also of kinds that it has no
// more. They are found there by the inventory that it left, and pruned when that is asked for.
func TestObjectsOfAMovedInstanceAreFound_D10(t *testing.T) {
	d := newTestCluster(t).recording()
	there := d.namespace + "-new"
	_, err := d.admin.typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: there}}, metav1.CreateOptions{})
	require.NoError(t, err)
	secret := "{apiVersion: v1, kind: Secret, metadata: {name: old}}"
	d.mustApply(d.instance("v1", config, secret))
	d.waitWatchedAs("ConfigMap", inventoryName(runtimes.Owner{Application: d.namespace, Service: "web", ID: entities.Only("prod")}))
	v2 := d.instance("v2", config)
	v2.Payload.Address = map[string]string{"namespace": there}

	left := []string{"left in place ConfigMap/settings, which is no longer declared", "left in place Secret/old, which is no longer declared"}
	require.Equal(t, append([]string{"created ConfigMap/settings"}, left...), d.mustApply(v2))
	seen := d.observe(v2)
	require.Len(t, seen, 3)
	require.Equal(t, d.namespace+"/settings", seen[1].Name)
	require.Equal(t, d.namespace+"/old", seen[2].Name)
	require.Equal(t, append(left, "unchanged 1 object"), d.mustApply(v2))

	d.mustApply(withPrune(v2))
	require.Nil(t, d.liveObject("Secret", "old"))
	require.Nil(t, d.liveObject("ConfigMap", "settings"))
	require.Nil(t, d.liveObject("ConfigMap", "converge."+d.namespace+".web.prod"))
}

// laggingBody passes on the events of a watch only when wait returns.
type laggingBody struct {
	io.ReadCloser
	wait func()
}

func (l laggingBody) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	l.wait()
	return n, err
}

// lag returns functions for the watches of a resource: delay begins to hold back their events, catchUp ends that.
func (d *recordingCluster) lag(resource string) (delay, catchUp func()) {
	var late atomic.Bool
	open := make(chan struct{})
	d.injectFault(func(req *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		resp, err := send()
		if err == nil && strings.Contains(req.URL.RawQuery, "watch=true") && strings.HasSuffix(req.URL.Path, "/"+resource) {
			resp.Body = laggingBody{resp.Body, func() {
				if late.Load() {
					select {
					case <-open:
					case <-req.Context().Done():
					}
				}
			}}
		}
		return resp, err
	})
	return func() { late.Store(true) }, func() { late.Store(false); close(open) }
}

// What was made a moment ago and is not declared any more is found, also when the watch has not shown
// of it yet.
func TestUnwatchedObjectsStayInTheInventory_D10(t *testing.T) {
	d := newTestCluster(t).recording()
	delay, catchUp := d.lag("secrets")
	secret := func(name string) string { return "{apiVersion: v1, kind: Secret, metadata: {name: " + name + "}}" }
	v0 := d.instance("v0", config, secret("first"))
	d.mustApply(v0)
	d.until(v0, "v0", settled("v0"))
	delay()
	d.mustApply(d.instance("v1", config, secret("first"), secret("second")))
	lines := d.mustApply(withPrune(d.instance("v2", config)))
	catchUp()
	require.Contains(t, lines, "pruned Secret/first")
	require.Contains(t, lines, "pruned Secret/second")
}

// Kinds are watched apart. While the watch of Deployments is behind, what is known of one is about
// its earlier version, and pods of the new one that are not ready do not become stable by it.
func TestALateWatchIsNotStable_C5(t *testing.T) {
	d := newTestCluster(t).recording()
	delay, catchUp := d.lag("deployments")
	recreate := func(image, ready string) string {
		return strings.Replace(deploymentOf(image, 1, ready), "replicas: 1", "replicas: 1\n  strategy: {type: Recreate}", 1)
	}
	v1 := d.instance("v1", recreate("web:1", ""))
	d.mustApply(v1)
	hints := d.hintsOf()
	d.until(v1, "v1", settled("v1"))
	d.waitQuiet(v1, hints)
	delay()
	v2 := d.instance("v2", recreate("web:2", "kubelab/ready-in: 2s"))
	d.mustApply(v2)
	seen := d.until(v2, "pods of v2", func(objects []entities.Object) bool {
		return len(objects[0].Versions) == 1 && objects[0].Versions[0].Version == "v2" && objects[0].Versions[0].Replicas == 1
	})
	require.Equal(t, entities.ObjectPending, seen[0].Status)
	require.Equal(t, "its status and its pods do not agree yet", seen[0].Message)
	catchUp()
	d.until(v2, "v2", settled("v2"))
}

// An object that changed while it was compared is compared as it became. What it was before is no less
// drift when it comes back.
func TestDriftThatReturnsWhileTheWatchLagsIsReported_A12(t *testing.T) {
	d := newTestCluster(t).recording()
	delay, catchUp := d.lag("configmaps")
	v1 := d.instance("v1", config)
	d.mustApply(v1)
	d.until(v1, "v1", settled("v1"))
	theirs := func() { d.patchAs("injector", "ConfigMap", "settings", `{"data": {"a": "theirs"}}`) }
	drifted := func(objects []entities.Object) bool { return objects[0].Versions[0].Drifted }
	theirs()
	d.until(v1, "drift", drifted)
	delay()
	d.mustApply(v1)
	require.False(t, drifted(d.observe(v1)), "the server was queried")
	catchUp()
	theirs()
	d.waitWatchedAs("ConfigMap", "settings")
	require.True(t, drifted(d.observe(v1)))
}

// An object that another writer creates between the trial and the apply is not overwritten.
func TestAnObjectCreatedBeforeTheApplyIsNotOverwritten_D11(t *testing.T) {
	d := newTestCluster(t).recording()
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"a": "theirs"}}
	d.injectFault(func(req *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/settings") && !strings.Contains(req.URL.RawQuery, "dryRun") {
			// It is there already when an attempt follows.
			_, _ = d.admin.typed.CoreV1().ConfigMaps(d.namespace).Create(req.Context(), theirs, metav1.CreateOptions{FieldManager: "somebody"})
		}
		return send()
	})
	require.Contains(t, d.mustRefuse(d.instance("v1", config), true), "it already exists, and does not belong to this instance (written by somebody)")
	d.injectFault(nil)
	settings := d.liveObject("ConfigMap", "settings")
	require.Equal(t, map[string]any{"a": "theirs"}, settings.Object["data"])
	require.Empty(t, settings.GetLabels())
}

// The finalizers that prevent the recreation of an object are named when the time has passed.
func TestAStuckDeletionNamesItsFinalizers(t *testing.T) {
	d := newTestCluster(t).recording()
	job := `{apiVersion: batch/v1, kind: Job, metadata: {name: migrate, finalizers: [example.com/never], annotations: {converge/recreate: "true"}}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "x", command: ["/bin/true"]}]}}}}`
	d.mustApply(d.instance("v1", job))
	d.def.Timing.ApplyTimeout = 5 * time.Second // long enough to get there on a busy machine
	text := d.mustRefuse(d.instance("v2", job), false)
	require.Contains(t, text, "to recreate it: it is still there: being deleted, held by ")
	require.Contains(t, text, "example.com/never")
	d.patchAs("kubectl-edit", "Job", "migrate", `{"metadata": {"finalizers": null}}`)
}
