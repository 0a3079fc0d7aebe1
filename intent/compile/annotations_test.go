package compile_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/intenttest"
)

const argoObjects = `
apiVersion: batch/v1
kind: Job
metadata: {name: migrate, annotations: {argocd.argoproj.io/hook: PreSync, argocd.argoproj.io/hook-delete-policy: HookSucceeded}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: m, image: busybox}]}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: second, annotations: {argocd.argoproj.io/sync-wave: "5"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: third, annotations: {argocd.argoproj.io/sync-wave: "6", argocd.argoproj.io/sync-options: "Prune=false,Validate=false"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: plain}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: cleanup, annotations: {argocd.argoproj.io/hook: SyncFail}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: m, image: busybox}]}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: skipped, annotations: {argocd.argoproj.io/hook: Skip}}
`

// Annotations of Argo CD have no effect unless the service asks for it, and validate warns of each; with annotations: argocd they have that of Argo
// CD, and what is left is reported.
func TestAnnotationsOfArgoCD_H7(t *testing.T) {
	compiled := intenttest.Text(t, cluster("kubernetes: {manifests: [a.yaml]}"), "a.yaml", argoObjects)
	const hint = " is not honoured; set kubernetes.annotations: argocd, or use the annotations of Converge"
	require.Equal(t, []string{
		"argocd.argoproj.io/hook of Job/migrate and 2 other objects" + hint,
		"argocd.argoproj.io/hook-delete-policy of Job/migrate" + hint,
		"argocd.argoproj.io/sync-options of ConfigMap/third is not honoured: Validate=false: the server checks every object",
		"argocd.argoproj.io/sync-wave of ConfigMap/second and ConfigMap/third" + hint,
	}, compiled.Warnings)
	text := strings.Join(objectsOf(t, compiled, "prod", incarnation.RenderInput{Version: "v1"}), "\n")
	require.NotContains(t, text, "converge/")
	require.Contains(t, text, `"skipped"`)

	compiled = intenttest.Text(t, cluster("kubernetes: {manifests: [a.yaml], annotations: argocd}"), "a.yaml", argoObjects)
	require.Equal(t, []string{
		"argocd.argoproj.io/sync-options of ConfigMap/third is not honoured: Validate=false: the server checks every object",
	}, compiled.Warnings)
	objects := objectsOf(t, compiled, "prod", incarnation.RenderInput{Version: "v1"})
	text = strings.Join(objects, "\n")
	require.Len(t, objects, 5)
	require.Contains(t, text, `"argocd.argoproj.io/hook":"SyncFail","converge/hook":"on-failure"`)
	require.NotContains(t, text, `"skipped"`)
	require.Contains(t, text, `"argocd.argoproj.io/sync-wave":"5","converge/wave":"5"`)
	require.Contains(t, text, `"converge/hook":"pre-install,pre-upgrade,pre-rollback","converge/hook-delete-policy":"hook-succeeded"`)
}

// An object whose kind may be missing needs no option if its definition is declared with it: it is tried once its kind is served.
func TestSkipDryRunOnMissingResource_H7(t *testing.T) {
	const definition = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: "${{ channel }}.example.com"}, spec: {group: example.com, scope: Namespaced, names: {kind: Thing, plural: things}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}
---
`
	const objects = `{apiVersion: example.com/v1, kind: Thing, metadata: {name: one, annotations: {argocd.argoproj.io/sync-options: SkipDryRunOnMissingResource=true}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: plain, annotations: {argocd.argoproj.io/sync-options: SkipDryRunOnMissingResource=true}}}
`
	compiled := intenttest.Text(t, cluster("kubernetes: {manifests: [a.yaml], annotations: argocd}"), "a.yaml", definition+objects)
	require.Empty(t, compiled.Warnings)
	compiled = intenttest.Text(t, cluster("kubernetes: {manifests: [a.yaml], annotations: argocd}"), "a.yaml", objects)
	require.Equal(t, []string{
		"argocd.argoproj.io/sync-options of Thing/one is not honoured: SkipDryRunOnMissingResource=true: every object is tried before the first change, unless this service declares the definition of its kind",
	}, compiled.Warnings)
}

// An object that Flux creates only once is created only once here: none of its fields is applied to an existing one.
func TestAnnotationsOfFlux_H7(t *testing.T) {
	const files = `{apiVersion: v1, kind: ConfigMap, metadata: {name: once, labels: {a/b: c}, annotations: {kustomize.toolkit.fluxcd.io/ssa: IfNotPresent}}, data: {a: b}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: theirs, annotations: {kustomize.toolkit.fluxcd.io/reconcile: disabled}}}
`
	compiled := intenttest.Text(t, cluster("kubernetes: {manifests: [a.yaml], annotations: flux}"), "a.yaml", files)
	require.Empty(t, compiled.Warnings)
	payloads, err := incarnation.Render(compiled.Incarnation, "web", incarnation.RenderInput{Version: "v1", FullVersion: "v1"})
	require.NoError(t, err)
	require.Equal(t, []entities.IgnoredDifference{{
		Kind: "ConfigMap", Name: "once", JSONPointers: []string{"/data", "/metadata/annotations/kustomize.toolkit.fluxcd.io~1ssa", "/metadata/labels/a~1b"},
	}}, payloads["prod"].Kubernetes.Ignore)
	require.Len(t, objectsOf(t, compiled, "prod", incarnation.RenderInput{Version: "v1"}), 1)
	plain := intenttest.Text(t, cluster("kubernetes: {manifests: [a.yaml]}"), "a.yaml", files)
	require.Len(t, plain.Warnings, 2, plain.Warnings)

	const named = `{apiVersion: v1, kind: ConfigMap, metadata: {name: "${{ channel }}-${{ params.name }}-${{ version }}", annotations: {kustomize.toolkit.fluxcd.io/ssa: IfNotPresent}}, data: {a: b}}`
	compiled = intenttest.Text(t, cluster("parameters: [{name: name, type: string, default: one}]\nkubernetes: {manifests: [a.yaml], annotations: flux}"), "a.yaml", named)
	payloads, err = incarnation.Render(compiled.Incarnation, "web", incarnation.RenderInput{Version: "v1", FullVersion: "v1", Parameters: map[string]any{"name": "two"}})
	require.NoError(t, err)
	require.Equal(t, "prod-two-v1", payloads["prod"].Kubernetes.Ignore[0].Name)
}
