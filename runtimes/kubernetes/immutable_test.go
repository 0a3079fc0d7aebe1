package kubernetes

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/runtimes"
)

// immutables are objects of which the server refuses a change of X, each in words of its own.
var immutables = map[string]struct{ object, from, to string }{
	"a Pod":            {`{apiVersion: v1, kind: Pod, metadata: {name: o, annotations: {A}}, spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: "web:1", env: [{name: V, value: X}]}]}}`, "a", "b"},
	"a PriorityClass":  {`{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: NS, annotations: {A}}, value: X}`, "1", "2"},
	"a StorageClass":   {`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: NS, annotations: {A}}, provisioner: example.com/none, parameters: {type: X}}`, "a", "b"},
	"an IngressClass":  {`{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: NS, annotations: {A}}, spec: {controller: example.com/X}}`, "a", "b"},
	"a RuntimeClass":   {`{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: NS, annotations: {A}}, handler: X}`, "a", "b"},
	"a CSIDriver":      {`{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: NS, annotations: {A}}, spec: {attachRequired: X}}`, "true", "false"},
	"an EndpointSlice": {`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: o, annotations: {A}}, addressType: X, endpoints: [], ports: []}`, "IPv4", "IPv6"},
	"a Deployment":     {`{apiVersion: apps/v1, kind: Deployment, metadata: {name: o, annotations: {A}}, spec: {selector: {matchLabels: {a: X}}, template: {metadata: {labels: {a: X}}, spec: {containers: [{name: c, image: web}]}}}}`, "a", "b"},
	"a StatefulSet":    {`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: o, annotations: {A}}, spec: {serviceName: X, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: web}]}}}}`, "a", "b"},
	"a DaemonSet":      {`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: o, annotations: {A}}, spec: {selector: {matchLabels: {a: X}}, template: {metadata: {labels: {a: X}}, spec: {containers: [{name: c, image: web}]}}}}`, "a", "b"},
	"a ReplicaSet":     {`{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: o, annotations: {A}}, spec: {selector: {matchLabels: {a: X}}, template: {metadata: {labels: {a: X}}, spec: {containers: [{name: c, image: web}]}}}}`, "a", "b"},
	"a Job":            {`{apiVersion: batch/v1, kind: Job, metadata: {name: o, annotations: {A}}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "x", command: [/bin/X]}]}}}}`, "true", "false"},
	"modes of a claim": {`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: o, annotations: {A}}, spec: {accessModes: [X], resources: {requests: {storage: 1Gi}}}}`, "ReadWriteOnce", "ReadOnlyMany"},
	"a claim shrinks":  {`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: o, annotations: {A}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: XGi}}}}`, "2", "1"},
	"a ConfigMap":      {`{apiVersion: v1, kind: ConfigMap, metadata: {name: o, annotations: {A}}, immutable: true, data: {a: X}}`, "a", "b"},
	"a Secret":         {`{apiVersion: v1, kind: Secret, metadata: {name: o, annotations: {A}}, immutable: true, stringData: {a: X}}`, "a", "b"},
	"type of a Secret": {`{apiVersion: v1, kind: Secret, metadata: {name: o, annotations: {A}}, type: X}`, "a", "b"},
	"a RoleBinding":    {`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: o, annotations: {A}}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: X}}`, "a", "b"},
	"an address":       {`{apiVersion: v1, kind: Service, metadata: {name: o, annotations: {A}}, spec: {X, ports: [{port: 80}]}}`, "sessionAffinity: None", "clusterIP: None"},
}

func (d *recordingCluster) immutable(version, object, x, annotation string) runtimes.Request {
	return d.instance(version, strings.NewReplacer("X", x, "NS", d.namespace, "{A}", "{"+annotation+"}").Replace(object))
}

const consent = `converge/recreate: "true"`

