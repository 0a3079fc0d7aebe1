package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// serving is a runtime whose server says how kinds are scoped, and no more.
func serving(t *testing.T) *Runtime {
	t.Helper()
	lists := map[string]string{
		"/api/v1": `{"resources": [{"name": "configmaps", "kind": "ConfigMap", "namespaced": true}, {"name": "namespaces", "kind": "Namespace"},
			{"name": "services", "kind": "Service", "namespaced": true}, {"name": "secrets", "kind": "Secret", "namespaced": true}]}`,
		"/apis/apps/v1":                      `{"resources": [{"name": "deployments/scale", "kind": "Deployment"}, {"name": "deployments", "kind": "Deployment", "namespaced": true}]}`,
		"/apis/batch/v1":                     `{"resources": [{"name": "cronjobs", "kind": "CronJob", "namespaced": true}, {"name": "jobs", "kind": "Job", "namespaced": true}]}`,
		"/apis/rbac.authorization.k8s.io/v1": `{"resources": [{"name": "clusterroles", "kind": "ClusterRole"}]}`,
		"/apis/apiextensions.k8s.io/v1":      `{"resources": [{"name": "customresourcedefinitions", "kind": "CustomResourceDefinition"}]}`,
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		list, ok := lists[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, list)
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "config")
	write(t, path, fileOf(server.URL, "x"))
	clusters := &Clusters{}
	t.Cleanup(clusters.Close)
	rt, err := New(definition(path), clusters)
	require.NoError(t, err)
	return rt
}

func instanceOf(t *testing.T, objects ...string) runtimes.Request {
	t.Helper()
	in := runtimes.Request{
		Owner: runtimes.Owner{Application: "shop", Service: "web", ID: entities.Only("prod")}, FullVersion: "v7-i42",
		Payload: &entities.Payload{Address: map[string]string{"namespace": "shop"}, Kubernetes: &entities.KubernetesPayload{}},
	}
	for _, text := range objects {
		raw, err := yaml.YAMLToJSON([]byte(text))
		require.NoError(t, err)
		in.Payload.Kubernetes.Objects = append(in.Payload.Kubernetes.Objects, json.RawMessage(raw))
	}
	return in
}

func TestDeclareSetsLabelsAndAnnotations(t *testing.T) {
	rt := serving(t)
	marks := `converge/application: shop, converge/service: web, converge/channel: prod, converge/instance: main, applyset.kubernetes.io/part-of: ` + setID("converge.shop.web.prod", "shop")
	rows := map[string]struct{ in, want string }{
		"a namespace is set, and server fields are dropped": {
			in:   "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, uid: x, resourceVersion: '1', creationTimestamp: null, labels: {app: web}}, data: {k: v}}",
			want: "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop, labels: {app: web, " + marks + "}, annotations: {converge/version: v7-i42}}, data: {k: v}}",
		},
		"a namespace that is named stays": {
			in:   "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: other}}",
			want: "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: other, labels: {" + marks + "}, annotations: {converge/version: v7-i42}}}",
		},
		"a kind without namespaces has none": {
			in:   "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a, namespace: shop}}",
			want: "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a, labels: {" + marks + "}, annotations: {converge/version: v7-i42}}}",
		},
		"a kind that is not served counts as namespaced, and its template is its own": {
			in:   "{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}, spec: {template: {metadata: {}}}}",
			want: "{apiVersion: example.com/v1, kind: Thing, metadata: {name: a, namespace: shop, labels: {" + marks + "}, annotations: {converge/version: v7-i42}}, spec: {template: {metadata: {}}}}",
		},
		"pods are marked, and a selector is not": {
			in: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {}}}}",
			want: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: shop, labels: {" + marks + "}, annotations: {converge/version: v7-i42}}, " +
				"spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web, " + marks + "}, annotations: {converge/template: 507c6e13c548c990}}, spec: {}}}}",
		},
		"no pod is replaced for the template of a CronJob": {
			in: "{apiVersion: batch/v1, kind: CronJob, metadata: {name: a}, spec: {jobTemplate: {spec: {template: {spec: {}}}}}}",
			want: "{apiVersion: batch/v1, kind: CronJob, metadata: {name: a, namespace: shop, labels: {" + marks + "}, annotations: {converge/version: v7-i42}}, " +
				"spec: {jobTemplate: {spec: {template: {metadata: {labels: {" + marks + "}, annotations: {converge/version: v7-i42}}, spec: {}}}}}}",
		},
		"a Job cannot be changed": {
			in: "{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {template: {spec: {}}}}",
			want: "{apiVersion: batch/v1, kind: Job, metadata: {name: a, namespace: shop, labels: {" + marks + "}, annotations: {converge/version: v7-i42}}, " +
				"spec: {template: {metadata: {labels: {" + marks + "}}, spec: {}}}}",
		},
		"unless it is recreated for each version": {
			in: "{apiVersion: batch/v1, kind: Job, metadata: {name: a, annotations: {converge/recreate: 'true'}}, spec: {template: {spec: {}}}}",
			want: "{apiVersion: batch/v1, kind: Job, metadata: {name: a, namespace: shop, labels: {" + marks + "}, annotations: {converge/version: v7-i42, converge/recreate: 'true'}}, " +
				"spec: {template: {metadata: {labels: {" + marks + "}, annotations: {converge/version: v7-i42}}, spec: {}}}}",
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			got, err := rt.declare(t.Context(), instanceOf(t, row.in))
			require.NoError(t, err)
			require.Len(t, got, 1)
			want, err := yaml.YAMLToJSON([]byte(row.want))
			require.NoError(t, err)
			require.JSONEq(t, string(want), string(got[0].text))
			again, err := rt.declare(t.Context(), instanceOf(t, row.in))
			require.NoError(t, err)
			require.Equal(t, got[0].digest, again[0].digest)
		})
	}
	a, err := rt.declare(t.Context(), instanceOf(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v}}"))
	require.NoError(t, err)
	b, err := rt.declare(t.Context(), instanceOf(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: w}}"))
	require.NoError(t, err)
	require.NotEqual(t, a[0].digest, b[0].digest)
}

