package render

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/converge-engine/converge/intent/sources"
)

// Builtin generators, transformers and validators work as files and in place, with the files that they name.
func TestBuiltinPluginsOfKustomizations_D8(t *testing.T) {
	archive := txtar.Parse([]byte(`
-- k/kustomization.yaml --
resources: [a.yaml]
patchesStrategicMerge:
- '{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {revisionHistoryLimit: 4}}'
generators: [plugins/config.yaml]
transformers:
- plugins/all.yaml
- |
  apiVersion: builtin
  kind: PatchTransformer
  metadata: {name: patch}
  path: plugins/patch.yaml
  target: {kind: Deployment}
- |
  apiVersion: builtin
  kind: ReplacementTransformer
  metadata: {name: replacement}
  replacements: [{path: plugins/replacement.yaml}]
- |
  apiVersion: builtin
  kind: PatchStrategicMergeTransformer
  metadata: {name: strategic}
  paths:
  - plugins/strategic.yaml
  - '{apiVersion: apps/v1, kind: Deployment, metadata: {name: p-web-s}, spec: {minReadySeconds: 7}}'
validators:
- '{apiVersion: builtin, kind: LabelTransformer, metadata: {name: same}, labels: {team: shop}, fieldSpecs: [{path: metadata/labels, kind: Job}]}'
-- k/plugins/config.yaml --
{apiVersion: builtin, kind: ConfigMapGenerator, metadata: {name: settings}, files: [conf=plugins/conf.txt], envs: [plugins/settings.env], literals: [c=y], options: {disableNameSuffixHash: true}}
---
{apiVersion: builtin, kind: SecretGenerator, metadata: {name: secret}, literals: [a=b]}
-- k/plugins/conf.txt --
text
-- k/plugins/settings.env --
A=1
-- k/plugins/all.yaml --
apiVersion: builtin
kind: PrefixTransformer
metadata: {name: prefix}
prefix: p-
fieldSpecs: [{path: metadata/name}]
---
{apiVersion: builtin, kind: SuffixTransformer, metadata: {name: suffix}, suffix: -s, fieldSpecs: [{path: metadata/name}]}
---
{apiVersion: builtin, kind: NamespaceTransformer, metadata: {name: namespace, namespace: shop}, fieldSpecs: [{path: metadata/namespace, create: true}]}
---
{apiVersion: builtin, kind: LabelTransformer, metadata: {name: labels}, labels: {team: shop}, fieldSpecs: [{path: metadata/labels, create: true}]}
---
{apiVersion: builtin, kind: AnnotationsTransformer, metadata: {name: annotations}, annotations: {note: "no"}, fieldSpecs: [{path: metadata/annotations, create: true}]}
---
{apiVersion: builtin, kind: ImageTagTransformer, metadata: {name: image}, imageTag: {name: web, newTag: "1.10"}, fieldSpecs: [{path: spec/template/spec/containers/image}]}
---
{apiVersion: builtin, kind: ReplicaCountTransformer, metadata: {name: replicas}, replica: {name: web, count: 3}, fieldSpecs: [{path: spec/replicas, kind: Deployment, create: true}]}
-- k/plugins/patch.yaml --
- {op: add, path: /spec/paused, value: true}
-- k/plugins/replacement.yaml --
source: {kind: Deployment, fieldPath: metadata.namespace}
targets: [{select: {kind: Deployment}, fieldPaths: [spec.template.metadata.labels.space], options: {create: true}}]
-- k/plugins/strategic.yaml --
{apiVersion: apps/v1, kind: Deployment, metadata: {name: p-web-s}, spec: {progressDeadlineSeconds: 9}}
-- k/a.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "web:1"}]}}}
`))
	files := fstest.MapFS{}
	for _, file := range archive.Files {
		files[file.Name] = &fstest.MapFile{Data: file.Data}
	}
	text, read, err := sources.Kustomize(files, "k", nil)
	require.NoError(t, err)
	require.Equal(t, `apiVersion: apps/v1
kind: Deployment
metadata:
  annotations:
    note: "no"
  labels:
    team: shop
  name: p-web-s
  namespace: shop
spec:
  minReadySeconds: 7
  paused: true
  progressDeadlineSeconds: 9
  replicas: 3
  revisionHistoryLimit: 4
  template:
    metadata:
      labels:
        app: web
        space: shop
    spec:
      containers:
      - image: web:1.10
        name: web
---
apiVersion: v1
data:
  A: "1"
  c: "y"
  conf: |
    text
kind: ConfigMap
metadata:
  annotations:
    note: "no"
  labels:
    team: shop
  name: p-settings-s
  namespace: shop
---
apiVersion: v1
data:
  a: Yg==
kind: Secret
metadata:
  annotations:
    note: "no"
  labels:
    team: shop
  name: p-secret-s-k695gkmbtk
  namespace: shop
type: Opaque
`, string(text.Data))
	require.Equal(t, []string{
		"k/a.yaml", "k/kustomization.yaml", "k/plugins/all.yaml", "k/plugins/conf.txt", "k/plugins/config.yaml", "k/plugins/patch.yaml",
		"k/plugins/replacement.yaml", "k/plugins/settings.env", "k/plugins/strategic.yaml",
	}, read)
}

