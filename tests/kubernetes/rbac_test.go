package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/converge-engine/converge/entities/protocol"
	kubeapi "github.com/converge-engine/converge/runtimes/kubernetes/api"
	"github.com/converge-engine/converge/runtimes/kubernetes/job"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/kubetest"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// deployed reads the objects of a manifest of deploy/kubernetes.
func deployed(t *testing.T, name string) (all []runtime.Object) {
	t.Helper()
	file, err := os.Open(filepath.Join("../../deploy/kubernetes", name))
	require.NoError(t, err)
	defer file.Close()
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		var raw runtime.RawExtension
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			require.NotEmpty(t, all, name)
			return all
		}
		require.NoError(t, err, name)
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw.Raw, nil, nil)
		require.NoError(t, err, "%s: %s", name, raw.Raw)
		all = append(all, o)
	}
}

// account is a service account that may do what the rules of the chart grant, and no more.
type account struct {
	kubeconfig string
	rules      []rbacv1.PolicyRule
}

// grant makes an account of the test's own in one namespace and grants it what the manifests grant by one of the sets of rules in
// deploy/chart/files: everywhere (cluster), or in the namespaces given (namespaced, jobs).
func grant(t *testing.T, c *kubetest.Cluster, rules, home string, namespaces ...string) account {
	t.Helper()
	named := rules + "-" + home
	made := account{kubeconfig: accountKubeconfig(t, c, home, named)}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: named, Namespace: home}}
	rbac, ctx, o := c.Client.RbacV1(), t.Context(), metav1.CreateOptions{}
	manifest := "namespaced.yaml"
	if rules == "cluster" {
		manifest = "cluster-wide.yaml"
	}
	for _, object := range deployed(t, manifest) {
		var err error
		switch object := object.(type) {
		case *rbacv1.ClusterRole:
			made.rules = object.Rules
			object.Name = named
			_, err = rbac.ClusterRoles().Create(ctx, object, o)
			t.Cleanup(func() { _ = rbac.ClusterRoles().Delete(context.Background(), named, metav1.DeleteOptions{}) })
		case *rbacv1.ClusterRoleBinding:
			object.Name, object.RoleRef.Name, object.Subjects = named, named, subjects
			_, err = rbac.ClusterRoleBindings().Create(ctx, object, o)
			t.Cleanup(func() { _ = rbac.ClusterRoleBindings().Delete(context.Background(), named, metav1.DeleteOptions{}) })
		case *rbacv1.Role:
			if !strings.HasSuffix(object.Name, "-"+rules) {
				continue
			}
			made.rules = object.Rules
			for _, namespace := range namespaces {
				object.Namespace = namespace
				_, err = rbac.Roles(namespace).Create(ctx, object.DeepCopy(), o)
				require.NoError(t, err)
			}
		case *rbacv1.RoleBinding:
			require.Equal(t, []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "converge", Namespace: "converge"}}, object.Subjects)
			if !strings.HasSuffix(object.RoleRef.Name, "-"+rules) {
				continue
			}
			object.Subjects = subjects
			for _, namespace := range namespaces {
				object.Namespace = namespace
				_, err = rbac.RoleBindings(namespace).Create(ctx, object.DeepCopy(), o)
				require.NoError(t, err)
			}
		}
		require.NoError(t, err)
	}
	require.NotEmpty(t, made.rules, rules)
	return made
}

// accountKubeconfig makes a service account and a kubeconfig with its token.
func accountKubeconfig(t testing.TB, c *kubetest.Cluster, namespace, name string) string {
	t.Helper()
	accounts := c.Client.CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	config := api.NewConfig()
	config.Clusters[c.Name] = &api.Cluster{Server: c.Config.Host, CertificateAuthorityData: c.Config.CAData}
	config.AuthInfos[name] = &api.AuthInfo{Token: token.Status.Token}
	config.Contexts[c.Name] = &api.Context{Cluster: c.Name, AuthInfo: name}
	config.CurrentContext = c.Name
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}

// unused lists the rights that were granted and not made use of.
func (a account) unused(used []string) (all []string) {
	for _, rule := range a.rules {
		for _, resource := range rule.Resources {
			if rule.APIGroups[0] != "" {
				resource += "." + rule.APIGroups[0]
			}
			for _, verb := range rule.Verbs {
				if !slices.Contains(used, verb+" "+resource) {
					all = append(all, verb+" "+resource)
				}
			}
		}
	}
	return all
}

const everyKind = "testdata/every-kind.yaml"

// everyKindOf is a service with one object of every kind, applied by an account. The namespace with what else it declares
// is APP-more.
func everyKindOf(t *testing.T, c *kubetest.Cluster, as account, namespace, more string) *kubeWorld {
	t.Helper()
	w := &kubeWorld{World: shared.World(t), cluster: c, staging: namespace}
	w.Write(fmt.Sprintf(`apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: staging, runtimes: [{name: APP-rt, namespace: %s}]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
kubernetes: %s
---
apiVersion: converge/v1
kind: Service
name: all
kubernetes: {manifests: [all.yaml], prune: true}
`, namespace, strings.NewReplacer("KUBECONFIG", as.kubeconfig, "CONTEXT", c.Name).Replace(kubeRuntime)))
	manifest, err := os.ReadFile(everyKind)
	require.NoError(t, err)
	w.save("all.yaml", string(manifest)+more)
	t.Cleanup(func() { w.Retire("all") })
	return w
}

