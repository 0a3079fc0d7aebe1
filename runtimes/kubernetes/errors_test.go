package kubernetes

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	resourceapi "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/kubetest"
)

// Each refusal is one line that keeps the server's own words, says what to do, is permanent only when
// no other attempt can mend it, and costs no storm of requests.
func TestRefusals_D18(t *testing.T) {
	large := strings.Repeat("x", 700_000)
	rows := map[string]struct {
		as        string
		prepare   func(*recordingCluster)
		object    string
		permanent bool
		says      []string
	}{
		"no right to write": {
			as: "reader",
			prepare: func(d *recordingCluster) {
				d.grant("reader", d.namespace, rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}})
			},
			object: config,
			says:   []string{`User "reader" cannot patch resource "configmaps" in API group "" in the namespace "NS"`, "grant that user the permission"},
		},
		"a quota": {
			prepare: func(d *recordingCluster) {
				quotas := d.admin.typed.CoreV1().ResourceQuotas(d.namespace)
				nothing := corev1.ResourceList{"count/services": resourceapi.MustParse("0"), corev1.ResourcePods: resourceapi.MustParse("0")}
				q, err := quotas.Create(d.Context(), &corev1.ResourceQuota{
					ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: nothing},
				}, metav1.CreateOptions{})
				require.NoError(d, err)
				// The controller would count in some seconds.
				counted, err := json.Marshal(map[string]any{"status": corev1.ResourceQuotaStatus{Hard: nothing, Used: nothing}})
				require.NoError(d, err)
				_, err = quotas.Patch(d.Context(), q.Name, types.MergePatchType, counted, metav1.PatchOptions{}, "status")
				require.NoError(d, err)
				kubetest.AwaitRefusal(d, d.admin.typed, d.namespace, "exceeded quota: none", nil)
			},
			object: "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}",
			says:   []string{"exceeded quota: none, requested: count/services=1", "ResourceQuota none: raise its spec.hard[count/services]"},
		},
		"a namespace that is being deleted": {
			prepare: func(d *recordingCluster) {
				d.applyAs("holder", "ConfigMap", "holder", "{apiVersion: v1, kind: ConfigMap, metadata: {name: holder, finalizers: [example.com/hold]}}")
				d.Cleanup(func() {
					_, _ = d.admin.typed.CoreV1().ConfigMaps(d.namespace).Patch(context.Background(), "holder", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				})
				require.NoError(d, d.admin.typed.CoreV1().Namespaces().Delete(d.Context(), d.namespace, metav1.DeleteOptions{}))
			},
			object: config,
			says:   []string{"because it is being terminated", "wait until it is gone, then create it again"},
		},
		"a missing namespace": {
			object: "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: nowhere}}",
			says:   []string{`namespaces "nowhere" not found`, "create the namespace"},
		},
		"an unknown kind": {
			object: "{apiVersion: example.com/v1, kind: Unheard, metadata: {name: web}}",
			says:   []string{`apply Unheard NS/web: no matches for kind "Unheard" in version "example.com/v1"`, "is its CustomResourceDefinition installed?"},
		},
		"too large": {
			object:    "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: " + large + ", b: " + large + ", c: " + large + ", d: " + large + ", e: " + large + "}}",
			permanent: true,
			says:      []string{"larger than a cluster stores"},
		},
		"annotations too large": {
			object:    "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, annotations: {a: " + large + "}}}",
			permanent: true,
			says:      []string{"metadata.annotations: Too long", "larger than a cluster stores"},
		},
		"a field that does not exist": {
			object:    "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {portz: [{port: 80}]}}",
			permanent: true,
			says:      []string{".spec.portz: field not declared in schema", "another name or type"},
		},
		"an element twice": {
			object:    "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [" + strings.Repeat("{name: a, port: 80}, ", 20) + "{name: b, port: 81}]}}",
			permanent: true,
			says:      []string{`errors: .spec.ports: duplicate entries for key [port=80,protocol="TCP"] (a list has two elements with the same key: keep one of them)`},
		},
		"a webhook refuses": {
			prepare:   func(d *recordingCluster) { d.webhook(true, "no containers on Fridays") },
			object:    config,
			permanent: true,
			says:      []string{`admission webhook "gate.NS.example.com" denied the request: no containers on Fridays`, "the admission webhook gate.NS.example.com does not allow it"},
		},
		"a claim that cannot grow": {
			prepare: func(d *recordingCluster) {
				claim := "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"
				d.mustApply(d.instance("v1", claim))
				d.patchAs("binder", "PersistentVolumeClaim", "data", `{"status":{"phase":"Bound"}}`, "status")
				d.waitWatchedAs("PersistentVolumeClaim", "data")
				d.takeWrites()
			},
			object: "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}}",
			says:   []string{"the storageclass that provisions the pvc must support resize (set allowVolumeExpansion: true on the StorageClass of the claim"},
		},
		"a pod of a runtime that does not exist": {
			object: podWith("web", "runtimeClassName: nowhere"),
			says:   []string{`RuntimeClass "nowhere" not found (create RuntimeClass nowhere, or change spec.runtimeClassName)`},
		},
		"a grant of more than the worker has": {
			object: "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reads}, rules: [{apiGroups: [\"\"], resources: [secrets], verbs: [get]}]}",
			as:     "granter",
			prepare: func(d *recordingCluster) {
				d.grant("granter", d.namespace, rbacv1.PolicyRule{APIGroups: []string{"", "rbac.authorization.k8s.io"}, Resources: []string{"configmaps", "roles"}, Verbs: []string{"get", "list", "watch", "create", "patch"}})
			},
			says: []string{"is attempting to grant RBAC permissions not currently held", "(grant that user these permissions, or the verbs escalate and bind of roles)"},
		},
		"a Job that changes": {
			prepare: func(d *recordingCluster) {
				d.mustApply(d.instance("v1", longJob("true")))
				d.waitWatchedAs("Job", "j")
				d.takeWrites()
			},
			object:    longJob("false"),
			permanent: true,
			says:      []string{`Job.batch "j" is invalid: spec.template: Invalid value: …: field is immutable (`},
		},
		"a webhook that is unavailable": {
			prepare: func(d *recordingCluster) { d.webhook(false, "") },
			object:  config,
			says:    []string{`failed calling webhook "gate.NS.example.com"`, "connection refused", "the webhook gate.NS.example.com does not answer"},
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			change := func(user *clientcmdapi.AuthInfo) { user.Impersonate = row.as }
			d := newTestCluster(t, change).recording()
			if row.prepare != nil {
				row.prepare(d)
			}
			in := d.instance("v1", row.object)
			text := d.mustRefuse(in, row.permanent)
			for _, part := range row.says {
				require.Contains(t, text, strings.ReplaceAll(part, "NS", d.namespace))
			}
			if !strings.Contains(text, `User "`) {
				require.NotContains(t, text, "grant that user the permission", "only a missing permission is explained as one")
			}
			require.NotContains(t, text, "\n")
			require.Less(t, len(text), 1000)
			writes, asked := d.takeWrites()
			require.Empty(t, writes)
			require.LessOrEqual(t, asked, 9, "requests of one apply") // discovery, two reviews, a list and a watch, a get, a dry run
			plan, err := d.Plan(t.Context(), in)
			require.NoError(t, err)
			require.Len(t, plan, 1)
			require.Equal(t, runtimes.ActionRefuse, plan[0].Action)
			require.Contains(t, text, plan[0].Message)
		})
	}
}