// The time of a restart is in the pod templates of permanent workloads, and nowhere else.
func TestDeclareSetsTheRestartTime_I1(t *testing.T) {
	rt := serving(t)
	in := instanceOf(t,
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {}}}}",
		"{apiVersion: batch/v1, kind: CronJob, metadata: {name: a}, spec: {jobTemplate: {spec: {template: {spec: {}}}}}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
	in.Restarted = time.Date(2026, 11, 20, 11, 0, 0, 0, time.FixedZone("CET", 3600))
	got, err := rt.declare(t.Context(), in)
	require.NoError(t, err)
	for _, o := range got {
		require.Equal(t, o.GetKind() == "Deployment", strings.Contains(string(o.text), `"template":{"metadata":{"annotations":{"converge/restartedAt":"2026-11-20T10:00:00Z","converge/template":"`), string(o.text))
		require.Equal(t, o.GetKind() == "Deployment", strings.Contains(string(o.text), "restartedAt"))
	}
}

func TestDeclareOrdersByWaveAndKind(t *testing.T) {
	object := func(version, kind, name, wave string) string {
		return "{apiVersion: " + version + ", kind: " + kind + ", metadata: {name: " + name + ", annotations: {" + wave + "}}}"
	}
	got, err := serving(t).declare(t.Context(), instanceOf(t,
		object("example.com/v1", "Thing", "last-of-its-wave", ""),
		object("apps/v1", "Deployment", "web", ""),
		object("v1", "ConfigMap", "b", ""),
		object("v1", "ConfigMap", "before", `converge/wave: "-2"`),
		object("v1", "Service", "after", `converge/wave: "10"`),
		object("v1", "ConfigMap", "a", ""),
		object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "things.example.com", ""),
		object("v1", "Namespace", "shop", `converge/wave: "3"`),
		object("v1", "Secret", "s", ""),
	))
	require.NoError(t, err)
	var order []string
	for _, d := range got {
		order = append(order, d.GetKind()+" "+d.GetName())
	}
	require.Equal(t, []string{
		"Namespace shop", "CustomResourceDefinition things.example.com", "ConfigMap before", "Secret s", "ConfigMap a", "ConfigMap b",
		"Deployment web", "Thing last-of-its-wave", "Service after",
	}, order)
}