// Whatever the server's words for a field that cannot change: the refusal hints at the consent to recreate the object, and with consent
// the object is recreated.
func TestWhatCannotChangeIsRecreatedByConsent(t *testing.T) {
	for name, row := range immutables {
		t.Run(name, func(t *testing.T) {
			d := newTestCluster(t).recording()
			d.mustApply(d.immutable("v1", row.object, row.from, ""))
			text := strings.NewReplacer("X", row.from, "NS", d.namespace, "{A}", "{}").Replace(row.object)
			_, first := d.objectOf(text)
			d.wait("what controllers write first", func() bool {
				_, now := d.objectOf(text)
				return now.GetKind() != "PersistentVolumeClaim" || nestedMap(now.Object, "status")["phase"] == "Bound"
			}, func() any { return nil })
			refusal := d.mustRefuse(d.immutable("v2", row.object, row.to, ""), true)
			require.Contains(t, refusal, `set the annotation converge/recreate: "true" to have it deleted and recreated`)
			_, still := d.objectOf(text)
			require.Equal(t, first.GetUID(), still.GetUID())

			v2 := d.immutable("v2", row.object, row.to, consent)
			plan, err := d.Plan(t.Context(), v2)
			require.NoError(t, err)
			require.Len(t, plan, 1)
			require.Equal(t, runtimes.ActionRecreate, plan[0].Action, plan[0].Message)
			require.Equal(t, []string{"recreated " + displayName(first)}, d.mustApply(v2))
			_, second := d.objectOf(text)
			require.NotEqual(t, first.GetUID(), second.GetUID())
		})
	}
}

// Admission, not validation, refuses that a claim grows whose StorageClass does not allow it: the refusal has no causes. It is heeded in the
// same way, and retried without consent, since the StorageClass may change.
func TestAClaimThatCannotGrowIsRecreatedByConsent(t *testing.T) {
	d := newTestCluster(t).recording()
	claim := `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: o, annotations: {A}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: XGi}}}}`
	d.mustApply(d.immutable("v1", claim, "1", ""))
	text := strings.NewReplacer("X", "1", "{A}", "{}").Replace(claim)
	_, first := d.objectOf(text)
	d.wait("the claim to be bound", func() bool {
		_, now := d.objectOf(text)
		return nestedMap(now.Object, "status")["phase"] == "Bound"
	}, func() any { return nil })
	refusal := d.mustRefuse(d.immutable("v2", claim, "2", ""), false)
	require.Contains(t, refusal, "set allowVolumeExpansion: true on the StorageClass of the claim")
	require.Contains(t, refusal, `or set the annotation converge/recreate: "true" to have it deleted and recreated; that deletes its data`)
	plan := mustPlan(t, d, d.immutable("v2", claim, "2", consent))
	require.Len(t, plan, 1)
	require.Equal(t, runtimes.ActionRecreate, plan[0].Action, plan[0].Message)
	require.Equal(t, []string{"recreated PersistentVolumeClaim/o"}, d.mustApply(d.immutable("v2", claim, "2", consent)))
	_, second := d.objectOf(text)
	require.NotEqual(t, first.GetUID(), second.GetUID())

	class := `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: NS}, provisioner: example.com/none, allowVolumeExpansion: X}`
	other := strings.NewReplacer("name: o", "name: p", "spec: {", "spec: {storageClassName: NS, ").Replace(claim)
	parsed := func(text, x string) declared {
		o, err := parse(d.instance("", strings.NewReplacer("X", x, "NS", d.namespace, "{A}", "{}").Replace(text)).Payload.Kubernetes.Objects[0])
		require.NoError(t, err)
		return o
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "p", errors.New("in any words"))
	for expands, refused := range map[string]bool{"true": false, "false": true} {
		a := &apply{objects: []declared{parsed(class, expands)}}
		require.Equal(t, refused, a.isRefusedGrowth(&trial{declared: parsed(other, "2"), live: parsed(other, "1").Unstructured}, forbidden), "allowVolumeExpansion: %s in the same apply", expands)
	}
}

