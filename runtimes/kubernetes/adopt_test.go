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

// updates writes an object as tools do that do not apply on the server: kubectl apply, Helm 3.
func (d *desk) updates(tool, kind, text string) {
	d.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(d, yaml.Unmarshal([]byte(text), &o.Object))
	_, err := d.admin.at(d.of(kind), d.namespace).Create(d.Context(), o, metav1.CreateOptions{FieldManager: tool})
	require.NoError(d, err)
}

// managers are who declares an object, beside us.
func (d *desk) managers(kind, name string) (found []string) {
	d.Helper()
	for _, entry := range d.there(kind, name).GetManagedFields() {
		if entry.Manager != FieldManager && entry.Subresource == "" {
			found = append(found, entry.Manager)
		}
	}
	return found
}

// asTheirs is a Deployment as another tool declares it: with an argument, an annotation and a limit more than asOurs.
const asTheirs = `
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

func asOurs(old bool) string {
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
func TestAdoptingMigratesWhatToolsDeclared_H7(t *testing.T) {
	applies := func(tool string) func(*desk) {
		return func(d *desk) { d.declares(tool, "Deployment", "web", asTheirs) }
	}
	updates := func(tool string) func(*desk) {
		return func(d *desk) { d.updates(tool, "Deployment", asTheirs) }
	}
	rows := map[string]func(*desk){
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
			d := reach(t).desk()
			write(d)
			d.edits("somebody", "Deployment", "web", `{"metadata": {"annotations": {"note": "by hand"}}}`)
			v1, v2 := adopting(d.instance("v1", asOurs(true))), adopting(d.instance("v2", asOurs(false)))

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

			require.Contains(t, d.applied(v1), "adopted Deployment/web from "+tool)
			web := d.there("Deployment", "web")
			require.NotContains(t, web.GetAnnotations(), "tool/tracking")
			require.NotContains(t, web.GetLabels(), "tool")
			require.Equal(t, "by hand", web.GetAnnotations()["note"])
			require.Equal(t, []string{"MODE", "OLD"}, envOf(t, web))
			require.EqualValues(t, 30, inside(web.Object, "spec", "template", "spec")["terminationGracePeriodSeconds"], "the default, without a declaration")
			require.Equal(t, []string{"somebody"}, d.managers("Deployment", "web"))
			require.Equal(t, []string{"unchanged 1 object"}, d.applied(v1))

			d.applied(v2)
			require.Equal(t, []string{"MODE"}, envOf(t, d.there("Deployment", "web")))
			d.applied(v1)
			require.Equal(t, []string{"MODE", "OLD"}, envOf(t, d.there("Deployment", "web")))
		})
	}
}

// envOf are the names of the variables of the only container.
func envOf(t *testing.T, web *unstructured.Unstructured) (names []string) {
	t.Helper()
	containers, _ := inside(web.Object, "spec", "template", "spec")["containers"].([]any)
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
	d := reach(t).desk()
	theirs := func(name string) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + "}, data: {b: theirs}}"
	}
	d.declares("kubectl", "ConfigMap", "one", theirs("one"))
	d.declares("kubectl", "ConfigMap", "two", theirs("two"))
	consenting := configOf("one", "mine", `converge/adopt: "true"`)
	text := d.refused(d.instance("v1", consenting, configOf("two", "mine")), true)
	require.Contains(t, text, "apply ConfigMap "+d.namespace+"/two: it already exists, and does not belong to this instance (written by kubectl) (to adopt it, set adopt, or on the object the annotation converge/adopt: \"true\"; else delete it)")
	require.NotContains(t, text, "/one")
	require.Contains(t, d.refused(adopting(d.instance("v1", consenting, configOf("two", "mine", `converge/adopt: "false"`))), true), d.namespace+"/two: ")
	require.Contains(t, d.applied(d.instance("v1", consenting)), "adopted ConfigMap/one from kubectl")
	require.Equal(t, map[string]any{"a": "mine"}, d.there("ConfigMap", "one").Object["data"])

	d.declares("our-gitops", "ConfigMap", "three", theirs("three"))
	d.applied(d.instance("v1", consenting, configOf("three", "mine", `converge/adopt: our-gitops`)))
	require.Equal(t, map[string]any{"a": "mine"}, d.there("ConfigMap", "three").Object["data"])
	d.declares("our-gitops", "ConfigMap", "four", theirs("four"))
	d.applied(d.instance("v1", consenting, configOf("four", "mine", `converge/adopt: "true"`)))
	require.Equal(t, map[string]any{"a": "mine", "b": "theirs"}, d.there("ConfigMap", "four").Object["data"], "no consent names this manager")
}

// A consent counts once: what another tool declares later is a conflict, as it is without one, until the object consents anew.
func TestAdoptingHappensOnce_H7(t *testing.T) {
	d := reach(t).desk()
	d.declares("kubectl", "Deployment", "web", asTheirs)
	v1 := adopting(d.instance("v1", asOurs(true)))
	d.applied(v1)
	d.declares("kubectl", "Deployment", "web", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 5}}")
	require.Contains(t, d.refused(v1, true), "spec.replicas belongs to kubectl, which declares it too (remove the field from one side, adopt it again "+
		"with another value of the annotation converge/adopt, or leave it to the other owner: ignoreDifferences: ")
	require.EqualValues(t, 5, inside(d.there("Deployment", "web").Object, "spec")["replicas"])
	again := strings.Replace(asOurs(true), "labels: {app: web}}\nspec", `labels: {app: web}, annotations: {converge/adopt: "true, again"}}`+"\nspec", 1)
	lines := strings.Join(d.applied(d.instance("v1", again)), "\n")
	require.Contains(t, lines, "adopted Deployment/web from kubectl\ntook over spec.replicas of Deployment/web from kubectl")
	require.Empty(t, d.managers("Deployment", "web"))
}

// What was made with a consent was adopted from nobody, and is not to be taken from anybody later by it.
func TestAConsentOfWhatWasNotThereIsUsed_H7(t *testing.T) {
	d := reach(t).desk()
	v1 := adopting(d.instance("v1", asOurs(true)))
	d.applied(v1)
	d.until(v1, "v1", settled("v1"))
	d.declares("argocd-controller", "Deployment", "web", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 5}}")
	require.Contains(t, d.refused(v1, true), "spec.replicas belongs to argocd-controller, which declares it too")
}

// An adoption that was cut off after the fields had become ours is finished by the next apply.
func TestAnAdoptionThatWasCutOffIsFinished_H7_A11(t *testing.T) {
	d := reach(t).desk()
	d.updates("helm", "Deployment", asTheirs)
	in := adopting(d.instance("v1", asOurs(true)))
	d.failing(cutAt("web", "application/json-patch+json"))
	_, err := d.Apply(t.Context(), in)
	require.Error(t, err)
	d.failing(nil)
	require.Empty(t, d.there("Deployment", "web").GetLabels()[LabelApplication])
	require.Empty(t, d.managers("Deployment", "web"))
	d.applied(in)
	require.Equal(t, []string{"MODE", "OLD"}, envOf(t, d.there("Deployment", "web")))
	require.NotContains(t, d.there("Deployment", "web").GetAnnotations(), "tool/tracking")
	require.Equal(t, []string{"unchanged 1 object"}, d.applied(in))
}

// Who is adopted from is told apart by name, and what is written through a subresource is nobody's declaration.
func TestWhoIsAdoptedFrom_H7(t *testing.T) {
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
	require.Equal(t, "it is adopted from a, b; 1 field of theirs is not declared and is removed", (&adoption{managers: []string{"a", "b"}, going: 1}).String())
}

// cutAt lets a write of an object through that has one content type, and cuts the line before the next write of it.
func cutAt(name, contentType string) func(*http.Request, func() (*http.Response, error)) (*http.Response, error) {
	var through atomic.Bool
	return func(req *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		its := isWrite(req) && strings.HasSuffix(req.URL.Path, "/"+name)
		if its && through.Load() {
			return nil, errCut
		}
		answer, err := send()
		if its && err == nil && answer.StatusCode == http.StatusOK { // one that met a change of somebody else's comes again
			through.Store(req.Header.Get("Content-Type") == contentType)
		}
		return answer, err
	}
}
