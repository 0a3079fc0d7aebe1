package kubernetes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// object returns the live object that a text declares.
func (d *recordingCluster) objectOf(text string) (at resourceAt, live *unstructured.Unstructured) {
	d.Helper()
	o, err := parse(d.instance("", text).Payload.Kubernetes.Objects[0])
	require.NoError(d, err)
	r, err := d.cluster.resource(d.Context(), o.GroupVersionKind())
	require.NoError(d, err)
	at = resourceAt{r, o.GetName()}
	namespace := ""
	if r.namespaced {
		namespace = d.namespace
	}
	live, err = d.admin.resourceClient(r, namespace).Get(d.Context(), o.GetName(), metav1.GetOptions{})
	require.NoError(d, err)
	return at, live
}

type resourceAt struct {
	resource
	name string
}

// editAs changes a live object by a JSON patch, as a person does.
func (d *recordingCluster) editAs(tool, text, patch string) {
	d.Helper()
	at, live := d.objectOf(text)
	_, err := d.admin.resourceClient(at.resource, live.GetNamespace()).Patch(d.Context(), at.name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{FieldManager: tool})
	require.NoError(d, err)
}

func drifted(objects []entities.Object) bool {
	for _, o := range objects {
		for _, v := range o.Versions {
			if v.Drifted {
				return true
			}
		}
	}
	return false
}

func workloadWith(kind, spec, pod string) string {
	return `{apiVersion: apps/v1, kind: ` + kind + `, metadata: {name: web}, spec: {` + spec + `, selector: {matchLabels: {app: web}},
	  template: {metadata: {labels: {app: web}}, spec: {` + pod + `}}}}`
}

const oneContainer = `containers: [{name: web, image: "web:1"}]`

