package kubernetes_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/converge-engine/converge/tests/intenttest"
	"github.com/converge-engine/converge/tests/kubetest"
)

// onKubernetes is a service of the objects in a.yaml.
const onKubernetes = `{apiVersion: converge/v1, kind: Application, name: shop, releaseChannels: [{name: prod, runtimes: [{name: eks, namespace: shop}]}]}
---
{apiVersion: converge/v1, kind: Runtime, name: eks, kubernetes: {}}
---
{apiVersion: converge/v1, kind: Service, name: web, kubernetes: {manifests: [a.yaml]}}
`

// pod is a Pod with a part of a container, and a part of its spec.
func pod(container, spec string) string {
	return "{apiVersion: v1, kind: Pod, metadata: {name: schema}, spec: {" + spec + "containers: [{name: web, image: web, " + container + "}]}}"
}

// What validate refuses by the schema of a built-in kind, the API server refuses, too; it accepts the neighbors of these values.
func TestValidateRefusesWhatTheServerRefuses(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	namespace := c.Namespace(t)
	service := func(ports string) string {
		return "{apiVersion: v1, kind: Service, metadata: {name: schema}, spec: {ports: [" + ports + "]}}"
	}
	for object, valid := range map[string]bool{
		pod(`env: [{name: A, value: 10}]`, ""): false, pod(`env: [{name: A, value: "10"}]`, ""): true,
		pod(`args: [1]`, ""): false, pod(`args: ["1"]`, ""): true,
		pod(`stdin: "yes"`, ""): false, pod(`stdin: yes`, ""): true,
		pod(`ports: [{containerPort: 80}, {containerPort: 80, protocol: TCP}]`, ""):                                           false,
		pod(`ports: [{containerPort: 80}, {containerPort: 80, protocol: UDP}]`, ""):                                           true,
		pod(`ports: [{containerPort: "80"}]`, ""):                                                                             false,
		pod(`volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /a}]`, ""):                                         false,
		pod(`livenessProbe: {httpGet: {port: web}}, resources: {limits: {cpu: 1}}`, ""):                                       true,
		pod("", "imagePullSecrets: [{name: r}, {name: r}], "):                                                                 false,
		pod("", "imagePullSecrets: [{name: r}, {name: s}], "):                                                                 true,
		pod("", "hostAliases: [{ip: 10.0.0.1}, {ip: 10.0.0.1}], "):                                                            false,
		pod("", "tolerations: [{key: a}, {key: a}], nodeSelector: null, "):                                                    true,
		pod("", "nodeSelector: {disk: y}, "):                                                                                  false,
		pod("", `terminationGracePeriodSeconds: "30", `):                                                                      false,
		service(`{name: a, port: 80}, {name: b, port: 80, protocol: TCP}`):                                                    false,
		service(`{name: a, port: 80}, {name: b, port: 80, protocol: UDP}`):                                                    true,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: schema}, data: {a: 1}}":                                           false,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: schema}, data: {a: '1'}}":                                         true,
		"{apiVersion: v1, kind: Secret, metadata: {name: schema}, stringData: {a: true}}":                                     false,
		"{apiVersion: v1, kind: Secret, metadata: {name: schema}, stringData: {a: 'n'}}":                                      true,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: schema}, data: [a]}":                                              false,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: schema}, immutable: 'true'}":                                      false,
		"{apiVersion: v1, kind: ResourceQuota, metadata: {name: schema}, spec: {hard: {requests.storage: 9007199254740993}}}": true,
	} {
		_, err := intenttest.Load(onKubernetes, "a.yaml", object)
		text, convert := yaml.YAMLToJSON([]byte(object))
		require.NoError(t, convert)
		kind := struct{ Kind string }{}
		require.NoError(t, yaml.Unmarshal(text, &kind))
		plural := map[string]string{"Pod": "pods", "Service": "services", "ConfigMap": "configmaps", "Secret": "secrets", "ResourceQuota": "resourcequotas"}[kind.Kind]
		answer := c.Client.CoreV1().RESTClient().Patch(types.ApplyPatchType).Namespace(namespace).Resource(plural).Name("schema").
			VersionedParams(&metav1.PatchOptions{FieldManager: "schema", DryRun: []string{metav1.DryRunAll}}, metav1.ParameterCodec).Body(text).Do(t.Context()).Error()
		if valid {
			assert.NoError(t, err, object)
			assert.NoError(t, answer, object)
			continue
		}
		assert.Error(t, err, object)
		assert.Error(t, answer, object)
	}
}