// longJob is a Job that runs a command; its template is long.
func longJob(command string) string {
	return `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: m, image: busybox, command: ["sh", "-c", "` + command + `"]}]}}}}`
}

// webhook registers a webhook over the config maps of the test's namespace, which refuses, or does not even answer.
func (d *recordingCluster) webhook(answers bool, message string) {
	d.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admission.AdmissionReview
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &review)
		review.Response = &admission.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: message, Code: http.StatusForbidden}}
		_ = json.NewEncoder(w).Encode(review)
	}))
	d.Cleanup(func() {
		server.CloseClientConnections() // the API server keeps one
		server.Close()
	})
	if !answers {
		server.Close()
	}
	name, path := "gate."+d.namespace+".example.com", server.URL+"/"
	none, fail := registration.SideEffectClassNone, registration.Fail
	hooks := d.admin.typed.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(d.Context(), &registration.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []registration.ValidatingWebhook{{
			Name: name, SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": d.namespace}},
			ClientConfig: registration.WebhookClientConfig{
				URL:      &path,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []registration.RuleWithOperations{{
				Operations: []registration.OperationType{registration.OperationAll},
				Rule:       registration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}, metav1.CreateOptions{})
	require.NoError(d, err)
	d.Cleanup(func() { _ = hooks.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	d.wait("the webhook to be in force", func() bool {
		_, err := d.admin.typed.CoreV1().ConfigMaps(d.namespace).Create(d.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), name)
	}, func() any { return nil })
}

// A server that is unavailable, or does not accept the credentials, stops an apply with that reason.
func TestNoServer(t *testing.T) {
	d := newTestCluster(t).recording()
	d.proxy.shut()
	text := d.mustRefuse(d.instance("v1", config), false)
	require.Contains(t, text, "connection refused")
	require.Contains(t, text, "the cluster is not reachable")

	d = newExclusiveTestCluster(t, func(user *clientcmdapi.AuthInfo) { *user = clientcmdapi.AuthInfo{Token: "expired"} }).recording()
	text = d.mustRefuse(d.instance("v1", config), false)
	require.Contains(t, text, "has a token expired?")
	_, asked := d.takeWrites()
	require.LessOrEqual(t, asked, 2)
}

// Every way in which the server says that an object cannot be changed in place is known, and hints at
// what allows it to be made again.
func TestImmutableErrors(t *testing.T) {
	set := "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: o}, spec: {serviceName: X, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: web}]}}}}"
	deployment := "{apiVersion: apps/v1, kind: Deployment, metadata: {name: o}, spec: {selector: {matchLabels: {a: X}}, template: {metadata: {labels: {a: X}}, spec: {containers: [{name: c, image: web}]}}}}"
	rows := map[string]struct{ object, from, to string }{
		"the service of a StatefulSet": {set, "a", "b"},
		"the selector of a Deployment": {deployment, "a", "b"},
		"the modes of a claim":         {"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: o}, spec: {accessModes: [X], resources: {requests: {storage: 1Gi}}}}", "ReadWriteOnce", "ReadOnlyMany"},
		"a closed ConfigMap":           {"{apiVersion: v1, kind: ConfigMap, metadata: {name: o}, immutable: true, data: {a: X}}", "a", "b"},
		"the type of a Secret":         {"{apiVersion: v1, kind: Secret, metadata: {name: o}, type: X}", "a", "b"},
		"the role of a binding":        {"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: o}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: X}}", "a", "b"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			d := newTestCluster(t).recording()
			d.mustApply(d.instance("v1", strings.ReplaceAll(row.object, "X", row.from)))
			text := d.mustRefuse(d.instance("v2", strings.ReplaceAll(row.object, "X", row.to)), true)
			require.Contains(t, text, `set the annotation converge/recreate: "true" to have it deleted and recreated`)
		})
	}
}

// What the server did not get to is no fault of the object.
func TestOnlyFaultsOfTheObjectArePermanent(t *testing.T) {
	of := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: metav1.StatusReasonUnknown, Message: message}}
	}
	rows := map[string]struct {
		err       error
		permanent bool
	}{
		"a webhook that is at fault itself": {err: of(500, `admission webhook "x" denied the request: no database`)},
		"a webhook that is busy":            {err: of(429, `admission webhook "x" denied the request: later`)},
		"a webhook that refuses":            {err: of(400, `admission webhook "x" denied the request: never`), permanent: true},
		"the store refuses the size":        {err: of(500, "etcdserver: request is too large"), permanent: true},
		"the store is unavailable":          {err: of(500, "etcdserver: leader changed")},
		"a certificate":                     {err: &tls.CertificateVerificationError{Err: io.EOF}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			err := explain(t.Context(), "apply Pod shop/web", row.err)
			require.Equal(t, row.permanent, runtimes.IsPermanent(err), err)
			require.ErrorIs(t, err, row.err)
			require.Contains(t, err.Error(), row.err.Error())
		})
	}
}

