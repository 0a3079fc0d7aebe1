package kubernetes_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
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
	c := newServer(t, kubetest.Start(t))
	service := func(ports string) string {
		return "{apiVersion: v1, kind: Service, metadata: {name: schema}, spec: {ports: [" + ports + "]}}"
	}
	for object, valid := range map[string]bool{
		pod(`env: [{name: A, value: 10}]`, ""): false, pod(`env: [{name: A, value: "10"}]`, ""): true,
		pod(`args: [1]`, ""): false, pod(`args: ["1"]`, ""): true,
		pod(`stdin: "yes"`, ""): false, pod(`stdin: yes`, ""): true,
		pod(`ports: [{containerPort: 80}, {containerPort: 80, protocol: TCP}]`, ""):                                                false,
		pod(`ports: [{containerPort: 80}, {containerPort: 80, protocol: UDP}]`, ""):                                                true,
		pod(`ports: [{containerPort: "80"}]`, ""):                                                                                  false,
		pod(`volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /a}]`, ""):                                              false,
		pod(`livenessProbe: {httpGet: {port: web}}, resources: {limits: {cpu: 1}}`, ""):                                            true,
		pod("", "imagePullSecrets: [{name: r}, {name: r}], "):                                                                      false,
		pod("", "imagePullSecrets: [{name: r}, {name: s}], "):                                                                      true,
		pod("", "hostAliases: [{ip: 10.0.0.1}, {ip: 10.0.0.1}], "):                                                                 false,
		pod("", "tolerations: [{key: a}, {key: a}], nodeSelector: null, "):                                                         true,
		pod("", "nodeSelector: {disk: y}, "):                                                                                       false,
		pod("", `terminationGracePeriodSeconds: "30", `):                                                                           false,
		service(`{name: a, port: 80}, {name: b, port: 80, protocol: TCP}`):                                                         false,
		service(`{name: a, port: 80}, {name: b, port: 80, protocol: UDP}`):                                                         true,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: schema}, data: {a: 1}}":                                                false,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: schema}, data: {a: '1'}}":                                              true,
		"{apiVersion: v1, kind: Secret, metadata: {name: schema}, stringData: {a: true}}":                                          false,
		"{apiVersion: v1, kind: Secret, metadata: {name: schema}, stringData: {a: 'n'}}":                                           true,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: schema}, data: [a]}":                                                   false,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: schema}, immutable: 'true'}":                                           false,
		"{apiVersion: v1, kind: ResourceQuota, metadata: {name: schema}, spec: {hard: {requests.storage: 9007199254740993}}}":      true,
		pod(`imagePullPolcy: Always`, ""):                                                                                          false,
		pod("", "schedulingGates: [], automountToken: false, "):                                                                    false,
		pod(`ports: [{containerPort: 80, name: a-port-name-too-long}]`, ""):                                                        false,
		pod(`ports: [{containerPort: 80, name: http-metrics-15}]`, ""):                                                             true,
		pod(`ports: [{containerPort: 80, name: "81"}]`, ""):                                                                        false,
		pod(`ports: [{containerPort: 80, name: a--b}]`, ""):                                                                        false,
		pod(`livenessProbe: {httpGet: {port: "8080"}}`, ""):                                                                        false,
		pod("", "volumes: [{name: a_b, emptyDir: {}}], "):                                                                          false,
		pod("", "nodeSelector: {disk: a b}, "):                                                                                     false,
		pod("", "hostname: Web, "):                                                                                                 false,
		service(`{name: HTTP, port: 80}`):                                                                                          false,
		service(`{name: http, port: 80, targetPort: a-port-name-too-long}`):                                                        false,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: schema, labels: {a: -b}}}":                                             false,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: schema, labels: {shop.dev/a: b}, annotations: {Shop.dev/a: b}}}":       true,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: schema, labels: {a/b/c: d}}}":                                          false,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: schema, clusterName: a}}":                                              false,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: schema}, data: {a/b: c}}":                                              false,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: schema}, data: {a_b.C-d: c}}":                                          true,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: schema}, text: {a: b}}":                                                false,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: Schema}}":                                                              false,
		"{apiVersion: v1, kind: Service, metadata: {name: " + strings.Repeat("a", 64) + "}, spec: {ports: [{port: 80}]}}":          false,
		"{apiVersion: batch/v1, kind: CronJob, metadata: {name: " + strings.Repeat("a", 53) + "}, " + cronSpec + "}":               false,
		"{apiVersion: batch/v1, kind: CronJob, metadata: {name: " + strings.Repeat("a", 52) + "}, " + cronSpec + "}":               true,
		"{apiVersion: batch/v1, kind: Job, metadata: {name: " + strings.Repeat("a", 64) + "}, " + jobSpec + "}":                    false,
		"{apiVersion: batch/v1, kind: Job, metadata: {name: " + strings.Repeat("a", 63) + "}, " + jobSpec + "}":                    true,
		"{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: schema}, " + ingressSpec("a-port-name-too-long") + "}": false,
		"{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: schema}, " + ingressSpec("http") + "}":                 true,
		"{apiVersion: policy/v1beta1, kind: PodDisruptionBudget, metadata: {name: schema}, spec: {minAvailable: 1}}":               false,
		"{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: schema}, spec: {minAvailable: 1}}":                    true,
		"{apiVersion: v1, kind: Pood, metadata: {name: schema}}":                                                                   false,
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: 'a:B'}, rules: []}":                               true,
	} {
		compareWithServer(t, c, object, valid)
	}
}

