package compile_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/sops"
	"github.com/converge-engine/converge/tests/intenttest"
)

// encrypted is a file that SOPS itself encrypted.
func encrypted(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../sops/testdata/recorded", name))
	require.NoError(t, err)
	return string(text)
}

// decrypted are the objects of a channel, decrypted as a worker does it.
func decrypted(t testing.TB, compiled *compile.Compiled) (all []string) {
	t.Helper()
	key, err := os.ReadFile("../sops/testdata/recorded/key.txt")
	require.NoError(t, err)
	keys, err := sops.Load(nil, func(name string) string { return map[string]string{sops.KeyVariable: string(key)}[name] })
	require.NoError(t, err)
	for _, raw := range objectsOf(t, compiled, "prod", incarnation.RenderInput{Version: "v1"}) {
		plain, err := keys.Open("shop", json.RawMessage(raw))
		require.NoError(t, err)
		all = append(all, string(plain))
	}
	return all
}

const clearDB = `{"apiVersion":"v1","data":{"key":"aHVudGVyLWlzLWJhc2U2NA=="},"kind":"Secret","metadata":{"labels":{"tier":"back"},"name":"db"},` +
	`"stringData":{"empty":"","motd":"first\nsecond ü€\n","password":"hunter2hunter2","template":"${{ version }}","user":"admin"},"type":"Opaque"}`

// What SOPS encrypted is compiled without a key, stays encrypted, and is named by its cipher text: nothing in it has to be
// kept from anybody. A text in it that looks like a substitution is none.
func TestEncryptedManifestStaysEncrypted_G5(t *testing.T) {
	text := encrypted(t, "secret.yaml")
	compiled := intenttest.Text(t, cluster("kubernetes: {manifests: [db.yaml]}"), "db.yaml", text)
	require.Len(t, compiled.Bundles, 1)
	bundle := compiled.Bundles[0]
	require.False(t, bundle.Secret())
	sum := sha256.Sum256(bundle.Bytes())
	require.Equal(t, hex.EncodeToString(sum[:]), bundle.Digest())
	for _, all := range []string{string(bundle.Bytes()), string(compiled.Incarnation.Bytes())} {
		require.NotContains(t, all, "hunter")
	}
	require.Equal(t, []string{clearDB}, decrypted(t, compiled))

	again := intenttest.Text(t, cluster("kubernetes: {manifests: [db.yaml]}"), "db.yaml", encrypted(t, "again.yaml"))
	require.Equal(t, decrypted(t, compiled), decrypted(t, again))
	require.NotEqual(t, compiled.Incarnation.Hash(), again.Incarnation.Hash(), "equal content is not visible without a key")
	moved := intenttest.Text(t, cluster("kubernetes: {manifests: ['other/*.yaml']}"), "other/b.yaml", text)
	require.Equal(t, bundle.Digest(), moved.Bundles[0].Digest())
}

// The MAC is of all documents of a file: each Secret of it is decrypted by itself, and what is no Secret is what it says.
func TestEncryptedDocuments(t *testing.T) {
	compiled := intenttest.Text(t, cluster("kubernetes: {manifests: [db.yaml]}"), "db.yaml", encrypted(t, "documents.yaml"))
	require.Equal(t, []string{
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"plain"}}`, clearDB,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"second"},"stringData":{"token":"hunter-token"}}`,
	}, decrypted(t, compiled))
	compiled = intenttest.Text(t, cluster("kubernetes: {manifests: [db.json]}"), "db.json", encrypted(t, "secret.json"))
	require.Equal(t, []string{`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db"},"stringData":{"password":"hunter2hunter2"}}`}, decrypted(t, compiled))
}

