package compile_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/intenttest"
)

const twoWorkloads = `
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, labels: {tier: front}}, spec: {template: {spec: {containers: [{name: web, image: "web:{{ .Values.tag }}"}, {name: side, image: "side:1"}]}}}}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, labels: {tier: back}}, spec: {template: {spec: {containers: [{name: db, image: "db:1"}]}}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: notes}, data: {a: b}}
`

// patchedBy is what a service of a chart, a kustomization and a manifest has in prod, with patches.
func patchedBy(t *testing.T, patches string, files ...string) ([]string, error) {
	t.Helper()
	body := "parameters: [{name: replicas, type: int, default: 3}]\nkubernetes:\n  manifests: [plain.yaml]\n  kustomize: k\n  helm: {chart: chart, values: {tag: \"${{ version }}\"}}\n  patches:\n" + patches
	files = append(files, append(chartFiles(twoWorkloads), "plain.yaml", configMap("plain"), "k/kustomization.yaml", "resources: [a.yaml]\n", "k/a.yaml", configMap("built"))...)
	loaded, err := intenttest.Load(cluster(body), files...)
	if err != nil {
		return nil, err
	}
	compiled, err := compile.Compile(loaded)
	require.NoError(t, err)
	return objectsOf(t, compiled, "prod", incarnation.RenderInput{Version: "v7"}), nil
}

// A field of a chart, of a kustomization or of a manifest is changed without a copy of it: by a strategic merge, which knows lists
// by their names, or by operations; in order, for all that a target selects. What no patch is for stays as it was.
func TestPatchesOverAllSources_H6_D8(t *testing.T) {
	plain, err := patchedBy(t, "  - {target: {name: notes}, patch: '{data: {a: b}}'}\n")
	require.NoError(t, err)
	objects, err := patchedBy(t, `
  - target: {kind: Deployment|StatefulSet}
    patch: |
      spec: {template: {spec: {priorityClassName: high}}}
  - patch: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: web}
      spec: {replicas: "${{ params.replicas }}", template: {spec: {containers: [{name: side, $patch: delete}, {name: web, env: [{name: VERSION, value: "${{ version }}"}]}]}}}
  - {target: {labelSelector: tier=back}, path: patches/db.yaml}
  - {target: {kind: ConfigMap, name: "plain|built"}, patch: '[{"op": "add", "path": "/data", "value": {"c": "d"}}]'}
  - {target: {name: notes}, patch: '{$patch: delete}'}
`, "patches/db.yaml", "- {op: replace, path: /spec/template/spec/containers/0/image, value: 'db:2'}\n- {op: test, path: /spec/template/spec/priorityClassName, value: high}\n")
	require.NoError(t, err)
	all := strings.Join(objects, "\n")
	require.Contains(t, all, `"spec":{"replicas":3,"template":{"spec":{"containers":[{"env":[{"name":"VERSION","value":"v7"}],"image":"web:v7","name":"web"}],"priorityClassName":"high"}}}`)
	require.Contains(t, all, `"spec":{"template":{"spec":{"containers":[{"image":"db:2","name":"db"}],"priorityClassName":"high"}}}`)
	require.Contains(t, all, `{"apiVersion":"v1","data":{"c":"d"},"kind":"ConfigMap","metadata":{"name":"built"}}`)
	require.Contains(t, all, `{"apiVersion":"v1","data":{"c":"d"},"kind":"ConfigMap","metadata":{"name":"plain"}}`)
	require.NotContains(t, all, "notes")
	require.Len(t, objects, len(plain)-1)
	again, err := patchedBy(t, "  - {target: {name: notes}, patch: '{data: {a: b}}'}\n")
	require.NoError(t, err)
	require.Equal(t, plain, again)
}

// A patch that is for nothing, that cannot be applied or that makes another object is refused where it stands.
func TestInvalidPatchesAreRejected_H6_G4(t *testing.T) {
	for patch, want := range map[string]string{
		`{target: {kind: Ingress}, patch: '{spec: {}}'}`:                                       "kubernetes.patches[0]: the patch matches no object in release channels staging, prod; expected a target that matches an object of the service; patches are applied after all sources [patch]",
		`{patch: '{spec: {}}'}`:                                                                "the patch has no target",
		`{patch: '[{op: remove, path: /data}]'}`:                                               "the patch has no target",
		`{target: {name: notes}}`:                                                              `a patch has one source; expected either "patch" or "path"`,
		`{target: {name: notes}, patch: '{}', path: a.yaml}`:                                   `a patch has one source; expected either "patch" or "path"`,
		`{target: {name: notes}, path: ../a.yaml}`:                                             "is not a path inside the directory of this file",
		`{target: {name: notes}, path: none.yaml}`:                                             "none.yaml cannot be read",
		`{target: {name: notes}, patch: 'text'}`:                                               "the patch is neither a mapping nor a list",
		`{target: {name: notes}, patch: '['}`:                                                  "the patch is not valid YAML",
		`{target: {name: notes}, patch: "{}\n---\n{}"}`:                                        "the patch has several documents, and a target",
		`{target: {name: "("}, patch: '{}'}`:                                                   "target.name is not a regular expression",
		`{target: {labelSelector: "=="}, patch: '{}'}`:                                         "target.labelSelector cannot be read",
		`{target: {name: notes}, patch: '[{op: replace, path: /spec/none, value: 1}]'}`:        "ConfigMap/notes cannot be patched",
		`{target: {name: notes}, patch: '[{op: replace, path: /metadata/name, value: x}]'}`:    "the patch creates ConfigMap/x from ConfigMap/notes",
		`{target: {name: notes}, patch: '{metadata: {annotations: {converge/version: "1"}}}'}`: `"converge/version" is set by Converge itself`,
		`{target: {name: notes, knd: x}, patch: '{}'}`:                                         `unknown field "knd"`,
	} {
		_, err := patchedBy(t, "  - "+patch+"\n")
		require.ErrorContains(t, err, want, patch)
	}
}
