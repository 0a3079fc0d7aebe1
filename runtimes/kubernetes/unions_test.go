package kubernetes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/entities"
)

// A member of a union replaces another one of which only the server's defaults are left, or which an earlier version declared with the
// server's defaults below it. A null and the absence of a field mean the same.
func TestAMemberOfAUnionReplacesDefaultsOfAnother(t *testing.T) {
	pod := func(part string) string {
		return workloadWith("Deployment", "replicas: 1", `containers: [{name: web, image: "web:1", `+part+`}]`)
	}
	volume := func(source string) string {
		return workloadWith("Deployment", "replicas: 1", oneContainer+`, volumes: [{name: v, `+source+`}]`)
	}
	service := func(part string) string {
		return "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}], " + part + "}}"
	}
	rows := map[string]struct {
		first, then, took string
		gone              path
	}{
		"Recreate": {
			workloadWith("Deployment", "replicas: 1", oneContainer), workloadWith("Deployment", "strategy: {type: Recreate}", oneContainer),
			"took out spec.strategy.rollingUpdate of Deployment/web, a default of the server: the server refuses the declaration together with it",
			path{{field: "spec"}, {field: "strategy"}, {field: "rollingUpdate"}},
		},
		"Recreate, with a null": {
			workloadWith("Deployment", "replicas: 1", oneContainer), workloadWith("Deployment", "strategy: {type: Recreate, rollingUpdate: null}", oneContainer),
			"took out spec.strategy.rollingUpdate",
			path{{field: "spec"}, {field: "strategy"}, {field: "rollingUpdate"}},
		},
		"Recreate, with consent to recreate": {
			workloadWith("Deployment", "replicas: 1", oneContainer),
			strings.Replace(workloadWith("Deployment", "strategy: {type: Recreate}", oneContainer), "{name: web}", `{name: web, annotations: {converge/recreate: "true"}}`, 1),
			"took out spec.strategy.rollingUpdate",
			path{{field: "spec"}, {field: "strategy"}, {field: "rollingUpdate"}},
		},
		"OnDelete of a StatefulSet": {
			workloadWith("StatefulSet", "serviceName: web", oneContainer), workloadWith("StatefulSet", "serviceName: web, updateStrategy: {type: OnDelete}", oneContainer),
			"",
			path{{field: "spec"}, {field: "updateStrategy"}, {field: "rollingUpdate"}},
		},
		"OnDelete of a DaemonSet": {
			workloadWith("DaemonSet", "minReadySeconds: 0", oneContainer), workloadWith("DaemonSet", "updateStrategy: {type: OnDelete}", oneContainer),
			"", nil,
		},
		"the handler of a probe": {
			pod("readinessProbe: {httpGet: {port: 80}}"), pod("readinessProbe: {tcpSocket: {port: 80}}"), "", nil,
		},
		"the source of a variable": {
			pod("env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]"), pod("env: [{name: A, value: x}]"), "", nil,
		},
		"the source of a volume": {volume("configMap: {name: c, optional: true}"), volume("emptyDir: {}"), "", nil},
		"the affinity of sessions": {
			service("sessionAffinity: ClientIP"), service("sessionAffinity: None"), "", path{{field: "spec"}, {field: "sessionAffinityConfig"}},
		},
		"the type of a Service": {service("type: LoadBalancer"), service("type: ClusterIP"), "", nil},
		"a Service without an address": {
			service("type: ClusterIP"), "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: ExternalName, externalName: web.dev}}",
			"",
			path{{field: "spec"}, {field: "clusterIP"}},
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			d := newTestCluster(t).recording()
			d.mustApply(d.instance("v1", row.first))
			_, before := d.objectOf(row.first)
			v2 := d.instance("v2", row.then)
			plan, err := d.Plan(t.Context(), v2)
			require.NoError(t, err)
			require.Len(t, plan, 1)
			require.Empty(t, plan[0].Conflicts)
			require.Contains(t, strings.Join(d.mustApply(v2), "\n"), row.took)
			_, after := d.objectOf(row.then)
			require.Equal(t, before.GetUID(), after.GetUID(), "it is not recreated")
			if row.gone != nil {
				require.Nil(t, row.gone.get(after.Object))
			}
			require.NotContains(t, d.mustApply(v2)[0], "took out", "once")
			d.until(v2, "no drift", func(o []entities.Object) bool { return !drifted(o) && o[0].Versions != nil })
			d.mustApply(d.instance("v3", row.first)) // and back
			_, back := d.objectOf(row.first)
			old, _, _ := unstructured.NestedMap(before.Object, "spec", "strategy")
			again, _, _ := unstructured.NestedMap(back.Object, "spec", "strategy")
			require.Equal(t, old, again)
		})
	}
}