// A policy about definitions comes before them: that of a version admits its definitions, also where the policy that it replaces does not.
func TestDeclareOrdersPoliciesAboutDefinitionsFirst(t *testing.T) {
	policy := func(name, annotations, spec, rules string) string {
		return "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: " + name + ", annotations: {" + annotations + "}}, " +
			"spec: {" + spec + "matchConstraints: {resourceRules: [{resources: ['*'], " + rules + "}]}}}"
	}
	definitions := "apiGroups: [apiextensions.k8s.io]"
	got, err := serving(t).declare(t.Context(), instanceOf(t,
		"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.example.com}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}",
		policy("about-definitions", "", "", definitions),
		policy("about-others", "", "", "apiGroups: [apps]"),
		policy("with-parameters", "", "paramKind: {apiVersion: example.com/v1, kind: Thing}, ", definitions),
		policy("with-a-wave", `converge/wave: "-1"`, "", definitions),
	))
	require.NoError(t, err)
	var order []string
	for _, d := range got {
		order = append(order, d.GetKind()+" "+d.GetName())
	}
	require.Equal(t, []string{
		"ValidatingAdmissionPolicy about-definitions", "CustomResourceDefinition things.example.com", "ValidatingAdmissionPolicy with-a-wave", "ConfigMap settings",
		"ValidatingAdmissionPolicy about-others", "ValidatingAdmissionPolicy with-parameters",
	}, order)
}

func TestDeclareRefusesInvalidObjects(t *testing.T) {
	rt := serving(t)
	rows := map[string]string{
		"{kind: ConfigMap, metadata: {name: a}}":          "object 1 of the payload: has no apiVersion or no kind",
		"{apiVersion: v1, kind: ConfigMap, metadata: {}}": "object 1 of the payload: v1 ConfigMap has no name",
		"[]": "object 1 of the payload: no JSON object",
		"{apiVersion: a/b/c, kind: ConfigMap, metadata: {name: a}}":                                               "object 1 of the payload: ConfigMap a: ",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: [x]}}":                                     "ConfigMap shop/a: ",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {converge/wave: soon}}}":              `annotation converge/wave is "soon"; expected a whole number`,
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {metadata: {labels: x}}}}": "Deployment shop/a: ",
	}
	for text, want := range rows {
		t.Run(text, func(t *testing.T) {
			_, err := rt.declare(t.Context(), instanceOf(t, text))
			require.ErrorContains(t, err, want)
			require.True(t, runtimes.IsPermanent(err))
		})
	}
}

func TestConflictsAreReadFromTheRefusal(t *testing.T) {
	owner := func(name string, operation metav1.ManagedFieldsOperationType, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: name, Operation: operation, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	image := `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{"f:image":{}}}}}}}`
	replicas := `{"f:spec":{"f:replicas":{}}}`
	owners := []metav1.ManagedFieldsEntry{
		owner("both", metav1.ManagedFieldsOperationApply, "", image),
		owner("both", metav1.ManagedFieldsOperationUpdate, "", replicas),
		owner("kubectl", metav1.ManagedFieldsOperationUpdate, "scale", replicas),
		owner("broken", metav1.ManagedFieldsOperationUpdate, "", `[`),
	}
	cause := func(field, message string) metav1.StatusCause {
		return metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Field: field, Message: message}
	}
	err := &apierrors.StatusError{ErrStatus: metav1.Status{Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
		cause(".spec.replicas", `conflict with "kubectl" with subresource "scale" using apps/v1 at 2026-01-01T00:00:00Z`),
		cause(".spec.replicas", `conflict with "both" using apps/v1`),
		cause(`.spec.template.spec.containers[name="web"].image`, `conflict with "both" using apps/v1`),
		cause(".spec.paused", `conflict with "broken" using apps/v1`),
		{Type: metav1.CauseTypeFieldValueInvalid, Field: "other"},
	}}}}
	type shown struct {
		text   string
		byHand bool
	}
	var got []shown
	for _, c := range conflictsOf(fmt.Errorf("wrapped: %w", err), owners) {
		got = append(got, shown{c.String(), c.isManualEdit()})
	}
	require.Equal(t, []shown{
		{"spec.paused belongs to broken, which declares it too", false}, // not known how: not taken
		{"spec.replicas belongs to both", true},
		{"spec.replicas belongs to kubectl, which writes it through scale", true},
		{"spec.template.spec.containers[name=web].image belongs to both, which declares it too", false},
	}, got)
	require.Empty(t, conflictsOf(errors.New("something else"), owners))
}

func TestAnApplyLogIsBounded(t *testing.T) {
	a := &applyLog{unchanged: 2}
	for range 2000 {
		a.add("configured Deployment/web")
	}
	require.LessOrEqual(t, len(a.output().Stdout), maxApplyLog)
	require.Equal(t, "created ConfigMap/a\nunchanged 1 object\n", (&applyLog{lines: []string{"created ConfigMap/a"}, unchanged: 1}).output().Stdout)
	require.Equal(t, "Deployment shop/web", id{namespace: "shop", name: "web", kind: (&unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}}).GroupVersionKind().GroupKind()}.String())
}
