package kubernetes

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// readOnlyCluster is a cluster where this worker may only read, and all requests are recorded.
type readOnlyCluster struct {
	*recordingCluster
	runtimes.Runtime
}

func newReadOnlyCluster(t *testing.T) *readOnlyCluster {
	t.Helper()
	d := newTestCluster(t, as("reader")).recording()
	d.grant("reader", d.namespace, rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}})
	def := d.def
	def.ReadOnly = true
	clusters := &Clusters{WrapTransport: func(next http.RoundTripper) http.RoundTripper { return recordingTransport{next, d} }}
	t.Cleanup(clusters.Close)
	made, err := Connect(def, clusters)
	require.NoError(t, err)
	return &readOnlyCluster{d, made}
}

// writtenAs creates an object with the field manager of a tool, by apply or, as Helm 3 does, by create.
func (c *readOnlyCluster) writtenAs(tool string, byApply bool, text string) {
	c.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(c, yaml.Unmarshal([]byte(text), &o.Object))
	r, err := c.cluster.resource(c.Context(), o.GroupVersionKind())
	require.NoError(c, err)
	at := c.admin.resourceClient(r, c.namespace)
	if byApply {
		_, err = at.Apply(c.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: tool})
	} else {
		_, err = at.Create(c.Context(), o, metav1.CreateOptions{FieldManager: tool})
	}
	require.NoError(c, err, text)
}

// requireOnlyReads requires that no recorded request could have written: dry runs neither.
func (c *readOnlyCluster) requireOnlyReads() {
	c.Helper()
	for _, r := range c.takeRequests() {
		require.True(c, strings.HasPrefix(r.text, "GET "), r.text)
	}
}

