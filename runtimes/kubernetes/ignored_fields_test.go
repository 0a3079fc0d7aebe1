package kubernetes

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

func withIgnored(in runtimes.Request, all ...entities.IgnoredDifference) runtimes.Request {
	in.Payload.Kubernetes.Ignore = all
	return in
}

func pointers(kind string, at ...string) entities.IgnoredDifference {
	d := entities.IgnoredDifference{Kind: kind, JSONPointers: at}
	if kind == "Deployment" {
		d.Group = "apps"
	}
	return d
}

func (d *recordingCluster) image() string {
	d.Helper()
	containers, _ := nestedMap(d.liveObject("Deployment", "web").Object, "spec", "template", "spec")["containers"].([]any)
	image, _ := containers[0].(map[string]any)["image"].(string)
	return image
}

// A field that is declared to belong to others begins as declared, is no drift, and keeps its value in later applies.
func TestIgnoredFieldsStay_H2(t *testing.T) {
	d := newTestCluster(t).recording()
	at := func(version, image, setting string) runtimes.Request {
		return withIgnored(d.instance(version, deploymentOf(image, 2, ""), configOf("settings", setting)),
			pointers("Deployment", "/spec/template/spec/containers/0/image"), pointers("ConfigMap", "/data/a"))
	}
	v1 := at("v1", "web:1", "a")
	d.mustApply(v1)
	d.until(v1, "v1", settled("v1"))
	require.Equal(t, "web:1", d.image())

	require.Equal(t, []string{"configured ConfigMap/settings (metadata.annotations[converge/version])", "configured Deployment/web (metadata.annotations[converge/version])"},
		d.mustApply(at("v2", "web:1", "b")), "only Converge owns the field, and its live value stays")
	require.Equal(t, "a", nestedMap(d.liveObject("ConfigMap", "settings").Object, "data")["a"])

	d.patchAs("image-updater", "Deployment", "web", `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:7"}]}}}}`)
	d.patchAs("kubectl-edit", "ConfigMap", "settings", `{"data":{"a":"theirs"}}`)
	v2 := at("v2", "web:1", "b")
	d.until(v2, "web:7", func(objects []entities.Object) bool { return d.image() == "web:7" && settled("v2")(objects) })
	require.Equal(t, []string{"unchanged 2 objects"}, d.mustApply(v2))
	v3 := at("v3", "web:3", "c")
	d.mustApply(v3)
	require.Equal(t, "web:7", d.image())
	require.Equal(t, "theirs", nestedMap(d.liveObject("ConfigMap", "settings").Object, "data")["a"])
	d.until(v3, "v3", settled("v3"))

	d.patchAs("kubectl-edit", "Deployment", "web", `{"spec":{"minReadySeconds":1,"replicas":4}}`)
	d.until(v3, "drift of another field", func(objects []entities.Object) bool {
		return strings.Contains(objects[0].Message+objects[1].Message, "spec.replicas 4, declared 2")
	})
	d.mustApply(v3)
	require.Equal(t, "web:7", d.image())
	require.Equal(t, 2, d.replicas())
}

// The runtime may say it for all services; kinds and names may hold an asterisk.
func TestTheRuntimeIgnoresForAllServices_H2(t *testing.T) {
	d := newTestCluster(t).recording()
	d.def.Kubernetes.Ignore = []entities.IgnoredDifference{{Group: "*", Kind: "*", Name: "w*", JSONPointers: []string{"/spec/replicas"}}}
	v1 := d.instance("v1", deploymentOf("web:1", 2, ""))
	d.mustApply(v1)
	d.patchAs("somebody", "Deployment", "web", `{"spec":{"replicas":3}}`)
	d.until(v1, "three of v1", func(objects []entities.Object) bool {
		return settled("v1")(objects) && objects[0].Versions[0].AvailableReplicas == 3
	})
	d.mustApply(d.instance("v2", deploymentOf("web:2", 5, "")))
	require.Equal(t, 3, d.replicas())
}