// An edit that the server cannot merge with the declaration is drift: it is reported with its author, and put back. The fields of others
// that stand against the declaration go, and no other additions. The next release succeeds too.
func TestAnEditThatCannotBeMergedIsPutBack_A12(t *testing.T) {
	named := "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}}"
	env := workloadWith("Deployment", "replicas: 1", `containers: [{name: web, image: "web:1", env: [{name: MODE, value: safe}]}]`)
	probe := workloadWith("Deployment", "replicas: 1", `volumes: [{name: conf, configMap: {name: conf, optional: true}}],
	  containers: [{name: web, image: "web:1", volumeMounts: [{name: conf, mountPath: /conf}], livenessProbe: {httpGet: {path: /, port: 80}}, lifecycle: {preStop: {exec: {command: [sleep, "1"]}}}}]`)
	ingress := `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web}, spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}}`
	rows := map[string]struct{ object, edit, drift, took string }{
		"the port of a Service": {
			named, `[{"op": "replace", "path": "/spec/ports/0/port", "value": 83}]`,
			"spec.ports[port=80] is missing, declared", "took out spec.ports[port=83,protocol=TCP] of Service/web, written by kubectl-edit",
		},
		"the port of a Service without names": {
			strings.Replace(named, "name: http, ", "", 1), `[{"op": "replace", "path": "/spec/ports/0/port", "value": 83}]`,
			"spec.ports[port=80] is missing, declared", "took out spec.ports[port=83,protocol=TCP] of Service/web, written by kubectl-edit",
		},
		"a variable with a source": {
			env, `[{"op": "replace", "path": "/spec/template/spec/containers/0/env/0", "value": {"name": "MODE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}}]`,
			`spec.template.spec.containers[name=web].env[name=MODE].value is missing, declared "safe"`,
			"took out spec.template.spec.containers[name=web].env[name=MODE].valueFrom of Deployment/web, written by kubectl-edit",
		},
		"the strategy": {
			workloadWith("Deployment", "strategy: {type: Recreate}", oneContainer), `[{"op": "replace", "path": "/spec/strategy", "value": {"type": "RollingUpdate"}}]`,
			`spec.strategy.type "RollingUpdate", declared "Recreate" (written by kubectl-edit)`, "took out spec.strategy.rollingUpdate of Deployment/web, written by kubectl-edit",
		},
		"a probe": {
			probe, `[{"op": "replace", "path": "/spec/template/spec/containers/0/livenessProbe", "value": {"tcpSocket": {"port": 80}}}]`,
			`livenessProbe.httpGet is missing, declared`, "livenessProbe.tcpSocket of Deployment/web, written by kubectl-edit",
		},
		"a handler": {
			probe, `[{"op": "replace", "path": "/spec/template/spec/containers/0/lifecycle/preStop", "value": {"httpGet": {"port": 80}}}]`,
			`lifecycle.preStop.exec is missing, declared`, "lifecycle.preStop.httpGet of Deployment/web, written by kubectl-edit",
		},
		"a volume": {
			probe, `[{"op": "replace", "path": "/spec/template/spec/volumes/0", "value": {"name": "conf", "emptyDir": {}}}]`,
			`spec.template.spec.volumes[name=conf].configMap is missing, declared`, "took out spec.template.spec.volumes[name=conf].emptyDir of Deployment/web, written by kubectl-edit",
		},
		"the strategy of a StatefulSet": {
			workloadWith("StatefulSet", "serviceName: web, updateStrategy: {type: OnDelete}", oneContainer),
			`[{"op": "replace", "path": "/spec/updateStrategy", "value": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}}]`,
			`spec.updateStrategy.type "RollingUpdate", declared "OnDelete" (written by kubectl-edit)`, "took out spec.updateStrategy.rollingUpdate of StatefulSet/web, written by kubectl-edit",
		},
		"a budget": {
			"{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}}",
			`[{"op": "remove", "path": "/spec/minAvailable"}, {"op": "add", "path": "/spec/maxUnavailable", "value": 1}]`,
			"spec.minAvailable is missing, declared 1", "took out spec.maxUnavailable of PodDisruptionBudget/web, written by kubectl-edit",
		},
		"a backend": {
			ingress, `[{"op": "replace", "path": "/spec/defaultBackend", "value": {"resource": {"apiGroup": "x.dev", "kind": "Bucket", "name": "b"}}}]`,
			"spec.defaultBackend.service is missing, declared", "took out spec.defaultBackend.resource of Ingress/web, written by kubectl-edit",
		},
		"the data of a ConfigMap": {
			config, `[{"op": "remove", "path": "/data"}, {"op": "add", "path": "/binaryData", "value": {"a": "Yg=="}}]`,
			`is missing, declared`, "took out binaryData of ConfigMap/settings, written by kubectl-edit",
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			d := newTestCluster(t).recording()
			v1 := d.instance("v1", row.object)
			d.mustApply(v1)
			d.until(v1, "v1", func(o []entities.Object) bool { return !drifted(o) && len(o[0].Versions) == 1 })
			_, before := d.objectOf(row.object)
			d.editAs("mesh", row.object, `[{"op": "add", "path": "/metadata/annotations/mesh", "value": "theirs"}]`)
			d.editAs("kubectl-edit", row.object, row.edit)
			seen := d.until(v1, "drift", drifted)
			require.Contains(t, seen[0].Message, row.drift)
			require.False(t, seen[0].AsDeclared)
			plan, err := d.Plan(t.Context(), v1)
			require.NoError(t, err)
			require.Len(t, plan, 1)
			require.Equal(t, runtimes.ActionUpdate, plan[0].Action, plan[0].Message)
			require.Contains(t, plan[0].Message, strings.TrimPrefix(strings.Split(row.took, " of ")[0], "took out "))

			require.Contains(t, strings.Join(d.mustApply(v1), "\n"), row.took)
			_, after := d.objectOf(row.object)
			require.Empty(t, compare(before, after, path{{field: "metadata"}}), "it is what it was")
			require.Equal(t, "theirs", after.GetAnnotations()["mesh"], "other additions stay")
			d.until(v1, "no drift", func(o []entities.Object) bool { return !drifted(o) })

			d.editAs("kubectl-edit", row.object, row.edit)
			d.mustApply(d.instance("v2", row.object))
			_, after = d.objectOf(row.object)
			require.Empty(t, compare(before, after, path{{field: "metadata"}}), "the next release repairs too")
		})
	}
}

// What is declared later is ours alone: the repair leaves no second owner that would keep a field for ever.
func TestARepairKeepsNoFieldForEver(t *testing.T) {
	service := func(port string) string {
		return "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{name: http, port: " + port + "}]}}"
	}
	d := newTestCluster(t).recording()
	d.mustApply(d.instance("v1", service("80")))
	d.editAs("kubectl-edit", service("80"), `[{"op": "replace", "path": "/spec/ports/0/port", "value": 83}]`)
	d.mustApply(d.instance("v1", service("80")))
	d.mustApply(d.instance("v2", service("81")))
	_, live := d.objectOf(service("81"))
	ports, _, _ := unstructured.NestedSlice(live.Object, "spec", "ports")
	require.Len(t, ports, 1)
	require.EqualValues(t, 81, ports[0].(map[string]any)["port"])
}

