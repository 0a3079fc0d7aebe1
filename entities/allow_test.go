package entities

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRuntimeAllow_G8(t *testing.T) {
	d := RuntimeDefinition{Name: "eks", Owner: "platform", Allow: &RuntimeAllow{
		Applications: []string{"shop", "team-*"}, Namespaces: []string{"shop", "shop-*"}, ServiceAccounts: []string{"deployer-*", "ci/robot"},
		Kinds: []AllowedKind{{Group: "apps", Kind: "*"}, {Kind: "ConfigMap"}, {Group: "*.shop.dev", Kind: "*"}, {Kind: "Namespace"}},
	}}
	for _, row := range []struct{ application, namespace, account, why string }{
		{"shop", "shop", "deployer-eu", ""},
		{"team-a", "shop-eu", "ci/robot", ""},
		{"platform", "shop", "deployer-eu", ""},
		{"shopping", "shop", "deployer-eu", `runtime eks is not for application shopping; its owner allows one of shop, team-*`},
		{"shop", "kube-system", "deployer-eu", `runtime eks is not for namespace "kube-system"; its owner allows one of shop, shop-*`},
		{"platform", "", "deployer-eu", `runtime eks is not for namespace ""; its owner allows one of shop, shop-*`},
		{"shop", "shop", "", `runtime eks requires a service account, one of deployer-*, ci/robot; the release channel names ""`},
		{"shop", "shop", "kube-system/deployer-eu", `runtime eks requires a service account, one of deployer-*, ci/robot; the release channel names "kube-system/deployer-eu"`},
	} {
		require.Equal(t, row.why, d.DenialReason(row.application, map[string]string{AddressNamespace: row.namespace, AddressServiceAccount: row.account}), row)
	}
	for _, row := range []struct{ group, kind, namespace, why string }{
		{"apps", "Deployment", "shop", ""},
		{"", "ConfigMap", "shop-eu", ""},
		{"db.shop.dev", "Database", "shop", ""},
		{"", "Namespace", "", ""},
		{"", "Secret", "shop", "is not for Secret; its owner allows one of *.apps, ConfigMap, *.*.shop.dev, Namespace"},
		{"apps", "Deployment", "kube-system", `is not for namespace "kube-system"; its owner allows one of shop, shop-*`},
		{"rbac.authorization.k8s.io", "ClusterRoleBinding", "", "is not for ClusterRoleBinding.rbac.authorization.k8s.io; its owner allows one of *.apps, ConfigMap, *.*.shop.dev, Namespace"},
		{"db.shop.dev", "Cluster", "", "is not for Cluster.db.shop.dev, which is cluster-scoped; its owner allows namespaces, and does not list this kind"},
	} {
		require.Equal(t, row.why, d.Allow.ObjectDenial(AllowedKind{row.group, row.kind}, row.namespace), row)
	}
	require.Empty(t, d.DenialReason("shop", nil), "nothing was ever applied")
	require.NotEmpty(t, d.DenialReason("shopping", nil))
	require.Empty(t, RuntimeDefinition{}.DenialReason("any", nil))
	require.Empty(t, (*RuntimeAllow)(nil).ObjectDenial(AllowedKind{"", "Secret"}, "any"))
	onlyNamespaces := &RuntimeAllow{Namespaces: []string{"*"}}
	require.NotEmpty(t, onlyNamespaces.ObjectDenial(AllowedKind{"rbac.authorization.k8s.io", "ClusterRole"}, ""), "it would affect all of them")
}
