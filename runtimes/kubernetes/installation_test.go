package kubernetes

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/runtimes"
)

// asInstallation is an instance of an installation.
func asInstallation(installation string, in runtimes.Request, epoch, sequence int64) runtimes.Request {
	in = withFence(in, epoch, sequence)
	in.Fence.Installation, in.Installation = installation, installation
	return in
}

// messageFor is what an installation observes of an object.
func (d *recordingCluster) messageFor(installation string, in runtimes.Request) string {
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
	d := newTestCluster(t).recording()
	inventory := "converge." + d.namespace + ".web.prod"
	has := "the installation ours (epoch 3), which manages " + d.namespace + "/web in prod at v7"
	first := asInstallation("ours", d.instance("v7", configOf("settings", "a")), 3, 7)
	d.mustApply(first)
	d.waitWatchedAs("ConfigMap", inventory)
	d.waitWatchedAs("ConfigMap", "settings")

	anew := asInstallation("new", d.instance("v1", configOf("settings", "b")), 1, 1)
	d.takeWrites()
	text := d.mustRefuse(anew, true)
	require.Contains(t, text, "apply ConfigMap "+d.namespace+"/settings: it belongs to "+has)
	require.Contains(t, text, "this is the installation new")
	text = d.mustRefuse(asInstallation("new", d.instance("v1", configOf("others", "b")), 1, 1), true)
	require.Contains(t, text, "write ConfigMap "+d.namespace+"/"+inventory+": it belongs to "+has+" (remove it there, or set adopt to take it over; this is the installation new)")
	require.ErrorContains(t, d.Remove(t.Context(), anew), "it belongs to "+has)
	writes, _ := d.takeWrites()
	require.Empty(t, writes)
	require.Equal(t, "it exists, and belongs to "+has, d.messageFor("new", anew))
	plan, err := d.Plan(t.Context(), withPrune(anew))
	require.NoError(t, err)
	require.Len(t, plan, 1)
	require.Equal(t, runtimes.ActionRefuse, plan[0].Action)
	require.Contains(t, plan[0].Message, has)

	moved := asInstallation("ours", d.instance("v8", configOf("settings", "moved")), 4, 1)
	d.mustApply(moved)
	require.Equal(t, moved.Fence, d.recordedFence())
	require.Equal(t, "moved", nestedMap(d.liveObject("ConfigMap", "settings").Object, "data")["a"])
}

// With a consent an installation takes over, once. The earlier installation is refused from then on, even with a consent, until a
// person allows it to take the object back.
func TestAnInstallationTakesOverWithConsent_H10(t *testing.T) {
	d := newTestCluster(t).recording()
	inventory := "converge." + d.namespace + ".web.prod"
	caughtUp := func() { d.waitWatchedAs("ConfigMap", inventory); d.waitWatchedAs("ConfigMap", "settings") }
	first := withAdopt(asInstallation("ours", d.instance("v7", configOf("settings", "a")), 3, 7))
	second := withAdopt(asInstallation("new", d.instance("v1", configOf("settings", "b")), 1, 1))
	d.mustApply(first)
	caughtUp()
	require.Contains(t, d.mustApply(second), "took over from the installation ours, which had v7 here")
	require.Equal(t, second.Fence, d.recordedFence())
	caughtUp()
	require.Equal(t, []string{"unchanged 1 object"}, d.mustApply(second))

	text := d.mustRefuse(first, true)
	require.Contains(t, text, "it belongs to the installation new (epoch 1), which manages "+d.namespace+"/web in prod at v1, and took it over from this one "+
		"(to get it back, remove it there, or: kubectl -n "+d.namespace+" annotate configmap "+inventory+" converge/fence- converge/taken-from-)")
	d.patchAs("kubectl-annotate", "ConfigMap", inventory, `{"metadata": {"annotations": {"converge/fence": null, "converge/taken-from": null}}}`)
	caughtUp()
	d.mustApply(first)
	require.Equal(t, "a", nestedMap(d.liveObject("ConfigMap", "settings").Object, "data")["a"])
}

// Two installations in namespaces of their own leave each other alone: neither reports, prunes or removes what is the other's,
// and what both would have once in the cluster is refused.
func TestInstallationsInSeparateNamespaces_H10(t *testing.T) {
	d := newTestCluster(t).recording()
	there := d.namespace + "-new"
	_, err := d.admin.typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: there}}, metav1.CreateOptions{})
	require.NoError(t, err)
	role := "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: " + d.namespace + "}, rules: []}"
	t.Cleanup(func() {
		_ = d.admin.typed.RbacV1().ClusterRoles().Delete(context.Background(), d.namespace, metav1.DeleteOptions{})
	})
	in := func(installation string, objects ...string) runtimes.Request {
		in := asInstallation(installation, d.instance("v1", objects...), 1, 1)
		if installation == "new" {
			in.Payload.Address = map[string]string{"namespace": there}
		}
		return withPrune(in)
	}
	d.mustApply(in("ours", configOf("settings", "a"), role))
	d.waitWatchedAs("ConfigMap", "converge."+d.namespace+".web.prod")
	d.waitWatchedAs("ConfigMap", "settings")

	require.Contains(t, d.mustRefuse(in("new", configOf("settings", "b"), role), true), "apply ClusterRole "+d.namespace+": it belongs to the installation ours (epoch 1)")
	alone := in("new", configOf("settings", "b"))
	require.Equal(t, []string{"created ConfigMap/settings"}, d.mustApply(alone))
	objects, err := d.Observe(t.Context(), alone)
	require.NoError(t, err)
	require.Len(t, objects, 1, "objects of the other installation are no orphans")
	require.NoError(t, d.Remove(t.Context(), alone))
	require.Equal(t, "a", nestedMap(d.liveObject("ConfigMap", "settings").Object, "data")["a"])
	require.NotNil(t, d.liveObject("ConfigMap", "converge."+d.namespace+".web.prod"))

	consenting := in("new", configOf("settings", "b"), role)
	d.mustApply(withAdopt(consenting))
	require.Contains(t, d.mustRefuse(withAdopt(in("ours", configOf("settings", "a"), role)), true), "apply ClusterRole "+d.namespace+": it belongs to the installation new (epoch 1)")
}

// An object of another service that another installation has is refused as ever, and says whose it is.
func TestTheInstallationOfAnotherServiceIsNamed_H10_D11(t *testing.T) {
	d := newTestCluster(t).recording()
	d.mustApply(asInstallation("ours", inChannel(d.instance("v7", configOf("settings", "a")), "beta"), 3, 7))
	d.waitWatchedAs("ConfigMap", "converge."+d.namespace+".web.beta")
	require.Contains(t, d.mustRefuse(asInstallation("new", d.instance("v1", configOf("settings", "b")), 1, 1), false),
		"it belongs to "+d.namespace+"/web in beta, of the installation ours (epoch 3); one object has one owner")
}
