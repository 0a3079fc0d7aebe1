package kubernetes

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/runtimes"
)

// of is an instance of an installation.
func of(installation string, in runtimes.Instance, epoch, sequence int64) runtimes.Instance {
	in = fenced(in, epoch, sequence)
	in.Fence.Installation, in.Installation = installation, installation
	return in
}

// seenBy is what an installation observes of an object.
func (d *desk) seenBy(installation string, in runtimes.Instance) string {
	d.Helper()
	in.Installation = installation
	objects, err := d.Observe(d.Context(), in)
	require.NoError(d, err)
	require.NotEmpty(d, objects)
	return objects[0].Message
}

// Two installations with a service of the same name in the same namespace refuse each other's objects, by name, and say which
// installation has them. Neither repairs, prunes nor removes what is the other's. One that was moved is still the same.
func TestTwoInstallationsRefuseEachOther_H10(t *testing.T) {
	d := reach(t).desk()
	inventory := "converge." + d.namespace + ".web.prod"
	has := "the installation ours (epoch 3), which manages " + d.namespace + "/web in prod at v7"
	first := of("ours", d.instance("v7", configOf("settings", "a")), 3, 7)
	d.applied(first)
	d.caughtUp("ConfigMap", inventory)
	d.caughtUp("ConfigMap", "settings")

	anew := of("new", d.instance("v1", configOf("settings", "b")), 1, 1)
	d.wrote()
	text := d.refused(anew, true)
	require.Contains(t, text, "apply ConfigMap "+d.namespace+"/settings: it belongs to "+has)
	require.Contains(t, text, "this is the installation new")
	text = d.refused(of("new", d.instance("v1", configOf("others", "b")), 1, 1), true)
	require.Contains(t, text, "write ConfigMap "+d.namespace+"/"+inventory+": it belongs to "+has+" (remove it there, or set adopt to take it over; this is the installation new)")
	require.ErrorContains(t, d.Remove(t.Context(), anew), "it belongs to "+has)
	writes, _ := d.wrote()
	require.Empty(t, writes)
	require.Equal(t, "it exists, and belongs to "+has, d.seenBy("new", anew))
	plan, err := d.Plan(t.Context(), pruning(anew))
	require.NoError(t, err)
	require.Len(t, plan, 1)
	require.Equal(t, runtimes.ActionRefuse, plan[0].Action)
	require.Contains(t, plan[0].Message, has)

	moved := of("ours", d.instance("v8", configOf("settings", "moved")), 4, 1)
	d.applied(moved)
	require.Equal(t, moved.Fence, d.stands())
	require.Equal(t, "moved", inside(d.there("ConfigMap", "settings").Object, "data")["a"])
}

// With consent one takes over, once: who was taken from is refused from then on, whatever it consents to, until somebody says that
// it may have it back.
func TestAnInstallationTakesOverWithConsent_H10(t *testing.T) {
	d := reach(t).desk()
	inventory := "converge." + d.namespace + ".web.prod"
	caughtUp := func() { d.caughtUp("ConfigMap", inventory); d.caughtUp("ConfigMap", "settings") }
	first := adopting(of("ours", d.instance("v7", configOf("settings", "a")), 3, 7))
	second := adopting(of("new", d.instance("v1", configOf("settings", "b")), 1, 1))
	d.applied(first)
	caughtUp()
	require.Contains(t, d.applied(second), "took over from the installation ours, which had v7 here")
	require.Equal(t, second.Fence, d.stands())
	caughtUp()
	require.Equal(t, []string{"unchanged 1 object"}, d.applied(second))

	text := d.refused(first, true)
	require.Contains(t, text, "it belongs to the installation new (epoch 1), which manages "+d.namespace+"/web in prod at v1, and took it over from this one "+
		"(to get it back, remove it there, or: kubectl -n "+d.namespace+" annotate configmap "+inventory+" converge/fence- converge/taken-from-)")
	d.edits("kubectl-annotate", "ConfigMap", inventory, `{"metadata": {"annotations": {"converge/fence": null, "converge/taken-from": null}}}`)
	caughtUp()
	d.applied(first)
	require.Equal(t, "a", inside(d.there("ConfigMap", "settings").Object, "data")["a"])
}

// Two installations in namespaces of their own leave each other alone: neither reports, prunes or removes what is the other's,
// and what both would have once in the cluster is refused.
func TestInstallationsInNamespacesOfTheirOwn_H10(t *testing.T) {
	d := reach(t).desk()
	there := d.namespace + "-new"
	_, err := d.admin.typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: there}}, metav1.CreateOptions{})
	require.NoError(t, err)
	role := "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: " + d.namespace + "}, rules: []}"
	t.Cleanup(func() {
		_ = d.admin.typed.RbacV1().ClusterRoles().Delete(context.Background(), d.namespace, metav1.DeleteOptions{})
	})
	in := func(installation string, objects ...string) runtimes.Instance {
		in := of(installation, d.instance("v1", objects...), 1, 1)
		if installation == "new" {
			in.Payload.Address = map[string]string{"namespace": there}
		}
		return pruning(in)
	}
	d.applied(in("ours", configOf("settings", "a"), role))
	d.caughtUp("ConfigMap", "converge."+d.namespace+".web.prod")
	d.caughtUp("ConfigMap", "settings")

	require.Contains(t, d.refused(in("new", configOf("settings", "b"), role), true), "apply ClusterRole "+d.namespace+": it belongs to the installation ours (epoch 1)")
	alone := in("new", configOf("settings", "b"))
	require.Equal(t, []string{"created ConfigMap/settings"}, d.applied(alone))
	objects, err := d.Observe(t.Context(), alone)
	require.NoError(t, err)
	require.Len(t, objects, 1, "objects of the other installation are no orphans")
	require.NoError(t, d.Remove(t.Context(), alone))
	require.Equal(t, "a", inside(d.there("ConfigMap", "settings").Object, "data")["a"])
	require.NotNil(t, d.there("ConfigMap", "converge."+d.namespace+".web.prod"))

	consenting := in("new", configOf("settings", "b"), role)
	d.applied(adopting(consenting))
	require.Contains(t, d.refused(adopting(in("ours", configOf("settings", "a"), role)), true), "apply ClusterRole "+d.namespace+": it belongs to the installation new (epoch 1)")
}

// An object of another service that another installation has is refused as ever, and says whose it is.
func TestAnothersServiceIsNamedWithItsInstallation_H10_D11(t *testing.T) {
	d := reach(t).desk()
	d.applied(of("ours", other(d.instance("v7", configOf("settings", "a")), "beta"), 3, 7))
	d.caughtUp("ConfigMap", "converge."+d.namespace+".web.beta")
	require.Contains(t, d.refused(of("new", d.instance("v1", configOf("settings", "b")), 1, 1), false),
		"it belongs to "+d.namespace+"/web in beta, of the installation ours (epoch 3); one object has one owner")
}
