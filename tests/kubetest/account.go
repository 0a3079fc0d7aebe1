package kubetest

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Account is a service account and what it may do.
type Account struct {
	Namespace, Name string
	// Rules hold in its namespace, ClusterRules everywhere.
	Rules, ClusterRules []rbacv1.PolicyRule
}

// Account makes a service account and returns the path of a kubeconfig for it, whose only context has its name. The
// token is good for an hour.
func (c *Cluster) Account(t testing.TB, account Account) string {
	t.Helper()
	ctx, create := t.Context(), metav1.CreateOptions{}
	meta := metav1.ObjectMeta{Name: account.Name, Namespace: account.Namespace}
	accounts := c.Client.CoreV1().ServiceAccounts(account.Namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, create); err != nil {
		t.Fatal(err)
	}
	c.allow(t, account)
	c.allowEverywhere(t, account)
	token, err := accounts.CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, create)
	if err != nil {
		t.Fatal(err)
	}
	cluster := &api.Cluster{Server: c.Config.Host, CertificateAuthorityData: c.Config.CAData}
	return writeKubeconfig(t, account.Name, cluster, &api.AuthInfo{Token: token.Status.Token})
}

func (c *Cluster) allow(t testing.TB, account Account) {
	t.Helper()
	if len(account.Rules) == 0 {
		return
	}
	meta := metav1.ObjectMeta{Name: account.Name, Namespace: account.Namespace}
	rbac := c.Client.RbacV1()
	if _, err := rbac.Roles(account.Namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: account.Rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: account.subjects(), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account.Name}}
	if _, err := rbac.RoleBindings(account.Namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c *Cluster) allowEverywhere(t testing.TB, account Account) {
	t.Helper()
	if len(account.ClusterRules) == 0 {
		return
	}
	meta := metav1.ObjectMeta{Name: account.Namespace + "-" + account.Name}
	rbac := c.Client.RbacV1()
	if _, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: account.ClusterRules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: account.subjects(), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}}
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (a Account) subjects() []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: a.Namespace, Name: a.Name}}
}
