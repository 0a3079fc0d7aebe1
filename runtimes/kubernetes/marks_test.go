package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// writeAs writes objects as a tool does that does not apply on the server.
func (d *recordingCluster) writeAs(tool string, objects ...string) {
	d.Helper()
	for _, text := range objects {
		o := &unstructured.Unstructured{}
		require.NoError(d, yaml.Unmarshal([]byte(text), &o.Object))
		r, err := d.cluster.resource(d.Context(), o.GroupVersionKind())
		require.NoError(d, err)
		_, err = d.admin.resourceClient(r, d.namespace).Create(d.Context(), o, metav1.CreateOptions{FieldManager: tool})
		require.NoError(d, err)
	}
}

// waitPods waits until every one of some workloads of one pod has it, ready.
func (d *recordingCluster) waitPods(apps ...string) {
	d.Helper()
	d.wait("the pods", func() bool {
		list, err := d.admin.typed.CoreV1().Pods(d.namespace).List(d.Context(), metav1.ListOptions{})
		require.NoError(d, err)
		ready := map[string]bool{}
		for i := range list.Items {
			for _, c := range list.Items[i].Status.Conditions {
				if c.Type == "Ready" && c.Status == "True" {
					ready[list.Items[i].Labels["app"]] = true
				}
			}
		}
		return !slices.ContainsFunc(apps, func(app string) bool { return !ready[app] })
	}, func() any { return d.pods() })
}

// liveWorkload is a workload as the server has it.
func (d *recordingCluster) liveWorkload(kind, name string) *unstructured.Unstructured {
	d.Helper()
	r, err := d.cluster.resource(d.Context(), schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind})
	require.NoError(d, err)
	o, err := d.admin.resourceClient(r, d.namespace).Get(d.Context(), name, metav1.GetOptions{})
	require.NoError(d, err)
	return o
}

// planned are the messages of a plan, by object.
func (d *recordingCluster) planned(in runtimes.Request) map[string]string {
	d.Helper()
	changes, err := d.Plan(d.Context(), in)
	require.NoError(d, err)
	messages := map[string]string{}
	for _, c := range changes {
		require.NotEqual(d, runtimes.ActionRefuse, c.Action, c)
		messages[c.Type+"/"+c.Name] = c.Message
		if c.Replaces != nil {
			messages[c.Type+"/"+c.Name] = joinTexts(c.Message, c.Replaces.String())
		}
	}
	return messages
}

// agentYAML is a DaemonSet.
func agentYAML(image string) string {
	return strings.Replace(workloadYAML("DaemonSet", "agent", image, ""), "serviceName: x, ", "", 1)
}

// An adoption replaces no pod of any kind of workload and runs no Job again, whichever tool wrote the objects. Versions that do not
// change a template replace no pod either. The first change of a template replaces the pods of that workload, and marks it. The
// plan names each workload whose pods are replaced, and why.
func TestAdoptionReplacesNoPod_H7(t *testing.T) {
	at := func(d *recordingCluster, version, image string, unavailable int) runtimes.Request {
		return withAdopt(d.instance(version, deploymentYAML("web", image, ""), workloadYAML("StatefulSet", "db", "db:1", ""), agentYAML("agent:1"),
			deploymentYAML("uses", "uses:1", usesSettings), jobNamedYAML("once"), budgetYAML(unavailable), configOf("settings", "a")))
	}
	all := []string{"web", "db", "agent", "uses"}
	for _, tool := range []string{"kubectl-client-side-apply", "helm", "argocd-controller", "somebody"} {
		t.Run(tool, func(t *testing.T) {
			d := newTestCluster(t).recording()
			d.writeAs(tool, deploymentYAML("web", "web:1", ""), workloadYAML("StatefulSet", "db", "db:1", ""), agentYAML("agent:1"),
				deploymentYAML("uses", "uses:1", usesSettings), jobNamedYAML("once"), configOf("settings", "a"))
			d.waitPods(all...)
			first, job := d.pods(), d.liveObject("Job", "once").GetUID()

			v1 := at(d, "v1", "web:1", 1)
			for object, message := range d.planned(v1) {
				require.NotContains(t, message, "pods are replaced", object)
			}
			require.NotContains(t, strings.Join(d.mustApply(v1), "\n"), "pods are replaced")
			d.until(v1, "v1", settled("v1"))
			require.Equal(t, first, d.pods(), "no pod is replaced")
			require.Equal(t, job, d.liveObject("Job", "once").GetUID(), "the Job does not run again")
			for _, kind := range []string{"StatefulSet/db", "DaemonSet/agent"} { // that of a Deployment counts annotations too
				kind, name, _ := strings.Cut(kind, "/")
				require.EqualValues(t, 1, d.liveWorkload(kind, name).GetGeneration(), "%s %s: its spec is not changed", kind, name)
			}
			require.Equal(t, []string{"unchanged 7 objects"}, d.mustApply(v1))

			budget := at(d, "v2", "web:1", 2)
			d.mustApply(budget)
			d.until(budget, "another budget", settled("v2"))
			require.Equal(t, first, d.pods(), "another version alone replaces no pod")

			image := at(d, "v3", "web:2", 2)
			const why = "its pods are replaced: spec.template.spec.containers[name=c].image changes"
			require.Equal(t, why, d.planned(image)["Deployment/web"])
			require.Contains(t, strings.Join(d.mustApply(image), "\n"), "configured Deployment/web ("+why+")")
			d.until(image, "another image", settled("v3"))
			second := d.pods()
			require.NotEqual(t, first["web"], second["web"])
			second["web"] = first["web"]
			require.Equal(t, first, second, "only the pods of the changed template are replaced")
			require.Equal(t, "web", d.liveWorkload("Deployment", "web").GetLabels()[LabelService])
			labels, _, _ := unstructured.NestedStringMap(d.liveWorkload("Deployment", "web").Object, "spec", "template", "metadata", "labels")
			require.Equal(t, "web", labels[LabelService], "with the change of the template, it is marked")

			d.mustApply(budget)
			d.until(budget, "a rollback", settled("v2"))
		})
	}
}

