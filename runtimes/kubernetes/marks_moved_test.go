package kubernetes

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

// movable are workloads of each kind, with a Job that has ended.
func (d *recordingCluster) movable(version, image string) runtimes.Request {
	return d.instance(version, deploymentYAML("web", image, usesSettings), workloadYAML("StatefulSet", "db", "db:1", ""), agentYAML("agent:1"),
		jobNamedYAML("once"), configOf("settings", "a"))
}

// A workload that another service, another namespace of its instance or another installation had keeps its pods, with the labels that
// they have: those change with the next change of the template. Its versions and its health are read as before.
func TestAMovedWorkloadKeepsItsPods_H1(t *testing.T) {
	toOtherService := func(d *recordingCluster, in runtimes.Request) runtimes.Request {
		for kind, names := range map[string][]string{"Deployment": {"web"}, "StatefulSet": {"db"}, "DaemonSet": {"agent"}, "Job": {"once"}, "ConfigMap": {"settings"}} {
			for _, name := range names {
				d.relabel(kind, name, "api")
			}
		}
		payload := *in.Payload
		payload.Service, in.Service, in.Payload = "api", "api", &payload
		return in
	}
	toOtherNamespace := func(d *recordingCluster, in runtimes.Request) runtimes.Request {
		there := d.namespace + "-new"
		_, err := d.admin.typed.CoreV1().Namespaces().Create(d.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: there}}, metav1.CreateOptions{})
		require.NoError(d, err)
		payload := *in.Payload
		payload.Address, in.Payload = map[string]string{"namespace": there}, &payload
		return in
	}
	toOtherInstallation := func(_ *recordingCluster, in runtimes.Request) runtimes.Request {
		return withAdopt(asInstallation("new", in, 1, 1))
	}
	for name, move := range map[string]func(*recordingCluster, runtimes.Request) runtimes.Request{
		"another service": toOtherService, "another namespace": toOtherNamespace, "another installation": toOtherInstallation,
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestCluster(t).recording()
			sequence := int64(0)
			at := func(version, image string) runtimes.Request {
				sequence++
				in := asInstallation("ours", d.movable(version, image), 3, sequence)
				payload, objects := *in.Payload, *in.Payload.Kubernetes
				for i, raw := range objects.Objects {
					o, err := parse(raw)
					require.NoError(t, err)
					o.SetNamespace(d.namespace)
					objects.Objects[i], err = o.MarshalJSON()
					require.NoError(t, err)
				}
				payload.Kubernetes, in.Payload = &objects, &payload
				return in
			}
			v1 := at("v1", "web:1")
			d.mustApply(v1)
			d.until(v1, "v1", settled("v1"))
			first, job := d.pods(), d.liveObject("Job", "once").GetUID()

			moved := move(d, at("v2", "web:1"))
			for object, message := range d.planned(moved) {
				require.NotContains(t, message, "pods are replaced", object)
			}
			d.mustApply(moved)
			d.until(moved, "moved", settled("v2"))
			require.Equal(t, first, d.pods(), "no pod is replaced")
			require.Equal(t, job, d.liveObject("Job", "once").GetUID())

			image := at("v3", "web:2")
			image.Payload.Address, image.Payload.Service, image.Owner, image.Installation, image.Fence = moved.Payload.Address, moved.Payload.Service, moved.Owner, moved.Installation, nil
			require.Equal(t, "its pods are replaced: spec.template.spec.containers[name=c].image changes", d.planned(image)["Deployment/web"])
			d.mustApply(image)
			d.until(image, "another image", settled("v3"))
			owner, ok := ownerOf(templateLabels(d.liveWorkload("Deployment", "web")))
			require.True(t, ok)
			require.Equal(t, moved.Owner, owner, "its labels change with the template")
			second := d.pods()
			require.NotEqual(t, first["web"], second["web"])
			second["web"] = first["web"]
			require.Equal(t, first, second)
		})
	}
}

