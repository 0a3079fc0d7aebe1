package kubernetes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

func withRemoveForeign(in runtimes.Request) runtimes.Request {
	in.Payload.Kubernetes.RemoveForeign = true
	return in
}

// added is a manual addition by another writer.
const added = `{"spec":{"template":{"spec":{"hostNetwork":true,
	"containers":[{"name":"debug","image":"debug:1","volumeMounts":[{"name":"tmp","mountPath":"/tmp"}]},{"name":"c","image":"web:1","envFrom":[{"configMapRef":{"name":"settings"}}],"env":[{"name":"DEBUG","value":"1"}]}],
	"volumes":[{"name":"tmp","emptyDir":{}}]}}}}`

var sawForeign = []string{
	"spec.template.spec.containers[name=c].env (by kubectl-edit)", "spec.template.spec.containers[name=debug] (by kubectl-edit)",
	"spec.template.spec.hostNetwork (by kubectl-edit)", "spec.template.spec.volumes (by kubectl-edit)",
}

func foreignOf(objects []entities.Object, name string) []string {
	for _, o := range objects {
		if o.Name == name {
			return o.Foreign
		}
	}
	return nil
}

// A field that another writer adds to a workload is reported with that writer, is no drift, and stays. Fields that are never declared
// are not reported.
func TestForeignFieldsAreReported_H2(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", deploymentYAML("web", "web:1", usesSettings), configOf("settings", "a"))
	d.mustApply(v1)
	d.until(v1, "v1", settled("v1"))
	require.Empty(t, foreignOf(d.observe(v1), "web"))
	d.patchAs("kubectl-edit", "Deployment", "web", added)
	d.patchAs("kubectl-rollout", "Deployment", "web", `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"now"}}}}}`)
	seen := d.until(v1, "v1 with a guest", func(objects []entities.Object) bool {
		return settled("v1")(objects) && len(foreignOf(objects, "web")) > 0
	})
	require.Equal(t, sawForeign, foreignOf(seen, "web"))
	require.False(t, entities.FetchObjects(seen, &entities.Target{FullVersion: "v1"}).Drifted)

	v2 := d.instance("v2", deploymentYAML("web", "web:1", usesSettings), configOf("settings", "a"))
	d.mustApply(v2)
	seen = d.until(v2, "v2", settled("v2"))
	require.Equal(t, sawForeign, foreignOf(seen, "web"), "an apply does not remove it")
	ignored := withIgnored(v2, entities.IgnoredDifference{Group: "apps", Kind: "Deployment", Managers: []string{"kubectl-edit"}})
	require.Empty(t, foreignOf(d.until(ignored, "v2", settled("v2")), "web"))
}

// If the payload says so, it is drift and is removed; a plan shows it before.
func TestForeignFieldsAreRemovedIfDeclared_H2_A12(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := withRemoveForeign(d.instance("v1", deploymentYAML("web", "web:1", usesSettings), configOf("settings", "a")))
	d.mustApply(v1)
	d.until(v1, "v1", settled("v1"))
	d.patchAs("kubectl-edit", "Deployment", "web", added)
	d.waitWatchedAs("Deployment", "web")
	seen := d.until(v1, "the guest", func(objects []entities.Object) bool {
		return entities.FetchObjects(objects, &entities.Target{FullVersion: "v1"}).Drifted
	})
	require.Equal(t, sawForeign, foreignOf(seen, "web"))
	plan, err := d.Plan(t.Context(), v1)
	require.NoError(t, err)
	require.Len(t, plan, 1)
	require.Equal(t, "spec.template.spec.hostNetwork", plan[0].Fields[2].Path)
	require.Empty(t, plan[0].Fields[2].New)

	lines := strings.Join(d.mustApply(v1), "\n")
	for _, path := range []string{"containers[name=debug]", "hostNetwork", "volumes", "containers[name=c].env"} {
		require.Contains(t, lines, "removed spec.template.spec."+path+" of Deployment/web, which kubectl-edit had added")
	}
	spec := nestedMap(d.liveObject("Deployment", "web").Object, "spec", "template", "spec")
	require.Len(t, spec["containers"], 1)
	require.NotContains(t, spec, "hostNetwork")
	require.Empty(t, foreignOf(d.until(v1, "v1 alone", settled("v1")), "web"))
	require.Equal(t, []string{"unchanged 2 objects"}, d.mustApply(v1))
}

func TestElementsAreRemovedFromTheEnd_H2(t *testing.T) {
	require.Positive(t, byIndex("/a/10", "/a/9"))
	require.Negative(t, byIndex("/a/1", "/a/2"))
	require.Negative(t, byIndex("/a", "/b"))
}