// What replaces pods at an adoption is named, with the reason: a field of the template that the other tool declared and that is not
// declared here, a declared one that differs, and another configuration.
func TestAdoptionNamesTheReplacedPods_H7(t *testing.T) {
	d := newTestCluster(t).recording()
	d.writeAs("helm", deploymentYAML("image", "web:1", ""), deploymentYAML("field", "web:1", ", env: [{name: OLD, value: x}]"),
		deploymentYAML("uses", "uses:1", usesSettings), deploymentYAML("same", "web:1", ""), configOf("settings", "a"))
	d.waitPods("image", "field", "uses", "same")
	first := d.pods()
	in := withAdopt(d.instance("v1", deploymentYAML("image", "web:2", ""), deploymentYAML("field", "web:1", ""),
		deploymentYAML("uses", "uses:1", usesSettings), deploymentYAML("same", "web:1", ""), configOf("settings", "b")))
	plan := d.planned(in)
	require.Equal(t, "it is adopted from helm; its pods are replaced: spec.template.spec.containers[name=c].image changes", plan["Deployment/image"])
	require.Equal(t, "it is adopted from helm; 1 field of theirs is not declared and is removed; "+
		"its pods are replaced: spec.template.spec.containers[name=c].env changes", plan["Deployment/field"])
	require.Equal(t, "it is adopted from helm; its pods are replaced: their configuration changes", plan["Deployment/uses"])
	require.Equal(t, "it is adopted from helm", plan["Deployment/same"])
	d.mustApply(in)
	d.until(in, "v1", settled("v1"))
	second := d.pods()
	for _, app := range []string{"image", "field", "uses"} {
		require.NotEqual(t, first[app], second[app], app)
	}
	require.Equal(t, first["same"], second["same"])
}

// The pods of an adopted workload without marks explain it too, and a restart by a person replaces and marks them.
func TestPodsWithoutMarksAreExplained_H3_H7(t *testing.T) {
	d := newTestCluster(t).recording()
	d.writeAs("helm", deploymentYAML("web", "web:nopull", ""), workloadYAML("StatefulSet", "db", "db:1", ""))
	in := withAdopt(d.instance("v1", deploymentYAML("web", "web:nopull", ""), workloadYAML("StatefulSet", "db", "db:1", "")))
	d.waitPods("db")
	d.mustApply(in)
	d.until(in, "the reason", func(objects []entities.Object) bool {
		return slices.ContainsFunc(objects, func(o entities.Object) bool {
			return o.Type == "Deployment" && strings.Contains(o.Message, "ImagePullBackOff web-")
		})
	})
	first := d.pods()
	in.Restarted = d.now()
	d.mustApply(in)
	d.wait("other pods", func() bool { return fmt.Sprint(d.pods()["db"]) != fmt.Sprint(first["db"]) && len(d.pods()["db"]) == 1 }, func() any { return d.pods() })
	d.until(in, "the restarted pod", func(objects []entities.Object) bool {
		return slices.ContainsFunc(objects, func(o entities.Object) bool { return o.Type == "StatefulSet" && settled("v1")([]entities.Object{o}) })
	})
	require.NotEmpty(t, templateAnnotation(d.liveWorkload("StatefulSet", "db"), AnnotationTemplate))
}
