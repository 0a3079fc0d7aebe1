package kubernetes

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// updateAs writes an object as tools do that do not apply on the server: kubectl apply, Helm 3.
func (d *recordingCluster) updateAs(tool, kind, text string) {
	d.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(d, yaml.Unmarshal([]byte(text), &o.Object))
	_, err := d.admin.resourceClient(d.resourceOf(kind), d.namespace).Create(d.Context(), o, metav1.CreateOptions{FieldManager: tool})
	require.NoError(d, err)
}

// managers are the other field managers that declare an object.
func (d *recordingCluster) managers(kind, name string) (found []string) {
	d.Helper()
	for _, entry := range d.liveObject(kind, name).GetManagedFields() {
		if entry.Manager != FieldManager && entry.Subresource == "" {
			found = append(found, entry.Manager)
		}
	}
	return found
}

// foreignDeployment is a Deployment as another tool declares it: with an argument, an annotation and a limit more than ownDeployment.
const foreignDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web, tool: theirs}, annotations: {tool/tracking: shop}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 7
      containers:
      - {name: web, image: "web:1", env: [{name: MODE, value: fast}, {name: OLD, value: "1"}]}
      - {name: sidecar, image: "sidecar:1"}
`

func ownDeployment(old bool) string {
	env := "{name: MODE, value: fast}"
	if old {
		env += `, {name: OLD, value: "1"}`
	}
	return `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "web:1", env: [` + env + `]}