// The fields that a tool owns are left to it, anywhere in the object, and the others are applied.
func TestFieldsOfAnIgnoredManagerStay_H2(t *testing.T) {
	d := newTestCluster(t).recording()
	at := func(version, image string, replicas int) runtimes.Request {
		return withIgnored(d.instance(version, deploymentOf(image, replicas, "")), entities.IgnoredDifference{Group: "apps", Kind: "Deployment", Managers: []string{"flux*"}})
	}
	v1 := at("v1", "web:1", 2)
	d.mustApply(v1)
	d.applyAs("flux-image", "Deployment", "web", `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web},
		spec: {template: {spec: {containers: [{name: web, image: "web:7", env: [{name: A, value: b}]}]}}}}`)
	d.until(v1, "web:7", func(objects []entities.Object) bool { return d.image() == "web:7" && settled("v1")(objects) })
	v2 := at("v2", "web:2", 3)
	d.mustApply(v2)
	require.Equal(t, "web:7", d.image())
	require.Equal(t, 3, d.replicas())
	d.until(v2, "v2", settled("v2"))
	d.patchAs("kubectl-edit", "Deployment", "web", `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:9"}]}}}}`)
	require.Contains(t, d.mustApply(v2), "reverted spec.template.spec.containers[name=web].image of Deployment/web, written by kubectl-edit", "another's is not")
}

// The declaration in the hint of a refusal is accepted, and leaves the fields to their owner.
func TestTheHintOfAConflictCanBePasted_H2(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", deploymentOf("web:1", 2, "a.b/c: x"))
	d.mustApply(v1)
	d.applyAs("argocd", "Deployment", "web", `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 5,
		template: {metadata: {annotations: {a.b/c: other}}, spec: {containers: [{name: web, image: "web:7"}]}}}}`)
	text := d.mustRefuse(v1, true)
	found := regexp.MustCompile(`ignoreDifferences: .*\}\]`).FindString(text)
	require.Equal(t, "ignoreDifferences: [{group: apps, kind: Deployment, name: web, jsonPointers: "+
		"[/spec/replicas, /spec/template/metadata/annotations/a.b~1c, /spec/template/spec/containers/0/image]}]", found)
	var pasted struct {
		IgnoreDifferences []entities.IgnoredDifference `json:"ignoreDifferences"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(found), &pasted))
	d.mustApply(withIgnored(v1, pasted.IgnoreDifferences...))
	require.Equal(t, 5, d.replicas())
	require.Equal(t, "web:7", d.image())
}

func TestPathsOfPointers_H2(t *testing.T) {
	o := object(t, `{apiVersion: v1, kind: X, spec: {list: [{name: a, x: 1}, {name: b, x: 2}], plain: [p, q], "a/b": {"c~d": 1}, same: [{x: 1}, {x: 1}]}}`)
	for pointer, wanted := range map[string]string{
		"/spec/list/1/x": "spec.list[name=b].x", "/spec/plain/0": "spec.plain[0]", "/spec/a~1b/c~0d": "spec[a/b].c~d",
		"/spec/missing/at": "spec.missing.at", "/spec/same/1/x": "spec.same[1].x",
	} {
		require.Equal(t, wanted, pathOf(o.Object, pointer).String())
	}
	require.Nil(t, pathOf(o.Object, "/spec/list/2"))
	require.Nil(t, pathOf(o.Object, "/spec/list/x"))
	left := withoutPaths(o.Object, []path{pathOf(o.Object, "/spec/list/0"), pathOf(o.Object, "/spec/plain/1"), pathOf(o.Object, "/spec/a~1b"), pathOf(o.Object, "/spec/missing/at")})
	require.Equal(t, object(t, `{apiVersion: v1, kind: X, spec: {list: [{name: b, x: 2}], plain: [p], same: [{x: 1}, {x: 1}]}}`).Object, left)
	require.Len(t, nestedMap(o.Object, "spec")["list"], 2, "the object itself is not changed")
}
