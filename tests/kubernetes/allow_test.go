package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/kubetest"
)

// oneObject is a service with what a manifest declares, whose worker may do everything in the cluster.
func oneObject(t *testing.T, c *kubetest.Cluster, in, allow string) *kubeWorld {
	t.Helper()
	w := &kubeWorld{World: shared.World(t), cluster: c}
	w.Write(fmt.Sprintf(`apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: staging, runtimes: [{name: APP-rt, %s}]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
%skubernetes: %s
---
apiVersion: converge/v1
kind: Service
name: all
autoRollback: false
kubernetes: {manifests: [all.yaml]}
`, in, allow, strings.NewReplacer("KUBECONFIG", c.Kubeconfig, "CONTEXT", c.Name).Replace(kubeRuntime)))
	t.Cleanup(func() { w.Retire("all") })
	return w
}

const settingsIn = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: %s}\ndata: {a: b}\n---\n"

// With the worker's rights over the whole cluster, an instance has those of the service account that its channel names: it
// applies where that may, and nowhere else.
func TestKubernetesActsAsTheServiceAccountOfTheChannel_G8(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	home, elsewhere := c.Namespace(t), c.Namespace(t)
	grant(t, c, "namespaced", home, home)
	account := "namespaced-" + home
	w := oneObject(t, c, "namespace: "+home+", serviceAccount: "+account, "allow: {serviceAccounts: [namespaced-*]}\n")
	w.save("all.yaml", fmt.Sprintf(settingsIn, home))
	w.Publish()
	w.Release("all", "v1")
	w.Await("all", "staging CONVERGED v1")

	w.save("all.yaml", fmt.Sprintf(settingsIn, home)+fmt.Sprintf(settingsIn, elsewhere))
	w.Publish()
	s := w.AwaitThat("all", "a refusal by the server", func(s protocol.Status) bool {
		return strings.Contains(reasons(s, "staging"), "system:serviceaccount:"+home+":"+account)
	})
	require.Contains(t, reasons(s, "staging"), "forbidden")
	_, err := c.Client.CoreV1().ConfigMaps(elsewhere).Get(t.Context(), "settings", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

// What a runtime's owner does not allow is not applied, and says why: another namespace, another kind, what belongs to the
// whole cluster.
func TestKubernetesAppliesOnlyWhatIsAllowed_G8(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	home, elsewhere := c.Namespace(t), c.Namespace(t)
	w := oneObject(t, c, "namespace: "+home, "allow: {namespaces: ["+home+"], kinds: [{kind: ConfigMap}, {group: '*.k8s.io', kind: '*'}]}\n")
	w.save("all.yaml", fmt.Sprintf(settingsIn, home))
	w.Publish()
	w.Release("all", "v1")
	w.Await("all", "staging CONVERGED v1")

	w.save("all.yaml", fmt.Sprintf(settingsIn, home)+fmt.Sprintf(settingsIn, elsewhere)+
		"apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {a: b}\n---\n"+
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: "+home+"}\nrules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]\n")
	w.Publish()
	s := w.AwaitThat("all", "a refusal", func(s protocol.Status) bool { return channelOf(s, "staging").Status == "FAILED" })
	for _, why := range []string{
		`is not for namespace "` + elsewhere + `"; its owner allows one of ` + home,
		"is not for Secret; its owner allows one of ConfigMap, *.*.k8s.io",
		"is not for ClusterRole.rbac.authorization.k8s.io, which is cluster-scoped",
	} {
		require.Contains(t, reasons(s, "staging"), why)
	}
	_, err := c.Client.RbacV1().ClusterRoles().Get(t.Context(), home, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	_, err = c.Client.CoreV1().Secrets(home).Get(t.Context(), "key", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}
