package kubernetes

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/runtimes"
)

// What is there is not applied again, and what an apply costs is known.
func TestApplyAgainWritesNothing_A9_A11(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", deploymentOf("web:1", 2, ""), configOf("settings", "b"))
	require.Equal(t, []string{"created ConfigMap/settings", "created Deployment/web"}, d.mustApply(v1))
	at := "/api/v1/namespaces/" + d.namespace + "/configmaps"
	writes, _ := d.takeWrites()
	require.Equal(t, []string{
		"POST " + at, // the inventory, first, so that every created object is found again
		"PATCH " + at + "/settings",
		"PATCH /apis/apps/v1/namespaces/" + d.namespace + "/deployments/web",
	}, writes)

	web := d.liveObject("Deployment", "web")
	require.Equal(t, d.namespace, web.GetLabels()[LabelApplication])
	require.Equal(t, d.namespace, nestedMap(web.Object, "spec", "template", "metadata", "labels")[LabelApplication])
	d.waitWatchedAs("ConfigMap", "settings")
	d.until(v1, "v1", settled("v1"))
	// One dry run for each object, once the controllers have written all that they write: until then what
	// is watched may be a moment behind, and is read again.
	asked := 0
	d.wait("an apply of one dry run for each object", func() bool {
		d.takeWrites()
		require.Equal(t, []string{"unchanged 2 objects"}, d.mustApply(v1))
		writes, asked = d.takeWrites()
		require.Empty(t, writes)
		return asked == 2
	}, func() any { return asked })

	v2 := d.instance("v2", deploymentOf("web:2", 2, ""), configOf("settings", "b"))
	require.Equal(t, []string{"configured ConfigMap/settings (metadata.annotations[converge/version])", "configured Deployment/web (its pods are replaced: spec.template.spec.containers[name=web].image changes)"}, d.mustApply(v2))
	settings, deployment := at+"/settings", "/apis/apps/v1/namespaces/"+d.namespace+"/deployments/web"
	requests := slices.DeleteFunc(d.takeRequests(), func(r recordedRequest) bool {
		return r.text == "GET "+deployment // a controller has written its status again, and the watch is behind
	})
	require.ElementsMatch(t, []recordedRequest{
		{"PATCH " + settings, false}, {"PATCH " + deployment, false}, {"PATCH " + settings, true}, {"PATCH " + deployment, true},
	}, requests)
	d.until(v2, "v2", settled("v2"))
}

// A restart replaces the pods of permanent workloads and nothing else, is no drift, and stays in later applies, so that they replace
// no pods.
func TestRestartReplacesPods_I1(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", deploymentOf("web:1", 2, ""), configOf("settings", "b"))
	d.mustApply(v1)
	d.until(v1, "v1", settled("v1"))
	v1.Restarted, v1.Restart = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC), true
	require.Equal(t, []string{"configured Deployment/web (its pods are replaced: spec.template.metadata.annotations[converge/restartedAt] changes)", "unchanged 1 object"}, d.mustApply(v1))
	require.Equal(t, "2026-11-20T10:00:00Z", nestedMap(d.liveObject("Deployment", "web").Object, "spec", "template", "metadata", "annotations")["converge/restartedAt"])
	v1.Restart = false
	d.until(v1, "v1", settled("v1"))
	require.Equal(t, []string{"unchanged 2 objects"}, d.mustApply(v1))
}

// Nothing is changed when one object cannot be applied; all that is wrong is reported at once.
func TestOneBadObjectStopsAll(t *testing.T) {
	d := newTestCluster(t).recording()
	text := d.mustRefuse(d.instance("v1", config,
		"{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 700000}]}}",
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: many}}"), true)
	require.Contains(t, text, "apply Service "+d.namespace+`/web: Service "web" is invalid: [spec.ports[0].port: Invalid value: 700000: must be between 1 and 65535`)
	require.Contains(t, text, "apply Deployment "+d.namespace+"/web: ")
	require.Contains(t, text, "expected numeric (int or float), got string")
	writes, _ := d.takeWrites()
	require.Empty(t, writes)

	text = d.mustRefuse(d.instance("v1", config, config, "{apiVersion: v1, kind: Pod, metadata: {generateName: x}}"), true)
	require.Contains(t, text, "object 3 of the payload: v1 Pod has no name")
	text = d.mustRefuse(d.instance("v1", config, config), true)
	require.Contains(t, text, "ConfigMap "+d.namespace+"/settings is declared twice")
}