// relabel hands an object to another service.
func (d *recordingCluster) relabel(kind, name, service string) {
	d.Helper()
	gvk := map[string]string{"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "Job": "batch/v1", "ConfigMap": "v1"}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gvk[kind], "kind": kind}}
	r, err := d.cluster.resource(d.Context(), o.GroupVersionKind())
	require.NoError(d, err)
	at := d.admin.resourceClient(r, d.namespace)
	live, err := at.Get(d.Context(), name, metav1.GetOptions{})
	require.NoError(d, err)
	labels := live.GetLabels()
	labels[LabelService] = service
	live.SetLabels(labels)
	_, err = at.Update(d.Context(), live, metav1.UpdateOptions{FieldManager: "handover"})
	require.NoError(d, err)
	d.wait("the watch", func() bool {
		v, err := d.cluster.view(d.Context(), r, d.namespace)
		require.NoError(d, err)
		o := v.get(d.namespace, name)
		return o != nil && o.GetLabels()[LabelService] == service
	}, func() any { return name })
}

// Somebody who changes a mark in a live template changes what the workload declares: that is put back.
func TestMarksThatSomebodyChangesAreRestored_D3(t *testing.T) {
	d := newTestCluster(t).recording()
	in := d.instance("v1", deploymentYAML("web", "web:1", ""))
	d.mustApply(in)
	d.until(in, "v1", settled("v1"))
	d.patchAs("kubectl-edit", "Deployment", "web", `{"spec": {"template": {"metadata": {"labels": {"converge/instance": null}}}}}`)
	d.waitWatchedAs("Deployment", "web")
	require.Equal(t, "its pods are replaced: the labels of Converge in their template change", d.planned(in)["Deployment/web"])
	d.mustApply(in)
	d.until(in, "restored", settled("v1"))
	require.Equal(t, "main", templateLabels(d.liveWorkload("Deployment", "web"))[LabelInstance])
}

// otherBuild is the transport of another build of Converge: it names itself otherwise.
type otherBuild struct{ http.RoundTripper }

func (o otherBuild) WrappedRoundTripper() http.RoundTripper { return o.RoundTripper }

func (o otherBuild) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", "converge/v9.9.9-0.20990101000000-abcdef012345+dirty")
	return o.RoundTripper.RoundTrip(req)
}

// An upgrade of Converge replaces no pod: a build of another version writes the same objects, under the same field manager.
func TestAnotherBuildOfConvergeReplacesNoPod_H1(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.movable("v1", "web:1")
	d.mustApply(v1)
	d.until(v1, "v1", settled("v1"))
	first := d.pods()

	clusters := &Clusters{WrapTransport: func(next http.RoundTripper) http.RoundTripper { return otherBuild{next} }}
	t.Cleanup(clusters.Close)
	upgraded, err := New(d.def, clusters)
	require.NoError(t, err)
	d.Runtime = upgraded
	d.until(v1, "the other build", settled("v1"))
	require.Empty(t, d.planned(v1))
	require.Equal(t, []string{"unchanged 5 objects"}, d.mustApply(v1))
	v2 := d.movable("v2", "web:1")
	d.mustApply(v2)
	d.until(v2, "v2 by the other build", settled("v2"))
	require.Equal(t, first, d.pods())
	for kind, name := range map[string]string{"Deployment": "web", "StatefulSet": "db", "DaemonSet": "agent"} {
		for _, entry := range d.liveWorkload(kind, name).GetManagedFields() {
			require.Contains(t, []string{FieldManager, "kube-controller-manager"}, entry.Manager, "%s %s", kind, name)
		}
	}
}

// What Converge writes in pod templates is the same in every release: another value replaces the pods of every workload at an upgrade. If this
// test fails, change the code, not the test.
func TestMarksAreFrozen_H1(t *testing.T) {
	d := &testCluster{TB: t, namespace: "shop"}
	in := d.instance("v1", deploymentYAML("web", "web:1", usesSettings+", resources: {limits: {cpu: 1.5, memory: 128Mi}}, ports: [{containerPort: 80}]"), configOf("settings", "a"))
	var objects []declared
	for _, raw := range in.Payload.Kubernetes.Objects {
		o, err := parse(raw)
		require.NoError(t, err)
		o.SetNamespace("shop")
		objects = append(objects, o)
	}
	configs := configsOf(objects)
	require.NoError(t, objects[0].finish(in, configs))
	metadata := nestedMap(objects[0].Object, "spec", "template", "metadata")
	require.Equal(t, map[string]any{
		"annotations": map[string]any{"converge/template": "5cba516e5aa45a0d"},
		"labels": map[string]any{
			"app": "web", "applyset.kubernetes.io/part-of": "applyset-CmsBUUiV9LKyVU5rOjLdN6YlKd99IQHty-dKoiTL9Z0-v1",
			"converge/application": "shop", "converge/channel": "prod", "converge/instance": "main", "converge/service": "web",
		},
	}, metadata)
	require.Equal(t, "converge", FieldManager)
}