// A directory among the generators, transformers or validators is a kustomization that makes their configurations. They are checked after
// it has changed them, and their paths are relative to the kustomization that names the directory, as in Kustomize.
func TestPluginsFromAKustomization_D8_G4(t *testing.T) {
	var plain map[string][]byte
	compile := func(more string) (string, []string, error) {
		t.Helper()
		files := fstest.MapFS{}
		plain = map[string][]byte{}
		for _, file := range txtar.Parse([]byte(more + `
-- k/kustomization.yaml --
resources: [a.yaml]
generators: [generated]
transformers: [plugins, ../shared]
-- k/generated/kustomization.yaml --
resources: [settings.yaml]
-- k/generated/settings.yaml --
{apiVersion: builtin, kind: ConfigMapGenerator, metadata: {name: settings, annotations: {config.kubernetes.io/local-config: "true"}}, envs: [settings.env]}
-- k/settings.env --
a=1
-- shared/kustomization.yaml --
resources: [prefix.yaml]
transformers: [more]
-- shared/prefix.yaml --
{apiVersion: builtin, kind: PrefixTransformer, metadata: {name: prefix}, prefix: p-, fieldSpecs: [{path: metadata/name}]}
-- shared/more/kustomization.yaml --
resources: [annotations.yaml]
-- shared/more/annotations.yaml --
{apiVersion: builtin, kind: AnnotationsTransformer, metadata: {name: note}, annotations: {note: "no"}, fieldSpecs: [{path: metadata/annotations, create: true}]}
-- k/a.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
`)).Files {
			if files[file.Name] == nil {
				files[file.Name], plain[file.Name] = &fstest.MapFile{Data: file.Data}, file.Data
			}
		}
		text, read, err := sources.Kustomize(files, "k", nil)
		return string(text.Data), read, err
	}
	const labels = `
-- k/plugins/kustomization.yaml --
resources: [labels.yaml]
patches: [{patch: '[{"op": "replace", "path": "/labels/team", "value": "shop"}]', target: {kind: LabelTransformer}}]
-- k/plugins/labels.yaml --
{apiVersion: builtin, kind: LabelTransformer, metadata: {name: labels}, labels: {team: "-"}, fieldSpecs: [{path: metadata/labels, create: true}]}`
	text, read, err := compile(labels)
	require.NoError(t, err)
	require.Equal(t, `apiVersion: v1
kind: ConfigMap
metadata:
  labels:
    team: shop
  name: p-a
---
apiVersion: v1
data:
  a: "1"
kind: ConfigMap
metadata:
  labels:
    team: shop
  name: p-settings-h29d89cmmt
`, text)
	theirs, err := build(plain, "k")
	require.NoError(t, err)
	require.Equal(t, string(theirs), text, "as Kustomize alone")
	require.Equal(t, []string{
		"k/a.yaml", "k/generated/kustomization.yaml", "k/generated/settings.yaml", "k/kustomization.yaml", "k/plugins/kustomization.yaml", "k/plugins/labels.yaml",
		"k/settings.env", "shared/kustomization.yaml", "shared/more/annotations.yaml", "shared/more/kustomization.yaml", "shared/prefix.yaml",
	}, read)

	for plugin, want := range map[string]string{
		"{apiVersion: builtin, kind: PatchTransformer, metadata: {name: a}, path: ../../outside.yaml}":         `"../../outside.yaml" is not a path inside the configuration`,
		"{apiVersion: builtin, kind: HelmChartInflationGenerator, metadata: {name: a}}":                        "HelmChartInflationGenerator runs Helm",
		"{apiVersion: example.com/v1, kind: Exec, metadata: {name: a}}":                                        "Exec is not built into Kustomize",
		"{apiVersion: builtin, kind: LabelTransformer, metadata: {name: a}}\n---\n{apiVersion: b, kind: Exec}": "missing metadata.name",
	} {
		_, _, err := compile("\n-- k/plugins/kustomization.yaml --\nresources: [a.yaml]\n-- k/plugins/a.yaml --\n" + plugin)
		require.ErrorContains(t, err, want)
	}
	for dir, want := range map[string]string{"..": "a cycle: k/plugins is being built", "../../../outside": "is not a path inside the configuration", "../none": "there is no"} {
		_, _, err := compile("\n-- k/plugins/kustomization.yaml --\nresources: ['" + dir + "']")
		require.ErrorContains(t, err, want)
	}
	_, _, err = compile("\n-- k/plugins/a.yaml --\n{}")
	require.ErrorContains(t, err, "k/kustomization.yaml: transformers: there is no kustomization.yaml in k/plugins")
}

// The same files are rendered once, other files again, and an error is not kept.
func TestSameSourceIsRenderedOnce_D8(t *testing.T) {
	count := 0
	sources.RenderInProcess(func(order []byte) sources.Answer {
		count++
		return execute(order)
	})
	t.Cleanup(inSubprocess)
	build := func(text string) error {
		_, _, err := sources.Kustomize(fstest.MapFS{"kustomization.yaml": {Data: []byte("resources: [a.yaml]")}, "a.yaml": {Data: []byte(text)}}, ".", nil)
		return err
	}
	const object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
	for range 3 {
		require.NoError(t, build(object))
	}
	require.Equal(t, 1, count)
	require.NoError(t, build(object+"\n"))
	require.Equal(t, 2, count)
	for range 2 {
		require.Error(t, build("a: b"))
	}
	require.Equal(t, 4, count)
}