// Objects of others are refused; adopting takes over objects without an owner, and never those of another instance.
func TestOwnersOfObjects_D11(t *testing.T) {
	d := newTestCluster(t).recording()
	mine := d.instance("v1", configOf("settings", "mine"))
	d.applyAs("helm", "ConfigMap", "settings", "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {b: theirs}}")
	require.Contains(t, d.mustRefuse(mine, true), "it already exists, and does not belong to this instance (written by helm) (to adopt it, set adopt, or on the object the annotation converge/adopt: \"true\"; otherwise delete it)")
	require.Equal(t, []string{"configured ConfigMap/settings (4 fields)", "adopted ConfigMap/settings from helm"}, d.mustApply(withAdopt(mine)))

	for _, in := range []runtimes.Request{inChannel(mine, "beta"), withAdopt(inChannel(mine, "beta")), withAdopt(withInstanceName(mine, "eu-3"))} {
		require.Contains(t, d.mustRefuse(in, false), "it belongs to "+d.namespace+"/web in prod; one object has one owner")
	}
	d.mustApply(withInstanceName(d.instance("v1", configOf("settings-eu-3", "its own")), "eu-3"))
	require.NotNil(t, d.liveObject("ConfigMap", "converge."+d.namespace+".web.prod.eu-3"))
	require.Contains(t, d.mustRefuse(d.instance("v1", configOf("settings-eu-3", "mine")), false), "it belongs to "+d.namespace+"/web in prod/eu-3; one object has one owner")
	objects, err := d.Observe(t.Context(), withPrune(mine))
	require.NoError(t, err)
	require.Len(t, objects, 1, "objects of the other instance are no orphans")
}

// An object whose labels were taken off by hand is still ours, and gets them again.
func TestManuallyRemovedLabels_A12(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", configOf("settings", "mine"))
	d.mustApply(v1)
	for _, off := range []string{
		`{"metadata": {"labels": {"converge/application": null}}}`,
		`{"metadata": {"labels": {"converge/instance": null}}}`,
		`{"metadata": {"labels": null}}`,
	} {
		d.patchAs("kubectl-label", "ConfigMap", "settings", off)
		d.waitWatchedAs("ConfigMap", "settings")
		require.Contains(t, d.mustApply(v1)[0], "configured ConfigMap/settings (")
		require.Equal(t, d.namespace, d.liveObject("ConfigMap", "settings").GetLabels()[LabelApplication])
	}
	// Labels of another instance on it, or none of us among its writers, and it is not ours.
	d.patchAs("kubectl-label", "ConfigMap", "settings", `{"metadata": {"labels": {"converge/application": null, "converge/channel": "beta"}}}`)
	d.waitWatchedAs("ConfigMap", "settings")
	require.Contains(t, d.mustRefuse(v1, true), "does not belong to this instance (written by converge, kubectl-label)")
}

func TestConflicts(t *testing.T) {
	scaled := `{"spec": {"replicas": 5}}`
	rows := map[string]struct {
		write func(*recordingCluster)
		lines string // of an apply
		why   string // it is refused; empty: it is not
	}{
		"an edit is reverted":        {write: func(d *recordingCluster) { d.patchAs("kubectl-edit", "Deployment", "web", scaled) }, lines: "reverted spec.replicas of Deployment/web, written by kubectl-edit"},
		"an edit by a program, too":  {write: func(d *recordingCluster) { d.patchAs("curl", "Deployment", "web", scaled) }, lines: "reverted spec.replicas of Deployment/web, written by curl"},
		"kubectl scale is an edit":   {write: func(d *recordingCluster) { d.patchAs("kubectl", "Deployment", "web", scaled, "scale") }, lines: "reverted spec.replicas of Deployment/web, written by kubectl"},
		"an autoscaler that is gone": {write: func(d *recordingCluster) { d.patchAs("kube-controller-manager", "Deployment", "web", scaled, "scale") }, lines: "took over spec.replicas of Deployment/web from kube-controller-manager"},
		"another tool's declaration stays": {write: func(d *recordingCluster) {
			d.applyAs("argocd", "Deployment", "web", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 5}}")
		}, why: "spec.replicas belongs to argocd, which declares it too"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			d := newTestCluster(t).recording()
			v1 := d.instance("v1", deploymentOf("web:1", 2, ""))
			d.mustApply(v1)
			row.write(d)
			if row.why == "" {
				require.Contains(t, d.mustApply(v1), row.lines)
				require.EqualValues(t, 2, nestedMap(d.liveObject("Deployment", "web").Object, "spec")["replicas"])
				return
			}
			d.takeWrites()
			require.Contains(t, d.mustRefuse(v1, true), row.why+" (remove the field from one side, set adopt to take it over, or leave it to the other owner: ignoreDifferences: [{group: apps, kind: Deployment, name: web, jsonPointers: [/spec/replicas]}])")
			writes, _ := d.takeWrites()
			require.Empty(t, writes)
			plan, err := d.Plan(t.Context(), v1)
			require.NoError(t, err)
			require.Equal(t, []runtimes.Change{{Action: runtimes.ActionRefuse, Type: "Deployment", Name: "web", Namespace: d.namespace, Conflicts: []string{row.why}}}, plan)
			require.Contains(t, strings.Join(d.mustApply(withAdopt(v1)), "\n"), "took over spec.replicas")
			require.EqualValues(t, 2, nestedMap(d.liveObject("Deployment", "web").Object, "spec")["replicas"])
		})
	}
}