const (
	jobTemplate = "template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}"
	jobSpec     = "spec: {" + jobTemplate + "}"
	cronSpec    = "spec: {schedule: '* * * * *', jobTemplate: {" + jobSpec + "}}"
)

func ingressSpec(port string) string {
	return "spec: {defaultBackend: {service: {name: web, port: {name: " + port + "}}}}"
}

// compareWithServer checks that validate and the API server accept an object, or that both refuse it. Others are objects of the same
// service.
func compareWithServer(t *testing.T, c server, object string, valid bool, others ...string) {
	t.Helper()
	_, err := intenttest.Load(onKubernetes, "a.yaml", strings.Join(append(others, object), "\n---\n"))
	answer := c.dryRun(t, object)
	if valid {
		assert.NoError(t, err, object)
		assert.NoError(t, answer, object)
		return
	}
	assert.Error(t, err, object)
	assert.Error(t, answer, object)
}

// server applies objects to a namespace of a cluster.
type server struct {
	*dynamic.DynamicClient
	mapper    meta.RESTMapper
	namespace string
}

func newServer(t *testing.T, c *kubetest.Cluster) server {
	client, err := dynamic.NewForConfig(c.Config)
	require.NoError(t, err)
	groups, err := restmapper.GetAPIGroupResources(c.Client.Discovery())
	require.NoError(t, err)
	return server{client, restmapper.NewDiscoveryRESTMapper(groups), c.Namespace(t)}
}

// dryRun returns the server's answer to a server-side apply of an object that changes nothing.
func (s server) dryRun(t *testing.T, text string) error { return s.apply(t, text, metav1.DryRunAll) }

// apply applies an object to its namespace, and otherwise to the server's.
func (s server) apply(t *testing.T, text string, dryRun ...string) error {
	o := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	require.NoError(t, o.UnmarshalJSON(data))
	kind := o.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	var resource dynamic.ResourceInterface = s.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = s.Resource(mapping.Resource).Namespace(cmp.Or(o.GetNamespace(), s.namespace))
	}
	_, err = resource.Patch(t.Context(), o.GetName(), types.ApplyPatchType, data,
		metav1.PatchOptions{FieldManager: "schema", DryRun: dryRun, FieldValidation: metav1.FieldValidationStrict})
	return err
}