// A kustomization may change what stands in clear, as the one who wrote both wants it; the file is held to its MAC as it is.
func TestEncryptedResourceOfAKustomization(t *testing.T) {
	compiled := intenttest.Text(t, cluster("kubernetes: {kustomize: k}"), "k/kustomization.yaml",
		"{commonAnnotations: {by: k}, namePrefix: a-, resources: [documents.yaml, base], patches: [{target: {name: second}, patch: '[{\"op\": \"add\", \"path\": \"/stringData/user\", \"value\": \"eve\"}]'}]}",
		"k/documents.yaml", encrypted(t, "documents.yaml"), "k/base/kustomization.yaml", "{nameSuffix: -pq, resources: [pq.yaml]}", "k/base/pq.yaml", encrypted(t, "post-quantum.yaml"))
	named := func(name string) string {
		text := strings.Replace(clearDB, `"metadata":{`, `"metadata":{"annotations":{"by":"k"},`, 1)
		return strings.Replace(text, `"name":"db"`, `"name":"`+name+`"`, 1)
	}
	require.Equal(t, []string{
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"by":"k"},"name":"a-plain"}}`, named("a-db"), named("a-db-pq"),
		`{"apiVersion":"v1","kind":"Secret","metadata":{"annotations":{"by":"k"},"name":"a-second"},"stringData":{"token":"hunter-token","user":"eve"}}`,
	}, decrypted(t, compiled))
}

// What cannot be decrypted as it stands is refused when compiling, not applied as cipher text.
func TestEncryptionIsRejectedWhereUnsupported_G5(t *testing.T) {
	secret := encrypted(t, "secret.yaml")
	without := secret[:strings.Index(secret, "sops:\n")]
	chart := []string{"chart/Chart.yaml", "{apiVersion: v2, name: web, version: 1.0.0}", "chart/templates/a.yaml"}
	for want, c := range map[string]struct {
		body  string
		files []string
	}{
		"v.yaml is encrypted by SOPS, and charts are rendered without keys": {
			"kubernetes: {helm: {chart: chart, valuesFiles: [v.yaml]}}", append(chart, configMap("a"), "v.yaml", encrypted(t, "values.yaml")),
		},
		"this is encrypted by SOPS, and the file that SOPS encrypted is missing": {
			"kubernetes: {helm: {chart: chart}}", append(chart, secret),
		},
		"Secret/db: this is encrypted by SOPS, and the file": {"kubernetes: {manifests: [a.yaml]}", []string{"a.yaml", without}},
		"this is encrypted by SOPS, and its decrypted content would be shown in plans and drift; expected a Secret": {
			"kubernetes: {manifests: [a.yaml]}", []string{"a.yaml", encrypted(t, "config.yaml")},
		},
		"a.yaml is encrypted by SOPS, and cannot be used: apiVersion is encrypted, and in a Secret": {
			"kubernetes: {manifests: [a.yaml]}", []string{"a.yaml", encrypted(t, "whole.yaml")},
		},
		"a.yaml is encrypted by SOPS, and cannot be used: it is encrypted for pgp only": {
			"kubernetes: {manifests: [a.yaml]}", []string{"a.yaml", hostile(t, "pgp.yaml")},
		},
		"SOPS encrypted nothing in this Secret": {"kubernetes: {manifests: [a.yaml]}", []string{"a.yaml", nothing(secret)}},
		"Secret/db metadata.labels.tier: substitution is not supported in a file that SOPS encrypted, because its MAC covers all of it": {
			"kubernetes: {manifests: [a.yaml]}", []string{"a.yaml", strings.Replace(secret, "tier: back", `tier: "${{ version }}"`, 1)},
		},
		"data[\"s.yaml\"] (kustomization k): this is a file that SOPS encrypted, and it would be applied without decryption": {
			"kubernetes: {kustomize: k}", []string{"k/kustomization.yaml", "secretGenerator: [{name: a, files: [s.yaml]}]", "k/s.yaml", secret},
		},
		"Secret/db (kustomization k): stringData.admin differs from its encrypted value in the file that SOPS encrypted; expected the values of k/a.yaml": {
			"kubernetes: {kustomize: k}", []string{"k/kustomization.yaml", "{resources: [a.yaml], patches: [{target: {name: db}, patch: '[{\"op\": \"move\", \"from\": \"/stringData/user\", \"path\": \"/stringData/admin\"}]'}]}", "k/a.yaml", secret},
		},
	} {
		loaded, err := intenttest.Load(cluster(c.body), c.files...)
		if err == nil {
			_, err = compile.Compile(loaded)
		}
		require.ErrorContains(t, err, want)
		require.Contains(t, err.Error(), "[", want)
	}
}

// nothing is the file without its values.
func nothing(text string) string {
	return text[:strings.Index(text, "stringData:")] + "stringData: {empty: ''}\n" + text[strings.Index(text, "sops:\n"):]
}

func hostile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../sops/testdata/hostile", name))
	require.NoError(t, err)
	return string(text)
}

// Kinds that a controller in the cluster decrypts are not ours.
func TestEncryptedForAController(t *testing.T) {
	text := strings.NewReplacer("apiVersion: v1", "apiVersion: isindir.github.com/v1alpha3", "kind: Secret", "kind: SopsSecret", "stringData:", "spec:").Replace(encrypted(t, "secret.yaml"))
	compiled := intenttest.Text(t, cluster("kubernetes: {manifests: [a.yaml]}"), "a.yaml", text)
	objects := decrypted(t, compiled)
	require.Len(t, objects, 1)
	require.Contains(t, objects[0], `"sops":{"age":[{"enc":`)
}