// A wave waits for the one before it.
func TestWavesWaitForEarlierWaves_A3(t *testing.T) {
	d := newTestCluster(t).recording()
	slow := strings.Replace(deploymentOf("web:1", 1, ""), "{name: web}", `{name: web, annotations: {converge/wave: "-1"}}`, 1)
	slow = strings.Replace(slow, "replicas: 1", "replicas: 1\n  minReadySeconds: 2", 1)
	v1 := d.instance("v1", configOf("late", "x", `converge/wave: "1"`), configOf("middle", "x"), slow)
	out := make(chan error, 1)
	go func() { _, err := d.Apply(t.Context(), v1); out <- err }()
	d.wait("the first wave", func() bool { return d.liveObject("Deployment", "web") != nil }, func() any { return nil })
	require.NoError(t, <-out)
	web, middle, late := d.liveObject("Deployment", "web"), d.liveObject("ConfigMap", "middle"), d.liveObject("ConfigMap", "late")
	require.EqualValues(t, 1, nestedMap(web.Object, "status")["availableReplicas"])
	require.GreaterOrEqual(t, middle.GetCreationTimestamp().Sub(web.GetCreationTimestamp().Time), time.Second)
	require.NotNil(t, late)

	// One that does not become ready holds the rest, until the time is up.
	stuck := d.instance("v2", configOf("later", "x", `converge/wave: "1"`), strings.Replace(slow, "web:1", "web:notready", 1))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // the deadline is what is tested
	defer cancel()
	_, err := d.Apply(ctx, stuck)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, runtimes.IsPermanent(err))
	require.Contains(t, err.Error(), "wait for Deployment "+d.namespace+"/web: ")
	require.Nil(t, d.liveObject("ConfigMap", "later"))
}

// An object that another writer created while earlier waves became ready is not taken over.
func TestAnObjectCreatedDuringAnApplyIsNotTakenOver_D11(t *testing.T) {
	d := newTestCluster(t).recording()
	late := "{apiVersion: v1, kind: ConfigMap, metadata: {name: late}, data: {b: theirs}}"
	d.injectFault(func(req *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if strings.HasSuffix(req.URL.Path, "/early") && req.Method == http.MethodPatch && !strings.Contains(req.URL.RawQuery, "dryRun") {
			d.applyAs("helm", "ConfigMap", "late", late)
		}
		return send()
	})
	in := d.instance("v1", configOf("early", "x"), configOf("late", "mine", `converge/wave: "1"`))
	d.resourceOf("ConfigMap") // known before the requests are counted
	require.Contains(t, d.mustRefuse(in, true), "apply ConfigMap "+d.namespace+"/late: it already exists, and does not belong to this instance (written by helm)")
	require.Equal(t, map[string]any{"b": "theirs"}, d.liveObject("ConfigMap", "late").Object["data"])
}

func TestAFailedObjectEndsAnApply(t *testing.T) {
	d := newTestCluster(t).recording()
	job := `{apiVersion: batch/v1, kind: Job, metadata: {name: migrate}, spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: c, image: "x", command: ["/bin/false"]}]}}}}`
	text := d.mustRefuse(d.instance("v1", job, configOf("late", "x", `converge/wave: "1"`)), false)
	require.Contains(t, text, "wait for Job "+d.namespace+"/migrate: it failed: ")
	require.Nil(t, d.liveObject("ConfigMap", "late"))
}