// live is a life of that service: made, repaired, failing, changed, and pruned down to one object.
func (w *kubeWorld) live() {
	w.T.Helper()
	w.Publish()
	w.Release("all", "v1")
	w.bindClaim()
	w.Await("all", "staging CONVERGED v1")
	w.Release("all", "nopull")
	w.Await("all", "staging ROLLED_BACK v1")
	w.Release("all", "v2")
	w.Await("all", "staging CONVERGED v2")

	maps := w.cluster.Client.CoreV1().ConfigMaps(w.staging)
	settings, err := maps.Get(w.T.Context(), "stays", metav1.GetOptions{})
	require.NoError(w.T, err)
	settings.Data["version"] = "by hand"
	_, err = maps.Update(w.T.Context(), settings, metav1.UpdateOptions{FieldManager: "kubectl-edit"})
	require.NoError(w.T, err)
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		settings, err := maps.Get(w.T.Context(), "stays", metav1.GetOptions{})
		return err == nil && settings.Data["version"] == "v2", fmt.Sprint(settings.Data)
	})

	w.save("all.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: stays}\n")
	w.Publish()
	w.AwaitThat("all", "all pruned", func(s protocol.Status) bool {
		return channelOf(s, "staging").Status == "CONVERGED" && channelOf(s, "staging").Current == "v2-i2"
	})
}

// bindClaim does what a provisioner would.
func (w *kubeWorld) bindClaim() {
	w.T.Helper()
	claims := w.cluster.Client.CoreV1().PersistentVolumeClaims(w.staging)
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		claim, err := claims.Get(w.T.Context(), "all", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		claim.Status.Phase = corev1.ClaimBound
		_, err = claims.UpdateStatus(w.T.Context(), claim, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// The rights of deploy/chart/files/cluster.yaml are enough for a life of a service, and none is superfluous.
func TestKubernetesRightsClusterWide(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	home := c.Namespace(t)
	as := grant(t, c, "cluster", home)
	w := everyKindOf(t, c, as, home, "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: "+home+"-more}\n")
	t.Cleanup(func() {
		_ = c.Client.CoreV1().Namespaces().Delete(context.Background(), home+"-more", metav1.DeleteOptions{})
	})
	w.live()
	require.Empty(t, as.unused(requestsOf(as.kubeconfig).verbs()))
	_, err := c.Client.CoreV1().Namespaces().Get(t.Context(), home+"-more", metav1.GetOptions{})
	require.NoError(t, err, "a namespace is never pruned")
}

// Those of namespaced.yaml are enough in the namespaces where they are granted, and give none elsewhere.
func TestKubernetesRightsPerNamespace(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	home, elsewhere := c.Namespace(t), c.Namespace(t)
	as := grant(t, c, "namespaced", home, home)
	w := everyKindOf(t, c, as, home, "")
	w.live()
	require.Empty(t, as.unused(requestsOf(as.kubeconfig).verbs()))

	w = everyKindOf(t, c, as, elsewhere, "")
	w.Publish()
	w.Release("all", "v1")
	s := w.AwaitThat("all", "a refused apply", func(s protocol.Status) bool { return strings.Contains(reasons(s, "staging"), "apply failed") })
	require.Equal(t, "UNKNOWN", channelOf(s, "staging").Status)
	require.Contains(t, reasons(s, "staging"), "cannot get resource")
}

// Those of jobs.yaml are enough for a command with files and secrets, and none is superfluous.
func TestKubernetesRightsForJobs(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	home := c.Namespace(t)
	as := grant(t, c, "jobs", home, home)
	config, err := clientcmd.BuildConfigFromFlags("", as.kubeconfig)
	require.NoError(t, err)
	record := requestsOf(as.kubeconfig)
	config.Wrap(record.clusters.WrapTransport)
	client, err := kubeapi.New(config, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), stage.Patience)
	defer cancel()
	var result job.Result
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // a server learns of new rights in a moment
		result, err = job.Run(ctx, client, job.Request{
			Namespace: home, Purpose: "apply", Prefix: "web", One: "web", Key: "1", Image: "tools:1", Timeout: stage.Patience - time.Second,
			Command: []string{"sh", "-c", "echo $TOKEN; cat $FILES/name"}, Secrets: map[string]string{"TOKEN": "secret"},
			Files: map[string]string{"name": "file"}, FilesVariable: "FILES",
		})
		return err == nil || !strings.Contains(err.Error(), "forbidden"), fmt.Sprint(err)
	})
	require.NoError(t, err)
	require.Equal(t, "secret\nfile", strings.TrimSpace(string(result.Stdout)))
	// A server that is older than its watches that begin with a list is listed.
	require.ElementsMatch(t, []string{"list jobs.batch", "list pods", "list events"}, as.unused(record.verbs()))
}

// Both manifests are applied as they lie there, each twice, in the order of their objects. The workers run in a namespace with the standard
// "restricted", and no object lands in another namespace than the file says.
func TestKubernetesPlainManifests(t *testing.T) {
	t.Parallel()
	c := kubetest.Own(t)[0]
	client := newServer(t, c)
	for _, namespace := range []string{"shop-production", "shop-jobs"} { // those of namespaced.yaml
		_, err := c.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, manifest := range []string{"cluster-wide.yaml", "cluster-wide.yaml", "namespaced.yaml", "namespaced.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../deploy/kubernetes", manifest))
		require.NoError(t, err)
		for object := range strings.SplitSeq(string(text), "\n---\n") {
			require.NoError(t, client.apply(t, object), object)
		}
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			d, err := c.Client.AppsV1().Deployments("converge").Get(t.Context(), "converge-worker-production", metav1.GetOptions{})
			return err == nil && d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == *d.Spec.Replicas, fmt.Sprint(d, err)
		})
	}
	for _, namespace := range []string{client.namespace, "default"} {
		roles, err := c.Client.RbacV1().Roles(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Empty(t, roles.Items)
		deployments, err := c.Client.AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Empty(t, deployments.Items)
	}
}