// A volume is planned like the others. Its deletion waits for a controller that the tests' cluster does not have.
func TestAPlanRecreatesAVolumeByConsent(t *testing.T) {
	d := newTestCluster(t).recording()
	volume := `{apiVersion: v1, kind: PersistentVolume, metadata: {name: NS, annotations: {A}}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: none, nfs: {server: X, path: /}}}`
	d.mustApply(d.immutable("v1", volume, "a", ""))
	require.Contains(t, d.mustRefuse(d.immutable("v2", volume, "b", ""), true), `set the annotation converge/recreate: "true"`)
	plan, err := d.Plan(t.Context(), d.immutable("v2", volume, "b", consent))
	require.NoError(t, err)
	require.Equal(t, []runtimes.Change{{Action: runtimes.ActionRecreate, Type: "PersistentVolume", Name: d.namespace}}, plan)
}

// A rule of a custom kind says in any words that a field cannot change.
func TestCustomRulesThatForbidAChangeAreHeeded(t *testing.T) {
	d := newTestCluster(t).recording()
	group := d.namespace + ".dev"
	definition := `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: gadgets.` + group + `}, spec: {group: ` + group + `,
	  names: {kind: Gadget, plural: gadgets}, scope: Namespaced, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {
	  size: {type: string, maxLength: 9, x-kubernetes-validations: [{rule: "self == oldSelf", message: "Value is immutable"}]},
	  color: {type: string, x-kubernetes-validations: [{rule: "self == oldSelf", message: "pick one, once"}]}}}}}}}]}}`
	gadget := func(size, color, annotation string) string {
		return `{apiVersion: ` + group + `/v1, kind: Gadget, metadata: {name: g, annotations: {` + annotation + `}}, spec: {size: ` + size + `, color: ` + color + `}}`
	}
	made, err := parse(d.instance("", definition).Payload.Kubernetes.Objects[0])
	require.NoError(t, err)
	d.createDefinition(made.Unstructured)
	d.mustApply(d.instance("v1", gadget("s", "red", "")))
	for _, changed := range [][2]string{{"m", "red"}, {"s", "blue"}} {
		require.Contains(t, d.mustRefuse(d.instance("v2", gadget(changed[0], changed[1], "")), true), `set the annotation converge/recreate: "true"`)
		require.Contains(t, d.mustApply(d.instance("v2", gadget(changed[0], changed[1], consent))), "recreated Gadget/g")
		d.mustApply(d.instance("v1", gadget("s", "red", consent)))
	}
	_, before := d.objectOf(gadget("s", "red", ""))
	text := d.mustRefuse(d.instance("v3", gadget("far-too-long", "red", consent)), true)
	require.Contains(t, text, "Too long")
	require.NotContains(t, text, "converge/recreate")
	_, after := d.objectOf(gadget("s", "red", ""))
	require.Equal(t, before.GetUID(), after.GetUID())
}

// A declaration that the server would not create either deletes nothing, with or without a field that cannot change.
func TestAnInvalidObjectIsNotRecreated(t *testing.T) {
	service := func(spec string) string {
		return `{apiVersion: v1, kind: Service, metadata: {name: o, annotations: {` + consent + `}}, spec: {` + spec + `}}`
	}
	deployment := func(label, replicas string) string {
		return `{apiVersion: apps/v1, kind: Deployment, metadata: {name: o, annotations: {` + consent + `}}, spec: {replicas: ` + replicas + `, selector: {matchLabels: {a: ` + label + `}},
		  template: {metadata: {labels: {a: ` + label + `}}, spec: {containers: [{name: c, image: web}]}}}}`
	}
	rows := map[string]struct{ from, to, says string }{
		"a value":                       {service("ports: [{port: 80}]"), service("ports: [{port: 700000}]"), "must be between 1 and 65535"},
		"a value, and an immutable one": {deployment("a", "1"), deployment("b", "-1"), "must be greater than or equal to 0"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			d := newTestCluster(t).recording()
			d.mustApply(d.instance("v1", row.from))
			_, before := d.objectOf(row.from)
			text := d.mustRefuse(d.instance("v2", row.to), true)
			require.Contains(t, text, row.says)
			require.NotContains(t, text, "set the annotation")
			_, after := d.objectOf(row.from)
			require.Equal(t, before.GetUID(), after.GetUID())
		})
	}
}
