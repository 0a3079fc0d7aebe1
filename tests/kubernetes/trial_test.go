package kubernetes_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/kubetest"
)

// trial is examples/kubernetes where another tool deploys to production: the worker has read access there, by its credentials and by
// the configuration.
type trial struct {
	*kubeWorld
	credentials string // a kubeconfig
}

func newTrial(t *testing.T, tool string) *trial {
	t.Helper()
	w := &trial{kubeWorld: newKubeWorld(t, "web")}
	w.isReadOnly()
	w.deploys(tool, "v1")
	return w
}

// isReadOnly gives the worker read access to production.
func (w *trial) isReadOnly() {
	w.T.Helper()
	w.credentials = reader(w.T, w.cluster, w.production)
	w.connect("access: read\n", w.credentials)
}

// mayWrite gives it write access, and declares production report-only, as the way in is.
func (w *trial) mayWrite() {
	w.T.Helper()
	w.connect("", w.cluster.Kubeconfig)
	w.edit(configFile, "- name: production\n", "- name: production\n  enforcement: report\n")
}

// mayAdopt declares web as converge config init does.
func (w *trial) mayAdopt() {
	w.T.Helper()
	w.edit(configFile, "kubernetes: {manifests: [web], createNamespace: true}", "kubernetes: {manifests: [web], createNamespace: true, adopt: true}")
}

// connect declares the runtime of production, with a kubeconfig.
func (w *trial) connect(access, kubeconfig string) {
	w.T.Helper()
	runtime := strings.NewReplacer("KUBECONFIG", kubeconfig, "CONTEXT", w.cluster.Name).
		Replace(strings.Replace(kubeRuntime, "pollInterval: 100ms", "pollInterval: 100ms, steadyPollInterval: 200ms", 1))
	w.pattern(configFile, `(?s)name: `+w.App+`-production\n(access: read\n)?kubernetes: \{[^\n]*`, "name: "+w.App+"-production\n"+access+"kubernetes: "+runtime)
}

// reader is a kubeconfig of an account that may do in a namespace what docs/trial.md grants, and nothing else.
func reader(t testing.TB, c *kubetest.Cluster, namespace string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/trial.md")
	require.NoError(t, err)
	role := rbacv1.Role{}
	require.NoError(t, yaml.Unmarshal([]byte(regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(string(page))[1]), &role))
	require.NotEmpty(t, role.Rules)
	rbac, o := c.Client.RbacV1(), metav1.CreateOptions{}
	_, err = rbac.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: role.Rules}, o)
	require.NoError(t, err)
	_, err = rbac.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "reader", Namespace: namespace}},
	}, o)
	require.NoError(t, err)
	return accountKubeconfig(t, c, namespace, "reader")
}

// manifestsOf are those of a version of web in production.
func (w *trial) manifestsOf(version string) string {
	w.T.Helper()
	return strings.NewReplacer(`"${{ params.replicas }}"`, "3", "${{ params.image }}", "registry.shop.dev/web:"+version, "${{ fullVersion }}", version,
		"${{ constants.greeting }}", "Hello", "${{ channel }}", "production").Replace(w.read("web/settings.yaml") + "\n---\n" + w.read("web/web.yaml"))
}

// deploys applies a version of web to production as another tool does.
func (w *trial) deploys(tool, version string) {
	w.T.Helper()
	client, err := dynamic.NewForConfig(w.cluster.Config)
	require.NoError(w.T, err)
	for text := range strings.SplitSeq(w.manifestsOf(version), "\n---\n") {
		o := &unstructured.Unstructured{}
		require.NoError(w.T, yaml.Unmarshal([]byte(text), &o.Object))
		resource := strings.ToLower(o.GetKind()) + "s"
		_, err := client.Resource(o.GroupVersionKind().GroupVersion().WithResource(resource)).Namespace(w.production).
			Apply(w.T.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: tool, Force: true})
		require.NoError(w.T, err, text)
	}
}

// Where the runtime has access: read, Converge decides and reports beside the tool that deploys: it recognises what that deploys, says what
// it would apply, and shows it in a plan. It sends no request that could write, dry runs included, and no pod is restarted.
func TestTrialWritesNothing_A25(t *testing.T) {
	t.Parallel()
	w := newTrial(t, "argocd-controller")
	before := w.deployment(w.production, "web")
	w.Publish()
	s := w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.True(t, channelOf(s, "production").ReportOnly)

	w.Release("web", "v2")
	w.AwaitThat("web", "what would be applied", func(s protocol.Status) bool {
		return strings.Contains(reasons(s, "production"), "report only: Converge would apply v2") &&
			strings.Contains(objectOf(s, "production", "Deployment/web").Message, `image "registry.shop.dev/web:v1", declared "registry.shop.dev/web:v2" (written by argocd-controller)`)
	})
	plan, code := w.prompt().Converge("plan", w.App+"/web", "v3")
	require.Zero(t, code, plan)
	require.Contains(t, plan, " production  1 change\n  ~ Deployment/web  env[name=VERSION].value v1 → v3; image registry.shop.dev/web:v1 → registry.shop.dev/web:v3; its pods are replaced\n")
	require.Equal(t, before.Generation, w.deployment(w.production, "web").Generation)

	w.deploys("argocd-controller", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	w.patchWeb(w.production, "kubectl-edit", `{"spec":{"replicas":5}}`)
	w.AwaitThat("web", "drift", func(s protocol.Status) bool {
		return strings.Contains(reasons(s, "production"), "report only: Converge would repair it to v2") && channelOf(s, "production").Status == "DEGRADED"
	})

	record := requestsOf(w.credentials)
	require.NotEmpty(t, record.verbs())
	for _, use := range record.verbs() {
		verb, _, _ := strings.Cut(use, " ")
		require.Contains(t, []string{"get", "list"}, verb, use)
	}
	require.Zero(t, record.writes())
}

// A verb that would write is refused, and a service that is no longer declared there leaves everything as it is.
func TestTrialRefusesWhatWouldWrite_A25(t *testing.T) {
	t.Parallel()
	w := newTrial(t, "helm")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	before := w.deployment(w.production, "web")
	err := w.Update(w.ID("web"), protocol.RestartService, protocol.ScopeRequest{RequestMeta: protocol.RequestMeta{By: "test"}, Channel: "production"}, nil)
	require.ErrorContains(t, err, "its channel is report-only")
	w.edit(configFile, "name: web\n", "name: web\nreleaseChannels: [staging]\n")
	w.edit(configFile, "perReleaseChannel:\n- {releaseChannel: production, parameters: {replicas: 3}}", "")
	w.Publish()
	w.AwaitThat("web", "no production", func(s protocol.Status) bool {
		return s.Incarnation == 2 && strings.Contains(reasons(s, "production"), "no longer declared")
	})
	require.Equal(t, before.ResourceVersion, w.deployment(w.production, "web").ResourceVersion)
	require.Zero(t, requestsOf(w.credentials).writes())
}
