package kubernetes

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

func TestCompareNamesFieldsByPath(t *testing.T) {
	live := object(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, uid: a, resourceVersion: "1", generation: 1, annotations: {converge/version: v1, gone: x}, managedFields: [{manager: kubectl}]}
spec:
  replicas: 5
  template:
    spec:
      containers:
      - {name: side, image: side:1}
      - {name: web, image: web:1, command: [a, b], ports: [{containerPort: 80}], env: [{name: A, value: "1"}]}
      tolerations: [{effect: NoSchedule}]
status: {replicas: 5}
`)
	applied := object(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, uid: b, resourceVersion: "2", generation: 2, annotations: {converge/version: v2}}
spec:
  replicas: 2
  paused: true
  template:
    spec:
      containers:
      - {name: side, image: side:1}
      - {name: web, image: web:2, command: [a, c], ports: [{containerPort: 80, name: http}], env: [{name: B, value: "1"}, {name: A, value: "1"}]}
      - {name: more, image: more:1}
      tolerations: [{effect: NoExecute}]
status: {replicas: 2}
`)
	require.Equal(t, []runtimes.FieldChange{
		{Path: "metadata.annotations.gone", Old: `"x"`},
		{Path: "metadata.annotations[converge/version]", Old: `"v1"`, New: `"v2"`},
		{Path: "spec.paused", New: "true"},
		{Path: "spec.replicas", Old: "5", New: "2"},
		{Path: "spec.template.spec.containers[name=more]", New: `{"image":"more:1","name":"more"}`},
		{Path: "spec.template.spec.containers[name=web].command", Old: `["a","b"]`, New: `["a","c"]`},
		{Path: "spec.template.spec.containers[name=web].env[name=B]", New: `{"name":"B","value":"1"}`},
		{Path: "spec.template.spec.containers[name=web].image", Old: `"web:1"`, New: `"web:2"`},
		{Path: "spec.template.spec.containers[name=web].ports[containerPort=80].name", New: `"http"`},
		{Path: "spec.template.spec.tolerations[0].effect", Old: `"NoSchedule"`, New: `"NoExecute"`},
	}, compare(live, applied))
	require.Empty(t, compare(live, live.DeepCopy()))
}

func TestCompareReportsTheOrderWhereNothingElseDiffers(t *testing.T) {
	live := object(t, `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {initContainers: [{name: a}, {name: b}]}}`)
	applied := object(t, `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {initContainers: [{name: b}, {name: a}]}}`)
	require.Equal(t, []runtimes.FieldChange{{Path: "spec.initContainers.order", Old: `"a, b"`, New: `"b, a"`}}, compare(live, applied))
}

func TestCompareShowsNoSecret(t *testing.T) {
	live := object(t, `
apiVersion: v1
kind: Secret
metadata: {name: db, annotations: {kubectl.kubernetes.io/last-applied-configuration: hidden, a: seen}}
data: {password: aGlkZGVu, user: aGlkZGVu, gone: aGlkZGVu}
`)
	applied := object(t, `
apiVersion: v1
kind: Secret
metadata: {name: db, annotations: {a: shown}}
data: {password: aGlkZGVuMg==, user: aGlkZGVu, more: aGlkZGVu}
`)
	want := []runtimes.FieldChange{
		{Path: "data.gone", Old: "***"},
		{Path: "data.more", New: "***"},
		{Path: "data.password", Old: "***", New: "*** (changed)"},
		{Path: "metadata.annotations.a", Old: `"seen"`, New: `"shown"`},
		{Path: "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]", Old: "***"},
	}
	require.Equal(t, want, compare(live, applied))
	for _, pair := range [][2]*unstructured.Unstructured{{nil, applied}, {live, nil}, {object(t, "{apiVersion: v1, kind: Secret, metadata: {name: db}}"), live}} {
		require.NotContains(t, fmt.Sprint(compare(pair[0], pair[1])), "aGlkZGVu")
		require.NotContains(t, fmt.Sprint(compare(pair[0], pair[1])), "hidden")
	}
}

func TestCompareIsBounded(t *testing.T) {
	one, other := map[string]any{}, map[string]any{}
	for i := range 1000 {
		one[fmt.Sprint(i)], other[fmt.Sprint(i)] = "a", string(make([]byte, 10_000))
	}
	changes := compare(&unstructured.Unstructured{Object: map[string]any{"data": one}}, &unstructured.Unstructured{Object: map[string]any{"data": other}})
	require.Len(t, changes, maxDifferences)
	require.LessOrEqual(t, len(changes[0].New), maxValue)
}

func TestTheOtherWriterOfAFieldIsNamed(t *testing.T) {
	o := object(t, `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  managedFields:
  - {manager: converge, operation: Apply, time: "2026-01-01T00:00:03Z", fieldsV1: {"f:spec": {"f:replicas": {}}}}
  - {manager: old, operation: Update, time: "2026-01-01T00:00:01Z", fieldsV1: {"f:spec": {"f:replicas": {}}}}
  - {manager: kubectl, operation: Update, time: "2026-01-01T00:00:02Z", fieldsV1: {"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {'k:{"name":"web"}': {"f:image": {}, "f:command": {}}}}}}}}
`)
	at := func(parts ...part) path { return parts }
	container := at(part{field: "spec"}, part{field: "template"}, part{field: "spec"}, part{field: "containers"}, part{key: "name", value: "web"})
	require.Equal(t, "kubectl", lastWriter(o, at(part{field: "spec"}, part{field: "replicas"})))
	require.Equal(t, "kubectl", lastWriter(o, container.with(part{field: "image"})))
	require.Equal(t, "kubectl", lastWriter(o, container.with(part{field: "command"}).with(part{index: 1, isIndex: true})))
	require.Empty(t, lastWriter(o, container.with(part{field: "args"})))
	require.Empty(t, lastWriter(o, at(part{field: "spec"}, part{field: "paused"})))
}

func TestTheRevisionsOfControllersAreNoDifference(t *testing.T) {
	live := object(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}`)
	applied := object(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, annotations: {deployment.kubernetes.io/revision: "2"}}}`)
	require.Empty(t, compare(live, applied))
	require.Equal(t, contentOf(live, declared{}), contentOf(applied, declared{}))
	require.Equal(t, "2", applied.GetAnnotations()[annotationRevision], "the input is not changed")
}
