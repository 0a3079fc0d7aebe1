package kubernetes

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorization "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/converge-engine/converge/runtimes"
)

// When rights over all namespaces are withdrawn, those in the namespace serve.
func TestRightsThatShrink(t *testing.T) {
	b := newTestCluster(t, as("shrinking"))
	v1 := b.instance("v1", config)
	b.put(v1)
	all := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "patch"}}}
	b.grant("shrinking", b.namespace, all...)
	rbac, name := b.admin.typed.RbacV1(), b.namespace
	_, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: all}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "shrinking"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	withdraw := func() {
		_ = rbac.ClusterRoleBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
		_ = rbac.ClusterRoles().Delete(context.Background(), name, metav1.DeleteOptions{})
	}
	t.Cleanup(withdraw)
	b.waitAllowed("shrinking", "list", "watch") // a no that came too early would be believed for minutes

	configMaps, err := b.cluster.resource(t.Context(), kindInventory)
	require.NoError(t, err)
	scope := func() string {
		v, err := b.cluster.view(t.Context(), configMaps, b.namespace)
		if err != nil {
			return err.Error()
		}
		return v.namespace
	}
	b.wait("rights over all namespaces", func() bool { return scope() == "" }, func() any { return scope() })
	b.until(v1, "v1", settled("v1"))
	withdraw()
	b.proxy.shut() // an open watch continues without the right to it
	b.proxy.unlock()
	b.wait("rights in the namespace", func() bool { return scope() == b.namespace }, func() any { return scope() })
	b.until(v1, "v1 in the namespace", settled("v1"))
}

// waitAllowed waits until the server knows that a user may do this with ConfigMaps in all namespaces: it
// answers from what it has heard of roles so far.
func (b *testCluster) waitAllowed(user string, verbs ...string) {
	b.Helper()
	reviews := b.admin.typed.AuthorizationV1().SubjectAccessReviews()
	for _, verb := range verbs {
		var last *authorization.SubjectAccessReview
		b.wait(user+" may "+verb, func() (allowed bool) {
			asked := &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
				User: user, ResourceAttributes: &authorization.ResourceAttributes{Version: "v1", Resource: "configmaps", Verb: verb},
			}}
			answer, err := reviews.Create(b.Context(), asked, metav1.CreateOptions{})
			require.NoError(b, err)
			last = answer
			return answer.Status.Allowed
		}, func() any { return last })
	}
}

// A worker that may list and not watch would see an outdated state: that is no reading.
func TestListingWithoutWatchingIsNoReading(t *testing.T) {
	b := newTestCluster(t, as("blind"))
	b.grant("blind", b.namespace, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}})
	v1 := b.instance("v1", config)
	b.put(v1)
	err := b.untilError(v1, runtimes.CodeForbidden)
	b.wait("the right that is missing", func() bool {
		_, err = b.Observe(t.Context(), v1)
		require.True(t, hasCode(err, runtimes.CodeForbidden), err) // and never a reading in between
		return b.requests.Load() > 12                              // listed again several times
	}, func() any { return err })
	require.Contains(t, err.Error(), `cannot watch resource "configmaps"`)
}

// An expired token is no reason to restart: the kubeconfig is read again.
func TestRenewedCredentials(t *testing.T) {
	var good clientcmdapi.AuthInfo
	b := newTestCluster(t, func(user *clientcmdapi.AuthInfo) {
		good = *user
		*user = clientcmdapi.AuthInfo{Token: "expired"}
	})
	v1 := b.instance("v1", config)
	b.untilError(v1, runtimes.CodeUnauthorized)
	path := b.def.Kubernetes.Kubeconfig
	file, err := clientcmd.LoadFromFile(path)
	require.NoError(t, err)
	for name := range file.AuthInfos {
		file.AuthInfos[name] = &good
	}
	require.NoError(t, clientcmd.WriteToFile(*file, path))
	hints := b.hintsOf()
	b.wait("a reading", func() bool { _, err = b.Observe(t.Context(), v1); return err == nil }, func() any { return err })
	b.put(v1)
	b.until(v1, "v1", settled("v1"))
	b.waitHint(hints)
}

// Unread views do not continue forever.
func TestUnreadViewsEnd(t *testing.T) {
	b := newTestCluster(t)
	of := func(kind string) *view {
		gvk := kindInventory
		gvk.Kind = kind
		r, err := b.cluster.resource(t.Context(), gvk)
		require.NoError(t, err)
		v, err := b.cluster.view(t.Context(), r, b.namespace)
		require.NoError(t, err)
		return v
	}
	unwanted, wanted := of("ConfigMap"), of("Service")
	unwanted.mu.Lock()
	unwanted.lastRead = time.Now().Add(-unreadTimeout - time.Minute)
	unwanted.mu.Unlock()
	of("ServiceAccount")
	<-unwanted.ended
	require.Same(t, wanted, of("Service"))
	require.NotSame(t, unwanted, of("ConfigMap"))
}