// What another tool declares is not taken out: both would write it for ever. The refusal names it.
func TestWhatAnotherToolDeclaresIsNotTakenOut_D11(t *testing.T) {
	object := workloadWith("Deployment", "replicas: 1", `containers: [{name: web, image: "web:1", env: [{name: MODE, value: safe}]}]`)
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", object)
	d.mustApply(v1)
	d.editAs("kubectl-edit", object, `[{"op": "remove", "path": "/spec/template/spec/containers/0/env/0/value"}]`)
	d.applyAs("flux", "Deployment", "web", `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: {containers: [{name: web, env: [{name: MODE, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]}}}}`)
	d.waitWatchedAs("Deployment", "web")
	text := d.mustRefuse(d.instance("v2", object), true)
	require.Contains(t, text, "may not be specified when `value` is not empty")
	require.Contains(t, text, "spec.template.spec.containers[name=web].env[name=MODE].valueFrom belongs to flux, which declares it")
	_, live := d.objectOf(object)
	require.Equal(t, v1.FullVersion, live.GetAnnotations()[AnnotationVersion])
}

// Under foreign: remove, a repair that takes fields out removes the additions of others too.
func TestForeignFieldsGoWithAnEditThatCannotBeMerged(t *testing.T) {
	object := workloadWith("Deployment", "replicas: 1", `containers: [{name: web, image: "web:1", env: [{name: MODE, value: safe}]}]`)
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", object)
	v1.Payload.Kubernetes.RemoveForeign = true
	d.mustApply(v1)
	d.editAs("kubectl-edit", object, `[{"op": "replace", "path": "/spec/template/spec/containers/0/env/0", "value": {"name": "MODE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}},
	  {"op": "add", "path": "/spec/template/spec/hostNetwork", "value": true}]`)
	d.until(v1, "drift", drifted)
	lines := strings.Join(d.mustApply(v1), "\n")
	require.Contains(t, lines, "took out spec.template.spec.containers[name=web].env[name=MODE].valueFrom of Deployment/web")
	require.Contains(t, lines, "removed spec.template.spec.hostNetwork of Deployment/web, which kubectl-edit had added")
	_, live := d.objectOf(object)
	require.Nil(t, nestedMap(live.Object, "spec", "template", "spec")["hostNetwork"])
	d.until(v1, "no drift", func(o []entities.Object) bool { return !drifted(o) })
}

// An element that was added a second time to a list is drift, and goes.
func TestADuplicatedVariableIsPutBack_A12(t *testing.T) {
	object := workloadWith("Deployment", "replicas: 1", `containers: [{name: web, image: "web:1", env: [{name: MODE, value: safe}]}]`)
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", object)
	d.mustApply(v1)
	_, before := d.objectOf(object)
	d.editAs("kubectl-edit", object, `[{"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": {"name": "MODE", "value": "unsafe"}}]`)
	d.until(v1, "drift", drifted)
	d.mustApply(v1)
	_, after := d.objectOf(object)
	require.Empty(t, compare(before, after, path{{field: "metadata"}}))
	d.until(v1, "no drift", func(o []entities.Object) bool { return !drifted(o) })
}

// The fields of a tool from which an object is adopted may be taken out too.
func TestAdoptionTakesOutWhatDoesNotFit_D11(t *testing.T) {
	theirs := workloadWith("Deployment", "replicas: 1, strategy: {rollingUpdate: {maxSurge: 2}}", `containers: [{name: web, image: "web:1", env: [{name: MODE, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]`)
	ours := workloadWith("Deployment", "strategy: {type: Recreate}", `containers: [{name: web, image: "web:1", env: [{name: MODE, value: safe}]}]`)
	d := newTestCluster(t).recording()
	d.applyAs("flux", "Deployment", "web", theirs)
	v1 := withAdopt(d.instance("v1", ours))
	lines := strings.Join(d.mustApply(v1), "\n")
	require.Contains(t, lines, "took out spec.strategy.rollingUpdate of Deployment/web, written by flux")
	require.Contains(t, lines, "adopted Deployment/web from flux")
	_, live := d.objectOf(ours)
	require.Equal(t, map[string]any{"type": "Recreate"}, nestedMap(live.Object, "spec", "strategy"))
	d.until(v1, "no drift", func(o []entities.Object) bool { return !drifted(o) && len(o[0].Versions) > 0 })
	require.Equal(t, []string{"unchanged 1 object"}, d.mustApply(v1))
}

// A field that another tool declares somewhere in the object is no reason to ignore a consent to recreate it.
func TestConsentIsHeededThoughAnotherToolDeclaresFields(t *testing.T) {
	object := func(label string) string {
		return `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, annotations: {converge/recreate: "true"}}, spec: {selector: {matchLabels: {a: ` + label + `}},
		  template: {metadata: {labels: {a: ` + label + `}}, spec: {containers: [{name: web, image: "web:1"}]}}}}`
	}
	d := newTestCluster(t).recording()
	d.mustApply(d.instance("v1", object("a")))
	d.applyAs("flux", "Deployment", "web", `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {minReadySeconds: 1, template: {metadata: {annotations: {flux: x}}}}}`)
	d.waitWatchedAs("Deployment", "web")
	require.Equal(t, []string{"recreated Deployment/web"}, d.mustApply(d.instance("v2", object("b"))))
}