// widgets is a CustomResourceDefinition.
const widgets = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.schema.shop.dev}, spec: {
group: schema.shop.dev, scope: Namespaced, names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList},
versions: [{name: v1alpha1, served: false, storage: false, schema: {openAPIV3Schema: {type: object}}}, {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {
type: object, required: [spec], properties: {spec: {type: object, required: [size, mode], properties: {
size: {type: integer}, mode: {type: string, default: fast, enum: [fast, slow]}, level: {type: integer, enum: [1, 2]}, 'on': {type: boolean},
port: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}, free: {x-kubernetes-preserve-unknown-fields: true},
half: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {name: {type: string}}}, labels: {type: object, additionalProperties: {type: string}},
set: {type: array, x-kubernetes-list-type: set, items: {type: string}}, part: {type: object, properties: {a: {type: string}}},
template: {type: object, x-kubernetes-embedded-resource: true, properties: {spec: {type: object, properties: {a: {type: string}}}}},
rules: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [host, protocol], items: {
type: object, required: [host, protocol], properties: {host: {type: string}, protocol: {type: string, default: TCP}, weight: {type: number}}}}}}}}}}]}}`

// What validate refuses by the CustomResourceDefinition of the payload, the API server refuses, too.
func TestValidateRefusesCustomObjectsAsTheServerDoes(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t)
	c := newServer(t, cluster)
	definition := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(widgets))
	require.NoError(t, err)
	require.NoError(t, definition.UnmarshalJSON(data))
	resource := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	_, err = c.Resource(resource).Create(t.Context(), definition, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = c.Resource(resource).Delete(context.Background(), definition.GetName(), metav1.DeleteOptions{})
	})
	widget := func(spec string) string {
		return "{apiVersion: schema.shop.dev/v1, kind: Widget, metadata: {name: schema}, spec: {" + spec + "}}"
	}
	kubetest.WaitFor(t, time.Minute, func() (bool, string) {
		c = newServer(t, cluster)
		err := c.dryRun(t, widget("size: 1"))
		return err == nil, fmt.Sprint(err)
	})
	for object, valid := range map[string]bool{
		widget(`size: 1, mode: slow, level: 2, "on": true, port: 80, free: {a: [1]}, half: {name: a, b: 1}, labels: {a: b}, set: [a, b]`):                                  true,
		widget(`size: 1, port: http, rules: [{host: a}, {host: a, protocol: UDP, weight: 1.5}], template: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {a: b}}`): true,
		widget(`size: "1"`):                                                        false,
		widget(`mode: slow`):                                                       false,
		widget(`size: 1, mode: fsat`):                                              false,
		widget(`size: 1, level: 3`):                                                false,
		widget(`size: 1, "on": "true"`):                                            false,
		widget(`size: 1, port: [80]`):                                              false,
		widget(`size: 1, half: {name: 1}`):                                         false,
		widget(`size: 1, labels: {a: 1}`):                                          false,
		widget(`size: 1, set: [a, a]`):                                             false,
		widget(`size: 1, sice: 1`):                                                 false,
		widget(`size: 1, part: {b: 1}`):                                            false,
		widget(`size: 1, template: {kind: Pod, apiVersion: v1, other: 1}`):         false,
		widget(`size: 1, rules: [{host: a}, {host: a, protocol: TCP}]`):            false,
		widget(`size: 1, rules: [{weight: 1}]`):                                    false,
		"{apiVersion: schema.shop.dev/v1, kind: Widget, metadata: {name: schema}}": false,
		"{apiVersion: schema.shop.dev/v1, kind: Widget, metadata: {name: schema}, spec: {size: 1}, replicas: 1}": false,
		"{apiVersion: schema.shop.dev/v1, kind: Widget, metadata: {name: schema, owner: a}, spec: {size: 1}}":    false,
		"{apiVersion: schema.shop.dev/v1, kind: Widget, metadata: {name: Schema}, spec: {size: 1}}":              false,
		"{apiVersion: schema.shop.dev/v1alpha1, kind: Widget, metadata: {name: schema}, spec: {size: 1}}":        false,
	} {
		compareWithServer(t, c, object, valid, widgets)
	}
}