// notations is an object whose stored form differs from the written one: quantities, defaults within lists that are replaced as a whole,
// and empty values.
const notations = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: notations, labels: {}}
spec:
  replicas: 1
  selector: {matchLabels: {app: notations}}
  template:
    metadata: {labels: {app: notations}}
    spec:
      hostNetwork: false
      tolerations: [{key: dedicated, operator: Exists}]
      volumes: [{name: tmp, emptyDir: {sizeLimit: 1024Mi}}, {name: api, projected: {sources: [{downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}}]
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: notations}}}]
      containers:
      - name: web
        image: web:1
        args: []
        ports: [{containerPort: 80}, {containerPort: 81, name: admin}]
        env: [{name: EMPTY, value: ""}, {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
        readinessProbe: {httpGet: {path: /, port: 80}}
        resources: {requests: {cpu: 0.5, memory: 0.5Gi}, limits: {cpu: "1", memory: 1024Mi}}
`

const networkPolicy = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: rules}
spec:
  podSelector: {matchLabels: {app: notations}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {app: all}}}], ports: [{port: 80}]}]
`

const roleBinding = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: readers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: Group, name: readers, apiGroup: rbac.authorization.k8s.io}]
`

func everyKind(t *testing.T) []string {
	t.Helper()
	file, err := os.ReadFile("../../tests/kubernetes/testdata/every-kind.yaml")
	require.NoError(t, err)
	all := strings.Split(strings.ReplaceAll(string(file), "${{ version }}", "v1"), "\n---\n")
	return append(all, notations, networkPolicy, roleBinding)
}

// Where nothing may be written, objects of another tool are compared without the server: an object of every kind that is as declared has
// the version, whichever way it was written, and no request could have written anything.
func TestReadOnlyRecognisesEveryKind_A25(t *testing.T) {
	for name, byApply := range map[string]bool{"argocd-controller": true, "helm": false} {
		t.Run(name, func(t *testing.T) {
			c := newReadOnlyCluster(t)
			in := c.instance("v1", everyKind(t)...)
			for _, text := range everyKind(t) {
				c.writtenAs(name, byApply, text)
			}
			for _, o := range c.seen(in) {
				require.Len(t, o.Versions, 1, o)
				require.Equal(t, "v1", o.Versions[0].Version, o)
				require.False(t, o.Versions[0].Drifted, o)
			}
			changes, err := c.Runtime.(runtimes.Planner).Plan(t.Context(), in)
			require.NoError(t, err)
			require.Empty(t, changes)
			c.requireOnlyReads()
		})
	}
}

// seen observes once the server knows the rights of the reader.
func (c *readOnlyCluster) seen(in runtimes.Request) (objects []entities.Object) {
	c.Helper()
	var err error
	c.wait("the rights of the reader", func() bool {
		objects, err = c.Runtime.Observe(c.Context(), in)
		return !hasCode(err, runtimes.CodeForbidden)
	}, func() any { return err })
	require.NoError(c, err)
	return objects
}

// What differs is named, with the writer, and has no known version. The health is that of the object.
func TestReadOnlyNamesWhatDiffers_A25(t *testing.T) {
	c := newReadOnlyCluster(t)
	in := c.instance("v2", deploymentOf("web:2", 1, ""), configOf("settings", "two"), configOf("more", "one"))
	c.writtenAs("argocd-controller", true, deploymentOf("web:1", 1, ""))
	c.writtenAs("argocd-controller", true, configOf("settings", "one"))
	byName := map[string]entities.Object{}
	for _, o := range c.seen(in) {
		byName[o.Type+"/"+o.Name] = o
	}
	web := byName["Deployment/web"]
	require.Contains(t, web.Message, `image "web:1", declared "web:2" (written by argocd-controller)`)
	require.Empty(t, web.Versions[0].Version)
	require.Contains(t, byName["ConfigMap/settings"].Message, `data.a "one", declared "two"`)
	require.Equal(t, "does not exist", byName["ConfigMap/more"].Message)

	changes, err := c.Runtime.(runtimes.Planner).Plan(t.Context(), in)
	require.NoError(t, err)
	actions := map[string]runtimes.Change{}
	for _, change := range changes {
		actions[change.Type+"/"+change.Name] = change
	}
	require.Equal(t, runtimes.ActionUpdate, actions["Deployment/web"].Action)
	require.NotNil(t, actions["Deployment/web"].Replaces)
	require.Equal(t, runtimes.ActionCreate, actions["ConfigMap/more"].Action)
	require.Len(t, changes, 3)

	c.patchAs("argocd-controller", "ConfigMap", "settings", `{"data":{"a":"two"}}`)
	c.writtenAs("argocd-controller", true, configOf("more", "one"))
	c.patchTemplate("web:2")
	c.wait("v2 ready", func() bool {
		for _, o := range c.seen(in) {
			if o.Status != entities.ObjectSucceeded || len(o.Versions) != 1 || o.Versions[0].Version != "v2" {
				return false
			}
		}
		return true
	}, func() any { return c.seen(in) })
	c.requireOnlyReads()
}

func (c *readOnlyCluster) patchTemplate(image string) {
	c.Helper()
	c.patchStrategic("Deployment", "web", `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"`+image+`"}]}}}}`)
}

func (c *readOnlyCluster) patchStrategic(kind, name, patch string) {
	c.Helper()
	_, err := c.admin.resourceClient(c.resourceOf(kind), c.namespace).Patch(c.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "argocd-controller"})
	require.NoError(c, err)
}

// An apply is refused, the runtime offers nothing else that writes, and the connection sends no request that could.
func TestReadOnlySendsNoWrite_A25(t *testing.T) {
	c := newReadOnlyCluster(t)
	in := c.instance("v1", configOf("settings", "one"))
	_, err := c.Runtime.Apply(t.Context(), in)
	require.ErrorContains(t, err, "runtime bench has access: read: nothing is applied there")
	require.True(t, runtimes.IsPermanent(err))
	for name, can := range map[string]bool{
		"remove": is[runtimes.Remover](c.Runtime), "steer": is[runtimes.Steerer](c.Runtime), "plan a removal": is[runtimes.RemovalPlanner](c.Runtime),
	} {
		require.False(t, can, name)
	}
	held, err := c.Runtime.(*readOnly).runtime.cluster.connect(t.Context())
	require.NoError(t, err)
	_, err = held.resourceClient(c.resourceOf("ConfigMap"), c.namespace).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "written"},
	}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.ErrorContains(t, err, "is not sent: the runtime has access: read")
	c.requireOnlyReads()
}

func is[T any](r runtimes.Runtime) bool {
	_, ok := r.(T)
	return ok
}
