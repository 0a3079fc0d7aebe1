package compile_test

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/intenttest"
)

// cluster is an application with two channels on one cluster and a service whose body is given.
func cluster(body string) string {
	return `
apiVersion: converge/v1
kind: Application
name: shop
releaseChannels:
- {name: staging, labels: {tier: staging}, runtimes: [{name: eks, namespace: "shop-${{ channel }}"}], constants: {zone: s.dev}}
- {name: prod, labels: {tier: prod}, runtimes: [{name: eks, namespace: shop}], constants: {zone: p.com}}
---
{apiVersion: converge/v1, kind: Runtime, name: eks, kubernetes: {}}
---
apiVersion: converge/v1
kind: Service
name: web
` + body
}

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, creationTimestamp: null, labels: {app: web}}
spec:
  replicas: "${{ params.replicas }}" # how many
  template:
    spec:
      containers:
      - name: web
        image: registry.shop.dev/web:${{ version }}
        env: [{name: REPLICAS, value: "${{ params.replicas }}"}, {name: ZONE, value: "https://${{ constants.zone }}/"}]
        args: ["${{ params.replicas }}"]
status: {replicas: 1}
`

const webService = `
parameters: [{name: replicas, type: int, default: 2}]
kubernetes: {manifests: [web/], prune: true}
perReleaseChannel: [{releaseChannel: prod, parameters: {replicas: 12}, kubernetes: {prune: false, adopt: true}}]
`

// objectsOf renders a channel of web and fills in its objects.
func objectsOf(t testing.TB, compiled *compile.Compiled, channel string, in incarnation.RenderInput) []string {
	t.Helper()
	payloads, err := incarnation.Render(compiled.Incarnation, "web", in)
	require.NoError(t, err)
	return filled(t, compiled, payloads[channel])
}

// filled fills in the objects of a payload as it comes from the store.
func filled(t testing.TB, compiled *compile.Compiled, payload entities.Payload) []string {
	t.Helper()
	data, err := json.Marshal(payload)
	require.NoError(t, err)
	var stored entities.Payload
	require.NoError(t, json.Unmarshal(data, &stored))
	for _, bundle := range compiled.Bundles {
		if bundle.Digest() != payload.Kubernetes.Bundle {
			continue
		}
		objects, err := bundle.Objects(stored.Kubernetes.Values)
		require.NoError(t, err)
		var texts []string
		for _, o := range objects {
			texts = append(texts, string(o))
		}
		return texts
	}
	require.Fail(t, "the payload's bundle was not made")
	return nil
}

func TestKubernetesRuntime_C10(t *testing.T) {
	compiled := intenttest.Text(t, strings.Replace(cluster("kubernetes: {manifests: [a.yaml]}"), "kubernetes: {}",
		"kubernetes: {context: eu, kubeconfig: ./kube, failAfter: 30s, applyTimeout: 5m, pollInterval: 1s, retry: {maxAttempts: 2}}", 1), "a.yaml", configMap("a"))
	definition := compiled.Runtimes[0]
	require.Equal(t, entities.RuntimeKubernetes, definition.Kind)
	require.Equal(t, `{"kubeconfig":"./kube","context":"eu","failAfter":30000000000}`, string(intenttest.Line(t, definition.Kubernetes)))
	require.Equal(t, `{"pollInterval":1000000000,"steadyPollInterval":300000000000,"gracePeriod":600000000000,"applyTimeout":300000000000,`+
		`"fetchTimeout":30000000000,"maxAttempts":2,"retryBackoff":10000000000,"retryMax":300000000000}`, string(intenttest.Line(t, definition.Timing)))

	plain := intenttest.Text(t, cluster("kubernetes: {manifests: [a.yaml]}"), "a.yaml", configMap("a")).Runtimes[0]
	require.Equal(t, `{"failAfter":60000000000}`, string(intenttest.Line(t, plain.Kubernetes)))
}

func configMap(name string) string {
	return "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + "}}\n"
}

func TestObjectsOfAService_D8(t *testing.T) {
	compiled := intenttest.Text(t, cluster(webService), "web/web.yaml", deployment, "web/more.json", configMap("more")+"---\n"+configMap("most"), "web/README.md", "no manifest")
	require.Len(t, compiled.Bundles, 1)
	payloads, err := incarnation.Render(compiled.Incarnation, "web", incarnation.RenderInput{Version: "v7", Parameters: map[string]any{"replicas": 3}})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"params.replicas": int64(3), "version": "v7", "constants.zone": "p.com"}, payloads["prod"].Kubernetes.Values)
	require.Equal(t, []bool{true, false, false, true}, []bool{
		payloads["staging"].Kubernetes.Prune, payloads["staging"].Kubernetes.Adopt, payloads["prod"].Kubernetes.Prune, payloads["prod"].Kubernetes.Adopt,
	})
	require.Equal(t, map[string]string{"namespace": "shop-staging"}, payloads["staging"].Address)
	require.Equal(t, []string{
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"more"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"most"}}`,
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"app":"web"},"name":"web"},"spec":{"replicas":3,"template":{"spec":{"containers":[` +
			`{"args":["3"],"env":[{"name":"REPLICAS","value":"3"},{"name":"ZONE","value":"https://p.com/"}],"image":"registry.shop.dev/web:v7","name":"web"}]}}}}`,
	}, filled(t, compiled, payloads["prod"]))
}

// A payload changes when the objects or a value that they use change, and by nothing else.
func TestPayloadDigestOfObjects(t *testing.T) {
	digest := func(body, manifest string, in incarnation.RenderInput) string {
		compiled := intenttest.Text(t, cluster(body), "web/web.yaml", manifest)
		in.Version = cmp.Or(in.Version, "v1")
		payloads, err := incarnation.Render(compiled.Incarnation, "web", in)
		require.NoError(t, err)
		return entities.DigestOf(payloads["prod"])
	}
	same := digest(webService, deployment, incarnation.RenderInput{})
	for name, other := range map[string]string{
		"comments and order of keys": digest(webService, "# a comment\nspec: {template: {spec: {containers: [{args: ['${{ params.replicas }}'], image: 'registry.shop.dev/web:${{ version }}', name: web,\n"+
			"env: [{name: REPLICAS, value: '${{ params.replicas }}'}, {value: 'https://${{ constants.zone }}/', name: ZONE}]}]}}, replicas: '${{ params.replicas }}'}\n"+
			"metadata: {labels: {app: web}, name: web}\nkind: Deployment\napiVersion: apps/v1\n", incarnation.RenderInput{}),
		"a parameter that is not used": digest(strings.Replace(webService, "[{name: rep", "[{name: x, type: int, default: 1}, {name: rep", 1), deployment, incarnation.RenderInput{}),
		"the same value":               digest(webService, deployment, incarnation.RenderInput{Parameters: map[string]any{"replicas": "12"}}),
	} {
		require.Equal(t, same, other, name)
	}
	for name, other := range map[string]string{
		"an object":      digest(webService, strings.Replace(deployment, "app: web", "app: www", 1), incarnation.RenderInput{}),
		"a value":        digest(webService, deployment, incarnation.RenderInput{Parameters: map[string]any{"replicas": 13}}),
		"a version used": digest(webService, deployment, incarnation.RenderInput{Version: "v2"}),
		"prune":          digest(strings.Replace(webService, "prune: false", "prune: true", 1), deployment, incarnation.RenderInput{}),
	} {
		require.NotEqual(t, same, other, name)
	}
}

func TestYAMLIsReadAsKubernetesDoes(t *testing.T) {
	compiled := intenttest.Text(t, cluster("kubernetes: {manifests: [a.yaml]}"), "a.yaml",
		"{apiVersion: shop.dev/v1, kind: X, metadata: {name: a}, octal: 0644, yes: \"yes\", truth: on, date: 2024-01-02, big: 9223372036854775807, y: y, f: 1.5, none: null, text: \"<a> & b\\n\"}\n")
	require.Equal(t, []string{
		`{"apiVersion":"shop.dev/v1","big":9223372036854775807,"date":"2024-01-02","f":1.5,"kind":"X","metadata":{"name":"a"},"none":null,"octal":420,"text":"<a> & b\n","truth":true,"y":true,"yes":"yes"}`,
	}, objectsOf(t, compiled, "prod", incarnation.RenderInput{Version: "v1"}))
}

func TestListsOfObjectsAreUnpacked(t *testing.T) {
	compiled := intenttest.Text(t, cluster("kubernetes: {manifests: ['*.yaml']}"), "a.yaml",
		"apiVersion: v1\nkind: List\nitems:\n- "+configMap("a")+"- "+configMap("b"), "b.yaml", "---\n---\n"+configMap("c"))
	require.Len(t, objectsOf(t, compiled, "prod", incarnation.RenderInput{Version: "v1"}), 3)
}

// Empty lists of objects are left out of every source, as kubectl does, and so are empty documents.
func TestEmptyListsAreLeftOut(t *testing.T) {
	for _, list := range []string{
		"{apiVersion: v1, kind: List, items: []}", "{apiVersion: v1, kind: List, items: null}", "{apiVersion: v1, kind: List, items: }", "{apiVersion: v1, kind: List, metadata: {resourceVersion: ''}}",
		"{apiVersion: v1, kind: ConfigMapList, items: []}", "{apiVersion: v1, kind: ConfigMapList, items: null}", "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List, items: []}]}",
		"# nothing", "null", "{apiVersion: apps/v1, kind: DeploymentList, metadata: {}, items: []}",
	} {
		documents := "---\n" + list + "\n---\n" + configMap("a") + "\n---\n---\n" + list + "\n"
		for source, files := range map[string][]string{
			"manifests: [a.yaml]":  {"a.yaml", documents},
			"kustomize: .":         {"a.yaml", documents, "kustomization.yaml", "resources: [a.yaml]"},
			"helm: {chart: chart}": chartFiles(documents),
		} {
			if source == "kustomize: ." && (strings.Contains(list, "kind: List, metadata") || strings.Contains(list, "items: }") || strings.Contains(list, "null}")) {
				continue // Kustomize reads no such list
			}
			compiled, err := intenttest.Load(cluster("kubernetes: {"+source+"}"), files...)
			require.NoError(t, err, "%s: %s", source, list)
			made, err := compile.Compile(compiled)
			require.NoError(t, err)
			require.Len(t, objectsOf(t, made, "prod", incarnation.RenderInput{Version: "v1"}), 1, "%s: %s", source, list)
		}
	}
}

// Text that must keep its `${{` says so, and nothing else of the object is substituted then.
func TestObjectsThatDisableSubstitution(t *testing.T) {
	compiled := intenttest.Text(t, cluster("kubernetes: {manifests: [a.yaml]}"), "a.yaml",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {converge/substitute: \"false\"}}, data: {ci: \"${{ github.sha }}\", \"${{ x }}\": \"${{ version }}\"}}")
	require.Equal(t, []string{
		`{"apiVersion":"v1","data":{"${{ x }}":"${{ version }}","ci":"${{ github.sha }}"},"kind":"ConfigMap","metadata":{"annotations":{"converge/substitute":"false"},"name":"a"}}`,
	}, objectsOf(t, compiled, "prod", incarnation.RenderInput{Version: "v1"}))
}

func TestBundlesInTheStore(t *testing.T) {
	s, err := store.Open(t.Context(), "mem://")
	require.NoError(t, err)
	stored := intenttest.Text(t, cluster(webService), "web/web.yaml", deployment).Bundles[0]
	_, err = s.Bundle(t.Context(), stored.Digest())
	require.True(t, store.IsNotFound(err), "%v", err)
	require.NoError(t, s.PutBundle(t.Context(), stored))
	require.NoError(t, s.PutBundle(t.Context(), stored))
	back, err := s.Bundle(t.Context(), stored.Digest())
	require.NoError(t, err)
	require.Equal(t, stored.Bytes(), back.Bytes())
	_, err = back.Objects(map[string]any{"version": "v1", "constants.zone": "z"})
	require.EqualError(t, err, `the payload has no value for "params.replicas", which Deployment/web uses; expected one for each substitution of its bundle [missing-value]`)
}

// A difference names the objects that changed without their content (D7).
func TestDiffOfObjects_D7(t *testing.T) {
	before := intenttest.Text(t, cluster(webService), "web/web.yaml", deployment+"---\n"+configMap("gone")).Incarnation
	after := intenttest.Text(t, cluster(strings.Replace(webService, "replicas: 12", "replicas: 13", 1)), "web/web.yaml",
		strings.Replace(deployment, "app: web", "app: www", 1)+"---\n"+configMap("new")).Incarnation
	d, err := incarnation.Diff(before, after)
	require.NoError(t, err)
	require.Regexp(t, `^web changed
  staging changed
    payload
      - objects.ConfigMap/gone  sha256 [0-9a-f]{12}
      \+ objects.ConfigMap/new  sha256 [0-9a-f]{12}
      ~ objects.Deployment/web  sha256 [0-9a-f]{12} → sha256 [0-9a-f]{12}
  prod changed
    payload
      - objects.ConfigMap/gone  sha256 [0-9a-f]{12}
      \+ objects.ConfigMap/new  sha256 [0-9a-f]{12}
      ~ objects.Deployment/web  sha256 [0-9a-f]{12} → sha256 [0-9a-f]{12}
      ~ parameters.replicas  12 → 13
$`, d.String())
}

// A service is taken to the runtime of the kind that it is written for.
func TestRuntimeByKind(t *testing.T) {
	text := strings.ReplaceAll(cluster("kubernetes: {manifests: [a.yaml]}"), "runtimes: [", "runtimes: [{name: edge}, ") + `
---
{apiVersion: converge/v1, kind: Runtime, name: edge, custom: {apply: {command: [x]}}}
---
{apiVersion: converge/v1, kind: Service, name: routes, custom: {env: {A: b}}}
---
{apiVersion: converge/v1, kind: Service, name: plain}
`
	compiled := intenttest.Text(t, text, "a.yaml", configMap("a"))
	for service, runtime := range map[string]string{"web": "eks", "routes": "edge", "plain": "edge"} {
		payload, err := compiled.Incarnation.Template(service, "prod")
		require.NoError(t, err)
		require.Equal(t, runtime, payload.Runtime, service)
	}
}