// Namespaces and definitions of kinds come first, and what is made in or of them in the same apply.
func TestNamespacesAndDefinitionsComeFirst(t *testing.T) {
	d := newTestCluster(t).recording()
	name := "new-" + d.namespace
	group := d.namespace + ".example.com"
	v1 := d.instance("v1",
		"{apiVersion: "+group+"/v1, kind: Widget, metadata: {name: w}, spec: {size: 1}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: there, namespace: "+name+"}}",
		"{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}",
		`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.`+group+`},
		  spec: {group: `+group+`, scope: Cluster, names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList},
		  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`)
	v1.Payload.Address["namespace"] = name
	t.Cleanup(func() {
		ctx := context.Background()
		_ = d.admin.typed.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
		_, _ = d.admin.typed.Discovery().RESTClient().Delete().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets." + group).DoRaw(ctx)
	})
	plan, err := d.Plan(t.Context(), v1)
	require.NoError(t, err)
	require.Equal(t, []runtimes.Change{
		{Action: runtimes.ActionCreate, Type: "Namespace", Name: name},
		{Action: runtimes.ActionCreate, Type: "CustomResourceDefinition", Name: "widgets." + group},
		{Action: runtimes.ActionCreate, Type: "ConfigMap", Name: "there", Namespace: name},
		{Action: runtimes.ActionCreate, Type: "Widget", Name: "w"},
	}, plan)
	require.Equal(t, []string{
		"created Namespace/" + name, "created CustomResourceDefinition/widgets." + group, "created ConfigMap/there", "created Widget/w",
	}, d.mustApply(v1))
	d.until(v1, "all", settled("v1"))
	require.Equal(t, []string{"unchanged 4 objects"}, d.mustApply(v1))
	parent, err := d.admin.typed.CoreV1().ConfigMaps(name).Get(t.Context(), "converge."+d.namespace+".web.prod", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "ConfigMap,CustomResourceDefinition.apiextensions.k8s.io,Namespace,Widget."+group, parent.Annotations[annotationKinds])

	// Without them (D10) no namespace and no definition is removed: they contain undeclared objects.
	less := withPrune(d.instance("v2"))
	less.Payload.Address["namespace"] = name
	lines := d.mustApply(less)
	require.Contains(t, lines, "pruned Widget/w")
	require.Contains(t, lines, "left in place Namespace/"+name+", which is no longer declared")
	require.Contains(t, lines, "left in place CustomResourceDefinition/widgets."+group+", which is no longer declared")
}

// What is no longer declared stays, is reported, and goes when the payload says so.
func TestUndeclaredObjects_D10(t *testing.T) {
	d := newTestCluster(t).recording()
	d.mustApply(d.instance("v1", configOf("settings", "b"), deploymentOf("web:1", 1, ""),
		"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"))
	v2 := d.instance("v2", configOf("settings", "b"))
	require.Equal(t, []string{
		"configured ConfigMap/settings (metadata.annotations[converge/version])",
		"left in place Deployment/web, which is no longer declared",
		"left in place PersistentVolumeClaim/data, which is no longer declared",
	}, d.mustApply(v2))
	parent := "converge." + d.namespace + ".web.prod"
	require.Equal(t, "ConfigMap,Deployment.apps,PersistentVolumeClaim", d.liveObject("ConfigMap", parent).GetAnnotations()[annotationKinds])

	plan, err := d.Plan(t.Context(), withPrune(v2))
	require.NoError(t, err)
	require.Equal(t, []runtimes.Change{
		{Action: runtimes.ActionPrune, Type: "Deployment", Name: "web", Namespace: d.namespace},
		{Action: runtimes.ActionOrphan, Type: "PersistentVolumeClaim", Name: "data", Namespace: d.namespace, Message: "no longer declared, kept: " + claimsKeptReason},
	}, plan)
	require.Equal(t, []string{"pruned Deployment/web", "left in place PersistentVolumeClaim/data, which is no longer declared (" + claimsKeptReason + ")", "unchanged 1 object"}, d.mustApply(withPrune(v2)))
	d.wait("it is gone", func() bool { return d.liveObject("Deployment", "web") == nil }, func() any { return nil })
	require.NotNil(t, d.liveObject("PersistentVolumeClaim", "data"))
	require.Equal(t, "ConfigMap,PersistentVolumeClaim", d.liveObject("ConfigMap", parent).GetAnnotations()[annotationKinds])
}

// The watch may lag: a plan and an apply compare with the server's object, and not with its earlier state.
func TestALateWatchIsNoChange_A9(t *testing.T) {
	d := newTestCluster(t).recording()
	late := make(chan struct{})
	var held atomic.Bool
	d.injectFault(func(req *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		resp, err := send()
		if err == nil && req.URL.Query().Has("watch") {
			resp.Body = lateBody{resp.Body, func() {
				if held.Load() {
					<-late
				}
			}}
		}
		return resp, err
	})
	d.mustApply(d.instance("v1", configOf("settings", "b")))
	held.Store(true)
	t.Cleanup(func() { close(late) })

	v2 := d.instance("v2", configOf("settings", "b"))
	require.Equal(t, []string{"configured ConfigMap/settings (metadata.annotations[converge/version])"}, d.mustApply(v2))
	plan, err := d.Plan(t.Context(), v2)
	require.NoError(t, err)
	require.Empty(t, plan)
	d.takeWrites()
	require.Equal(t, []string{"unchanged 1 object"}, d.mustApply(v2))
	writes, _ := d.takeWrites()
	require.Empty(t, writes)
}