`
}

// What other tools declared is ours once it is adopted, whichever way they wrote it: what is not declared here goes with the
// adoption, what later versions do not declare goes with them, and a rollback brings it back. The plan says from whom it is
// taken and what goes. What others than those tools wrote stays.
func TestAdoptionMigratesFieldsOfOtherTools_H7(t *testing.T) {
	applies := func(tool string) func(*recordingCluster) {
		return func(d *recordingCluster) { d.applyAs(tool, "Deployment", "web", foreignDeployment) }
	}
	updates := func(tool string) func(*recordingCluster) {
		return func(d *recordingCluster) { d.updateAs(tool, "Deployment", foreignDeployment) }
	}
	rows := map[string]func(*recordingCluster){
		"kubectl-client-side-apply":     updates("kubectl-client-side-apply"),
		"kubectl":                       applies("kubectl"),
		"helm":                          updates("helm"),
		"argocd-controller":             applies("argocd-controller"),
		"argocd-application-controller": updates("argocd-application-controller"),
		"kustomize-controller":          applies("kustomize-controller"),
		"helm-controller":               updates("helm-controller"),
	}
	for tool, write := range rows {
		t.Run(tool, func(t *testing.T) {
			d := newTestCluster(t).recording()
			write(d)
			d.patchAs("somebody", "Deployment", "web", `{"metadata": {"annotations": {"note": "by hand"}}}`)
			v1, v2 := withAdopt(d.instance("v1", ownDeployment(true))), withAdopt(d.instance("v2", ownDeployment(false)))

			plan, err := d.Plan(t.Context(), v1)
			require.NoError(t, err)
			require.Len(t, plan, 1)
			require.Equal(t, "it is adopted from "+tool+"; 4 fields of theirs are not declared and are removed", plan[0].Message)
			gone := map[string]string{}
			for _, f := range plan[0].Fields {
				if f.Old != "" {
					gone[f.Path] = f.New
				}
			}
			require.Equal(t, map[string]string{
				"metadata.annotations[tool/tracking]": "", "metadata.labels.tool": "",
				"spec.template.spec.containers[name=sidecar]": "", "spec.template.spec.terminationGracePeriodSeconds": "30",
			}, gone)

			require.Contains(t, d.mustApply(v1), "adopted Deployment/web from "+tool)
			web := d.liveObject("Deployment", "web")
			require.NotContains(t, web.GetAnnotations(), "tool/tracking")
			require.NotContains(t, web.GetLabels(), "tool")
			require.Equal(t, "by hand", web.GetAnnotations()["note"])
			require.Equal(t, []string{"MODE", "OLD"}, envOf(t, web))
			require.EqualValues(t, 30, nestedMap(web.Object, "spec", "template", "spec")["terminationGracePeriodSeconds"], "the default, without a declaration")
			require.Equal(t, []string{"somebody"}, d.managers("Deployment", "web"))
			require.Equal(t, []string{"unchanged 1 object"}, d.mustApply(v1))

			d.mustApply(v2)
			require.Equal(t, []string{"MODE"}, envOf(t, d.liveObject("Deployment", "web")))
			d.mustApply(v1)
			require.Equal(t, []string{"MODE", "OLD"}, envOf(t, d.liveObject("Deployment", "web")))
		})
	}
}

// envOf are the names of the variables of the only container.
func envOf(t *testing.T, web *unstructured.Unstructured) (names []string) {
	t.Helper()
	containers, _ := nestedMap(web.Object, "spec", "template", "spec")["containers"].([]any)
	require.Len(t, containers, 1)
	env, _ := containers[0].(map[string]any)["env"].([]any)
	for _, each := range env {
		name, _ := each.(map[string]any)["name"].(string)
		names = append(names, name)
	}
	return names
}

// An object consents for itself, and one that does not is refused as before. A consent names tools that are not known.
func TestConsentOfAnObject_H7(t *testing.T) {
	d := newTestCluster(t).recording()
	theirs := func(name string) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + "}, data: {b: theirs}}"
	}
	d.applyAs("kubectl", "ConfigMap", "one", theirs("one"))
	d.applyAs("kubectl", "ConfigMap", "two", theirs("two"))
	consenting := configOf("one", "mine", `converge/adopt: "true"`)
	text := d.mustRefuse(d.instance("v1", consenting, configOf("two", "mine")), true)
	require.Contains(t, text, "apply ConfigMap "+d.namespace+"/two: it already exists, and does not belong to this instance (written by kubectl) (to adopt it, set adopt, or on the object the annotation converge/adopt: \"true\"; otherwise delete it)")
	require.NotContains(t, text, "/one")
	require.Contains(t, d.mustRefuse(withAdopt(d.instance("v1", consenting, configOf("two", "mine", `converge/adopt: "false"`))), true), d.namespace+"/two: ")
	require.Contains(t, d.mustApply(d.instance("v1", consenting)), "adopted ConfigMap/one from kubectl")
	require.Equal(t, map[string]any{"a": "mine"}, d.liveObject("ConfigMap", "one").Object["data"])

	d.applyAs("our-gitops", "ConfigMap", "three", theirs("three"))
	d.mustApply(d.instance("v1", consenting, configOf("three", "mine", `converge/adopt: our-gitops`)))
	require.Equal(t, map[string]any{"a": "mine"}, d.liveObject("ConfigMap", "three").Object["data"])
	d.applyAs("our-gitops", "ConfigMap", "four", theirs("four"))
	d.mustApply(d.instance("v1", consenting, configOf("four", "mine", `converge/adopt: "true"`)))
	require.Equal(t, map[string]any{"a": "mine", "b": "theirs"}, d.liveObject("ConfigMap", "four").Object["data"], "no consent names this manager")
}

// A consent counts once: what another tool declares later is a conflict, as it is without one, until the object has a new consent.
func TestAdoptingHappensOnce_H7(t *testing.T) {
	d := newTestCluster(t).recording()
	d.applyAs("kubectl", "Deployment", "web", foreignDeployment)
	v1 := withAdopt(d.instance("v1", ownDeployment(true)))
	d.mustApply(v1)
	d.applyAs("kubectl", "Deployment", "web", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 5}}")
	require.Contains(t, d.mustRefuse(v1, true), "spec.replicas belongs to kubectl, which declares it too (remove the field from one side, adopt it again "+
		"with another value of the annotation converge/adopt, or leave it to the other owner: ignoreDifferences: ")
	require.EqualValues(t, 5, nestedMap(d.liveObject("Deployment", "web").Object, "spec")["replicas"])
	again := strings.Replace(ownDeployment(true), "labels: {app: web}}\nspec", `labels: {app: web}, annotations: {converge/adopt: "true, again"}}`+"\nspec", 1)
	lines := strings.Join(d.mustApply(d.instance("v1", again)), "\n")
	require.Contains(t, lines, "adopted Deployment/web from kubectl\ntook over spec.replicas of Deployment/web from kubectl")
	require.Empty(t, d.managers("Deployment", "web"))
}

// An object that was created with a consent was adopted from no other manager, and the consent takes it from no other manager later.
func TestAConsentOfANewObjectIsUsedUp_H7(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := withAdopt(d.instance("v1", ownDeployment(true)))
	d.mustApply(v1)
	d.until(v1, "v1", settled("v1"))
	d.applyAs("argocd-controller", "Deployment", "web", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 5}}")
	require.Contains(t, d.mustRefuse(v1, true), "spec.replicas belongs to argocd-controller, which declares it too")
}

// An adoption that was cut off after the fields had become ours is finished by the next apply.
func TestAnInterruptedAdoptionIsFinished_H7_A11(t *testing.T) {
	d := newTestCluster(t).recording()
	d.updateAs("helm", "Deployment", foreignDeployment)
	in := withAdopt(d.instance("v1", ownDeployment(true)))
	d.injectFault(cutAfter("web", "application/json-patch+json"))
	_, err := d.Apply(t.Context(), in)
	require.Error(t, err)
	d.injectFault(nil)
	require.Empty(t, d.liveObject("Deployment", "web").GetLabels()[LabelApplication])
	require.Empty(t, d.managers("Deployment", "web"))
	d.mustApply(in)
	require.Equal(t, []string{"MODE", "OLD"}, envOf(t, d.liveObject("Deployment", "web")))
	require.NotContains(t, d.liveObject("Deployment", "web").GetAnnotations(), "tool/tracking")
	require.Equal(t, []string{"unchanged 1 object"}, d.mustApply(in))
}

// Managers are distinguished by name, and a write through a subresource is no declaration.
func TestManagersOfAnAdoption_H7(t *testing.T) {
	wanted := &unstructured.Unstructured{Object: map[string]any{}}
	wanted.SetAnnotations(map[string]string{AnnotationAdopt: "true, our-gitops"})
	for name, row := range map[string]struct {
		entry metav1.ManagedFieldsEntry
		want  bool
	}{
		"a tool":                {metav1.ManagedFieldsEntry{Manager: "helm"}, true},
		"one that is named":     {metav1.ManagedFieldsEntry{Manager: "our-gitops"}, true},
		"an edit":               {metav1.ManagedFieldsEntry{Manager: "kubectl-edit"}, false},
		"a controller":          {metav1.ManagedFieldsEntry{Manager: "kube-controller-manager"}, false},
		"through a subresource": {metav1.ManagedFieldsEntry{Manager: "kubectl", Subresource: "scale"}, false},
		"ourselves":             {metav1.ManagedFieldsEntry{Manager: FieldManager}, false},
	} {
		require.Equal(t, row.want, isDeclarer(row.entry, wanted), name)
	}
	require.Equal(t, "no fields of other tools are taken over", (&adoption{}).String())
	require.Equal(t, "it is adopted from a, b; 1 field of theirs is not declared and is removed", (&adoption{managers: []string{"a", "b"}, removed: 1}).String())
}

// cutAfter lets a write of an object through that has one content type, and cuts the connection before the next write of it.
func cutAfter(name, contentType string) func(*http.Request, func() (*http.Response, error)) (*http.Response, error) {
	var through atomic.Bool
	return func(req *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		its := isWrite(req) && strings.HasSuffix(req.URL.Path, "/"+name)
		if its && through.Load() {
			return nil, errConnectionCut
		}
		answer, err := send()
		if its && err == nil && answer.StatusCode == http.StatusOK { // a write that conflicts with a change by others is repeated
			through.Store(req.Header.Get("Content-Type") == contentType)
		}
		return answer, err
	}
}
