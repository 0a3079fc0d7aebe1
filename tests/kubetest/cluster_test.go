package kubetest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// TestTwoClustersOneRestarted also holds that what the API server was told before it ended is there afterwards, under
// the same address.
func TestTwoClustersOneRestarted(t *testing.T) {
	t.Parallel()
	clusters := Own(t, "staging", "production")
	require.Len(t, clusters, 2)
	staging, production := clusters[0], clusters[1]
	require.Equal(t, staging.Kubeconfig, production.Kubeconfig)
	require.NotEqual(t, staging.Config.Host, production.Config.Host)
	createConfigMap(t, staging, "default", "kept")

	staging.StopAPIServer(t)
	_, err := staging.Client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	require.Error(t, err)
	require.False(t, apierrors.IsNotFound(err), err)
	staging.StartAPIServer(t)
	_, err = staging.Client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = production.Client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), err)

	// Controllers and nodes have noticed nothing.
	createDeployment(t, staging, "default", "shop/web:v1")
	waitForContainer(t, staging, "default", func(s corev1.ContainerStatus) bool { return s.Ready })
}

func TestGate(t *testing.T) {
	t.Parallel()
	c := Start(t)
	ns := c.Namespace(t)
	createConfigMap(t, c, ns, "one")
	g := c.Gate(t)
	client := clientOf(t, g.Kubeconfig)
	get := func() error {
		_, err := client.CoreV1().ConfigMaps(ns).Get(t.Context(), "one", metav1.GetOptions{})
		return err
	}
	require.NoError(t, get())
	require.Len(t, g.Requests(), 1)
	require.Equal(t, "GET /api/v1/namespaces/"+ns+"/configmaps/one", g.Requests()[0].String())

	g.Reset()
	g.Answer(func(*http.Request) int { return http.StatusForbidden })
	require.True(t, apierrors.IsForbidden(get()))
	require.Len(t, g.Requests(), 1)

	g.Shut()
	err := get()
	require.Error(t, err)
	require.Zero(t, apierrors.ReasonForError(err), "not the API server's answer")
	g.Open()
	require.NoError(t, get())
}

func TestWatchEndsWithTheGate(t *testing.T) {
	t.Parallel()
	c := Start(t)
	ns := c.Namespace(t)
	g := c.Gate(t)
	watch, err := clientOf(t, g.Kubeconfig).CoreV1().Secrets(ns).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer watch.Stop()
	_, err = c.Client.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "seen"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NotNil(t, (<-watch.ResultChan()).Object)
	g.Cut()
	for range watch.ResultChan() {
		continue // until it is closed
	}
}

func TestAccountMayDoWhatItsRulesSay(t *testing.T) {
	t.Parallel()
	c := Start(t)
	ns := c.Namespace(t)
	path := c.Account(t, Account{Namespace: ns, Name: "reader", Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}}})
	client := clientOf(t, path)
	_, err := client.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	_, err = client.CoreV1().Secrets(ns).List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), err)
	_, err = client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), err)
}

func TestQuotaIsHeld(t *testing.T) {
	t.Parallel()
	c := Start(t)
	ns := c.Namespace(t)
	_, err := c.Client.CoreV1().ResourceQuotas(ns).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "few"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			corev1.ResourcePods: resource.MustParse("0"), corev1.ResourceServices: resource.MustParse("0"),
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	AwaitRefusal(t, c.Client, ns, "exceeded quota: few", nil)
	_, err = c.Client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	require.ErrorContains(t, err, "exceeded quota")
}

func TestWebhookIsCalled(t *testing.T) {
	t.Parallel()
	c := Start(t)
	ns := c.Namespace(t)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "not on a Friday"}}
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer server.Close()
	none, exact := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Exact
	_, err := c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "fridays.example.com", SideEffects: &none, MatchPolicy: &exact, AdmissionReviewVersions: []string{"v1"},
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: certificateOf(server)},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
			}},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	attempt := 0
	WaitFor(t, soon, func() (bool, string) { // the API server learns of it in a moment
		attempt++
		_, err := c.Client.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", attempt)}}, metav1.CreateOptions{})
		return err != nil && strings.Contains(err.Error(), "not on a Friday"), fmt.Sprint(err)
	})
}

func TestServiceOfProcesses(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("it serves with python3: ", err)
	}
	c := Start(t)
	ns := c.Namespace(t)
	address := freeAddress(t)
	web := deployment("shop/web:v1")
	web.Spec.Template.Annotations = map[string]string{"kubelab/run": "true"}
	app := &web.Spec.Template.Spec.Containers[0]
	app.Env = []corev1.EnvVar{{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
	app.Command = []string{"python3", "-m", "http.server", "--bind", "$(POD_IP)", "8000"}
	app.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8000)}}}
	_, err := c.Client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"kubelab/listen": address}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: web.Spec.Selector.MatchLabels,
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8000)}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.Client.AppsV1().Deployments(ns).Create(t.Context(), web, metav1.CreateOptions{})
	require.NoError(t, err)
	WaitFor(t, soon, func() (bool, string) {
		response, err := http.Get("http://" + address)
		if err != nil {
			return false, err.Error()
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode == http.StatusOK, response.Status
	})
	service, err := c.Client.CoreV1().Services(ns).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, service.Status.LoadBalancer.Ingress)
}

func createConfigMap(t *testing.T, c *Cluster, ns, name string) {
	t.Helper()
	_, err := c.Client.CoreV1().ConfigMaps(ns).Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func clientOf(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}