// Only a missing permission is explained as one. Admission refuses with the same code, and its reason is what has to change.
func TestAdmissionIsNotExplainedAsAPermission(t *testing.T) {
	t.Parallel()
	forbidden := func(reason string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New(reason))
	}
	rows := map[string]string{
		`User "converge" cannot patch resource "pods" in API group "" in the namespace "shop"`:                      "grant that user the permission, by a Role or ClusterRole and its binding",
		`unable to validate against any security context constraint: [spec.hostNetwork: Invalid value: true]`:       "admission in the cluster refuses it, not the permissions of the worker: change what the message names",
		`ValidatingAdmissionPolicy 'no-latest' with binding 'everywhere' denied request: images need a tag`:         "ValidatingAdmissionPolicy no-latest, bound by everywhere, does not allow it: change the object, or that policy",
		`user "converge" (groups=["x"]) is attempting to grant RBAC permissions not currently held: {secrets, get}`: "grant that user these permissions, or the verbs escalate and bind of roles",
	}
	for reason, hint := range rows {
		err := explain(t.Context(), "apply Pod shop/web", forbidden(reason))
		require.EqualError(t, err, `apply Pod shop/web: pods "web" is forbidden: `+reason+" ("+hint+")")
	}
}

func TestEqualProblemsAreMerged(t *testing.T) {
	missing := func(what string) error {
		return &problem{action: "apply " + what, reason: `namespaces "shop" not found`, hint: "make it"}
	}
	other := errors.New("something else")
	all := mergeProblems([]error{missing("Deployment shop/web"), other, missing("Service shop/web"), missing("ConfigMap shop/web")})
	require.EqualError(t, errors.Join(all...), "apply Deployment shop/web and 2 more: namespaces \"shop\" not found (make it)\nsomething else")
	require.ErrorIs(t, errors.Join(all...), other)
}