// lateBody is an answer whose parts arrive once before returns.
type lateBody struct {
	io.ReadCloser
	before func()
}

func (b lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.before()
	return n, err
}

func TestAnImmutableObjectIsRecreatedIfAllowed(t *testing.T) {
	d := newTestCluster(t).recording()
	job := func(annotation string) string {
		return `{apiVersion: batch/v1, kind: Job, metadata: {name: migrate, annotations: {` + annotation + `}}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "x", command: ["/bin/true"]}]}}}}`
	}
	d.mustApply(d.instance("v1", job("")))
	first := d.liveObject("Job", "migrate").GetUID()
	require.Contains(t, d.mustRefuse(d.instance("v2", strings.Replace(job(""), "true", "false", 1)), true), `field is immutable (set the annotation converge/recreate: "true" to have it deleted and recreated)`)
	require.Equal(t, first, d.liveObject("Job", "migrate").GetUID())

	v2 := d.instance("v2", job(`converge/recreate: "true"`))
	plan, err := d.Plan(t.Context(), v2)
	require.NoError(t, err)
	require.Equal(t, []runtimes.Change{{Action: runtimes.ActionRecreate, Type: "Job", Name: "migrate", Namespace: d.namespace}}, plan)
	require.Equal(t, []string{"recreated Job/migrate"}, d.mustApply(v2))
	second := d.liveObject("Job", "migrate").GetUID()
	require.NotEqual(t, first, second)
	require.Equal(t, []string{"unchanged 1 object"}, d.mustApply(v2))
	d.mustApply(d.instance("v3", job("")))
	require.Equal(t, second, d.liveObject("Job", "migrate").GetUID(), "its template has v2 and is immutable")
}

// An apply that is interrupted at any request, before or after the server got it, is
// finished by the next one.
func TestAnApplyInterruptedAnywhereIsFinishedByTheNext_A11(t *testing.T) {
	d := newTestCluster(t).recording()
	d.mustApply(d.instance("v0", configOf("old", "x")))
	in := withPrune(d.instance("v1", configOf("one", "x"), configOf("two", "x", `converge/wave: "1"`)))
	for n := 0; ; n++ {
		ctx, cancel := context.WithCancel(t.Context())
		count, lost := 0, n%2 == 1
		var mu sync.Mutex
		d.injectFault(func(req *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if req.Method == http.MethodGet {
				return send()
			}
			count++
			if count-1 != n/2 {
				return send()
			}
			if lost {
				resp, err := send()
				if err == nil {
					resp.Body.Close()
				}
			}
			cancel()
			return nil, errConnectionCut
		})
		_, err := d.Apply(ctx, in)
		cancel()
		d.injectFault(nil)
		if err == nil {
			require.Greater(t, n, 8)
			break
		}
		require.False(t, runtimes.IsPermanent(err), err)
		_, err = d.Apply(t.Context(), in)
		require.NoError(t, err)
		require.NotNil(t, d.liveObject("ConfigMap", "one"))
		require.NotNil(t, d.liveObject("ConfigMap", "two"))
		require.Nil(t, d.liveObject("ConfigMap", "old"))
		for _, name := range []string{"one", "two"} {
			require.NoError(t, d.admin.typed.CoreV1().ConfigMaps(d.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
		}
		d.mustApply(d.instance("v0", configOf("old", "x")))
	}
}

// Channels, and services, do not touch one another, also at the same time.
func TestChannelsAtTheSameTime(t *testing.T) {
	d := newTestCluster(t).recording()
	var all sync.WaitGroup
	for _, channel := range []string{"beta", "prod", "staging"} {
		all.Go(func() {
			in := withPrune(inChannel(d.instance("v1", configOf("settings-"+channel, channel), configOf("more-"+channel, channel, `converge/wave: "1"`)), channel))
			for range 5 {
				_, err := d.Apply(t.Context(), in)
				require.NoError(t, err)
			}
		})
	}
	all.Wait()
	for _, channel := range []string{"beta", "prod", "staging"} {
		require.NotNil(t, d.liveObject("ConfigMap", "settings-"+channel))
		require.NotNil(t, d.liveObject("ConfigMap", "converge."+d.namespace+".web."+channel))
	}
}
