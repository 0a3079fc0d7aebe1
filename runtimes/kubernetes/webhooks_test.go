package kubernetes

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/runtimes"
)

// hookServer answers reviews as allows says, and returns its address and certificate.
func (d *recordingCluster) hookServer(allows func() bool) (address, authority string) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admission.AdmissionReview
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &review)
		review.Response = &admission.AdmissionResponse{UID: review.Request.UID, Allowed: allows(), Result: &metav1.Status{Message: "not this", Code: http.StatusForbidden}}
		_ = json.NewEncoder(w).Encode(review)
	}))
	d.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL + "/", base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// hook is the configuration of a webhook over resources of the test's namespace.
func (d *recordingCluster) hook(address, authority, groups, resources string, annotations ...string) string {
	name := "gate." + d.namespace + ".example.com"
	d.Cleanup(func() {
		_ = d.admin.typed.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	return fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: %[1]s, annotations: {%[6]s}},
	  webhooks: [{name: %[1]s, sideEffects: None, failurePolicy: Fail, admissionReviewVersions: [v1],
	  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}, clientConfig: {url: %[3]q, caBundle: %[4]q},
	  rules: [{operations: [CREATE, UPDATE], apiGroups: [%[5]q], apiVersions: [v1], resources: [%[7]s]}]}]}`,
		name, d.namespace, address, authority, groups, strings.Join(annotations, ", "), resources)
}

// untilRefused waits until a webhook is in force over what a dry run makes.
func (d *recordingCluster) untilRefused(dry func() error) {
	d.Helper()
	d.wait("the webhook to be in force", func() bool {
		err := dry()
		return err != nil && strings.Contains(err.Error(), "gate."+d.namespace)
	}, func() any { return nil })
}

func (d *recordingCluster) dryConfig() error {
	_, err := d.admin.typed.CoreV1().ConfigMaps(d.namespace).Create(d.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// A webhook of the service itself that does not answer, or refuses everything, does not block the version that repairs it: the
// objects that it refuses are applied after the rest of their wave. So is the inventory, if the webhook covers it.
func TestABrokenOwnWebhookIsRepaired_H1(t *testing.T) {
	for name, refuses := range map[string]bool{"it does not answer": false, "it refuses": true} {
		t.Run(name, func(t *testing.T) {
			d := newTestCluster(t).recording()
			broken, authority := "https://127.0.0.1:1/", ""
			if refuses {
				broken, authority = d.hookServer(func() bool { return false })
			}
			well, wellAuthority := d.hookServer(func() bool { return true })
			if authority == "" {
				authority = wellAuthority
			}
			sequence := int64(0)
			in := func(version, address, authority, value string) runtimes.Request {
				sequence++
				return withFence(d.instance(version, d.hook(address, authority, "", "configmaps"), configOf("settings", value)), 1, sequence)
			}
			d.mustApply(in("v1", broken, authority, "one"))
			d.untilRefused(d.dryConfig)

			d.takeWrites()
			text := d.mustRefuse(in("v2", broken, authority, "two"), refuses)
			writes, _ := d.takeWrites()
			require.Empty(t, writes, "no object repairs the webhook")
			require.Contains(t, text, "the webhook gate."+d.namespace+".example.com is part of this service")
			require.Contains(t, text, `or set converge/recreate: "true" on its configuration`)

			mended := in("v3", well, wellAuthority, "two")
			plan, err := d.Plan(t.Context(), mended)
			require.NoError(t, err)
			require.Equal(t, runtimes.ActionUpdate, plan[0].Action)
			require.Contains(t, plan[0].Message, "of this service refuses it; it is applied after the rest of its wave has repaired the webhook")
			require.Contains(t, d.mustApply(mended), "configured ConfigMap/settings (2 fields)")
			require.Equal(t, "two", nestedMap(d.liveObject("ConfigMap", "settings").Object, "data")["a"])
			require.Equal(t, mended.Fence, d.recordedFence())
		})
	}
}

// A webhook that blocks its own repair is temporarily removed, if its configuration allows that, and is restored afterwards.
func TestAWebhookThatBlocksItsOwnRepair_H1(t *testing.T) {
	d := newTestCluster(t).recording()
	address := "https://127.0.0.1:1/"
	_, authority := d.hookServer(func() bool { return true })
	server := func(image string) string { return deploymentOf("web:"+image, 1, "") }
	v1 := d.instance("v1", d.hook(address, authority, "apps", "deployments"), server("1"))
	d.mustApply(v1)
	d.untilRefused(func() error {
		_, err := d.admin.typed.AppsV1().Deployments(d.namespace).Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec": {"replicas": 3}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	text := d.mustRefuse(d.instance("v2", d.hook(address, authority, "apps", "deployments"), server("2")), false)
	require.Contains(t, text, "is part of this service")
	open := d.instance("v2", d.hook(address, authority, "apps", "deployments", `converge/recreate: "true"`), server("2"))
	lines := strings.Join(d.mustApply(open), "\n")
	require.Contains(t, lines, "temporarily removed ValidatingWebhookConfiguration/gate."+d.namespace+".example.com, whose webhook")
	require.Contains(t, lines, "configured Deployment/web")
	require.Contains(t, lines, "created ValidatingWebhookConfiguration/gate."+d.namespace)
	containers, _ := nestedMap(d.liveObject("Deployment", "web").Object, "spec", "template", "spec")["containers"].([]any)
	require.Equal(t, "web:2", containers[0].(map[string]any)["image"])
}

// With pruning, the configuration of a webhook that is no longer declared is removed before the objects that it refuses are applied.
func TestAPrunedWebhookBlocksNothing_H1(t *testing.T) {
	d := newTestCluster(t).recording()
	_, authority := d.hookServer(func() bool { return true })
	hook := d.hook("https://127.0.0.1:1/", authority, "", "configmaps")
	d.mustApply(d.instance("v1", hook, configOf("settings", "one")))
	d.untilRefused(d.dryConfig)
	without := d.instance("v2", configOf("settings", "two"))
	require.Contains(t, d.mustRefuse(without, false), "does not answer: repair or remove it")
	lines := d.mustApply(withPrune(without))
	require.Contains(t, lines, "pruned ValidatingWebhookConfiguration/gate."+d.namespace+".example.com")
	require.Equal(t, "two", nestedMap(d.liveObject("ConfigMap", "settings").Object, "data")["a"])
}

// The server may call a webhook for a moment after its configuration is gone: what is refused then is tried again.
func TestAPrunedWebhookThatIsStillCalledBlocksNothing_H1(t *testing.T) {
	d := newTestCluster(t).recording()
	_, authority := d.hookServer(func() bool { return true })
	d.mustApply(d.instance("v1", d.hook("https://127.0.0.1:1/", authority, "", "configmaps"), configOf("settings", "one")))
	d.untilRefused(d.dryConfig)
	configurations, err := d.cluster.resource(t.Context(), webhookKinds[1])
	require.NoError(t, err)
	isGone := func() bool {
		v, err := d.cluster.view(t.Context(), configurations, "")
		return err == nil && v.get("", "gate."+d.namespace+".example.com") == nil
	}
	var mu sync.Mutex
	var refusal []byte
	deleted, again := false, 0
	d.injectFault(func(req *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		resp, err := send()
		mu.Lock()
		defer mu.Unlock()
		settings := req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/configmaps/settings")
		switch {
		case err != nil:
		case req.Method == http.MethodDelete:
			deleted = true
			assert.Eventually(t, isGone, time.Minute, time.Millisecond)
		case settings && !deleted:
			refusal, err = io.ReadAll(resp.Body)
			resp.Body = io.NopCloser(bytes.NewReader(refusal))
		case settings && again < 2:
			again++
			resp.Body.Close()
			resp.StatusCode, resp.Status = http.StatusInternalServerError, "500 Internal Server Error"
			resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(refusal)), int64(len(refusal))
		}
		return resp, err
	})
	d.mustApply(withPrune(d.instance("v2", configOf("settings", "two"))))
	mu.Lock()
	defer mu.Unlock()
	require.Contains(t, string(refusal), "failed calling webhook")
	require.Equal(t, 2, again)
	require.Equal(t, "two", nestedMap(d.liveObject("ConfigMap", "settings").Object, "data")["a"])
}

// A webhook that is not of the service refuses as before.
func TestAForeignWebhookStillRefuses_H1(t *testing.T) {
	d := newTestCluster(t).recording()
	d.webhook(false, "")
	require.Contains(t, d.mustRefuse(d.instance("v1", config, deploymentOf("web:1", 1, "")), false), "does not answer: repair or remove it")
	writes, _ := d.takeWrites()
	require.Empty(t, writes)
}

// The dependents of an object stay when it is recreated with converge/recreate: orphan, and belong to the new one.
func TestRecreateKeepsDependents_H1(t *testing.T) {
	set := func(service, recreate string) string {
		return `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, annotations: {converge/recreate: ` + recreate + `}}, spec: {serviceName: ` + service + `, replicas: 2,
		  selector: {matchLabels: {app: db}}, template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: "db:1"}]}}}}`
	}
	for recreate, stay := range map[string]bool{"orphan": true, `"true"`: false} {
		t.Run(recreate, func(t *testing.T) {
			d := newTestCluster(t).recording()
			v1, v2 := d.instance("v1", set("one", recreate)), d.instance("v2", set("two", recreate))
			d.mustApply(v1)
			d.until(v1, "v1", settled("v1"))
			before := d.podsOfSet()
			require.Len(t, before, 2)
			require.Equal(t, []string{"recreated StatefulSet/db"}, d.mustApply(v2))
			d.until(v2, "v2", settled("v2"))
			if stay {
				require.Equal(t, before, d.podsOfSet())
			} else {
				require.NotEqual(t, before, d.podsOfSet())
			}
			made, err := d.admin.typed.AppsV1().StatefulSets(d.namespace).Get(t.Context(), "db", metav1.GetOptions{})
			require.False(t, apierrors.IsNotFound(err))
			require.Equal(t, "two", made.Spec.ServiceName)
			d.owned(made)
		})
	}
}

// podsOfSet are the pods of the StatefulSet, by name.
func (d *recordingCluster) podsOfSet() map[string]types.UID {
	d.Helper()
	pods, err := d.admin.typed.CoreV1().Pods(d.namespace).List(d.Context(), metav1.ListOptions{LabelSelector: "app=db"})
	require.NoError(d, err)
	found := map[string]types.UID{}
	for _, pod := range pods.Items {
		found[pod.Name] = pod.UID
	}
	return found
}

// owned waits until the pods belong to the StatefulSet that is there.
func (d *recordingCluster) owned(set *appsv1.StatefulSet) {
	d.Helper()
	d.wait("its pods to be its own", func() bool {
		pods, err := d.admin.typed.CoreV1().Pods(d.namespace).List(d.Context(), metav1.ListOptions{LabelSelector: "app=db"})
		require.NoError(d, err)
		for _, pod := range pods.Items {
			if by := metav1.GetControllerOf(&pod); by == nil || by.UID != set.UID {
				return false
			}
		}
		return len(pods.Items) == 2
	}, func() any { return nil })
}
