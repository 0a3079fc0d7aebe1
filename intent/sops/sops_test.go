package sops_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/sops"
)

// read is a file that SOPS itself encrypted (tests/sops).
func read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "recorded", name))
	require.NoError(t, err)
	return string(text)
}

func keysOf(t testing.TB, files ...string) *sops.Keys {
	t.Helper()
	var texts []string
	for _, name := range files {
		texts = append(texts, read(t, name))
	}
	keys, err := sops.Load(nil, func(name string) string {
		return map[string]string{sops.KeyVariable: strings.Join(texts, "\n")}[name]
	})
	require.NoError(t, err)
	return keys
}

// objects are the documents of a file, as a bundle has the encrypted ones of them.
func objects(t testing.TB, text string) (all []map[string]any) {
	t.Helper()
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var object map[string]any
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if delete(object, sops.Field); sops.FirstSealed(object) != "" {
			object[sops.Field] = text
		}
		all = append(all, object)
	}
}

func open(t testing.TB, keys *sops.Keys, object map[string]any) (map[string]any, error) {
	t.Helper()
	raw, err := json.Marshal(object)
	require.NoError(t, err)
	plain, err := keys.Open("shop", raw)
	if err != nil {
		return nil, err
	}
	var back map[string]any
	require.NoError(t, json.Unmarshal(plain, &back))
	return back, nil
}

// What SOPS encrypted is decrypted to what it was, with everything that stands beside it and nothing of SOPS.
func TestDecryptsWhatSOPSEncrypted_G5(t *testing.T) {
	keys := keysOf(t, "other.txt", "key.txt")
	names, err := filepath.Glob("testdata/recorded/plain/*")
	require.NoError(t, err)
	require.Len(t, names, 9)
	for _, name := range names {
		name := filepath.Base(name)
		want := objects(t, read(t, "plain/"+name))
		encrypted := objects(t, read(t, name))
		require.Len(t, encrypted, len(want), name)
		for i, object := range encrypted {
			got, err := open(t, keys, object)
			require.NoError(t, err, name)
			wanted, err := json.Marshal(want[i])
			require.NoError(t, err)
			given, err := json.Marshal(got)
			require.NoError(t, err)
			require.JSONEq(t, string(wanted), string(given), name)
		}
	}
}

// What is not encrypted passes as it is, byte for byte: also what only looks so and is for a controller in the cluster.
func TestUnencryptedObjectsPassUnchanged(t *testing.T) {
	for _, raw := range []string{
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"b":"YQ=="}}`,
		`{"apiVersion":"isindir.github.com/v1alpha3","kind":"SopsSecret","metadata":{"name":"a"},"sops":{"mac":"x"}}`,
		`{"apiVersion":"example.com/v1","kind":"Secret","metadata":{"name":"a"},"sops":"text"}`,
	} {
		got, err := (*sops.Keys)(nil).Open("shop", json.RawMessage(raw))
		require.NoError(t, err)
		require.Equal(t, raw, string(got))
	}
}

const recipientOf = `age1[a-z0-9]{58}`

// Without the right key nothing is decrypted, and it is said for whom it is: a key may come later.
func TestMissingAndWrongKeys_G5(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		keys *sops.Keys
		want string
	}{
		"none":        {"secret.yaml", nil, `^decrypt Secret db, which SOPS encrypted for ` + recipientOf + `: this worker has no age identity for it: it has none; start it with --sops-age-key-file$`},
		"another":     {"secret.yaml", keysOf(t, "other.txt"), `^decrypt Secret db, which SOPS encrypted for ` + recipientOf + `: this worker has no age identity for it: it has those of ` + recipientOf + `$`},
		"of two":      {"recipients.yaml", nil, `for ` + recipientOf + `, ` + recipientOf + `: this worker`},
		"of somebody": {"others.yaml", keysOf(t, "key.txt"), `this worker has no age identity for it: it has those of ` + recipientOf + `, age1pq1`},
	} {
		_, err := open(t, c.keys, objects(t, read(t, c.file))[0])
		require.ErrorIs(t, err, sops.ErrNoKey, name)
		require.Regexp(t, c.want, err.Error(), name)
		require.NotContains(t, err.Error(), "AGE-SECRET", name)
	}
}

// Whatever of a file is changed, it is refused for good, and what could be decrypted is not shown.
func TestChangedFilesAreRefused_G5(t *testing.T) {
	keys := keysOf(t, "key.txt")
	text, again := read(t, "secret.yaml"), read(t, "again.yaml")
	line := func(of, begin string) string { return regexp.MustCompile(`(?m)^ *` + begin + `: .*$`).FindString(of) }
	const mac = "its MAC does not match: the file was changed after it was encrypted"
	for name, c := range map[string]struct{ from, old, instead, want string }{
		"a plain-text name":              {text, "name: db", "name: web", mac},
		"a plain-text label":             {text, "tier: back", "tier: front", mac},
		"an additional plain-text field": {text, "type: Opaque", "type: Opaque\nimmutable: true", mac},
		"a missing value":                {text, line(text, "user") + "\n", "", mac},
		"another order":                  {text, line(text, "user") + "\n" + line(text, "password"), line(text, "password") + "\n" + line(text, "user"), mac},
		// It adds nothing to what SOPS makes its MAC of.
		"an additional empty value": {text, `    empty: ""`, "    empty: \"\"\n    more: \"\"", ""},
		"a value moved":             {text, line(text, "user") + "\n" + line(text, "password"), strings.Replace(line(text, "password"), "password", "user", 1), "stringData.user cannot be decrypted: it was changed, or moved from elsewhere"},
		"an earlier value":          {text, line(text, "password"), line(again, "password"), "stringData.password cannot be decrypted"},
		"an earlier MAC":            {text, line(text, "mac"), line(again, "mac"), "its MAC cannot be decrypted"},
		"the time":                  {text, line(text, "lastmodified"), `    lastmodified: "2001-01-01T00:00:00Z"`, "its MAC cannot be decrypted: the file was changed, its lastmodified for one"},
		"the type":                  {text, line(text, "user"), strings.Replace(line(text, "user"), "type:str", "type:int", 1), "stringData.user does not have its stated type"},
		"the kind of MAC":           {text, "    version:", "    mac_only_encrypted: true\n    version:", mac},
		"the key":                   {text, "-----BEGIN AGE ENCRYPTED FILE-----\n            YWdl", "-----BEGIN AGE ENCRYPTED FILE-----\n            YWdm", "the key for age1"},
		"a document":                {read(t, "documents.yaml"), "name: plain", "name: other", mac},
	} {
		require.Contains(t, c.from, c.old, name)
		changed := strings.Replace(c.from, c.old, c.instead, 1)
		_, err := open(t, keys, objects(t, changed)[0])
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.want, name)
		require.NotErrorIs(t, err, sops.ErrNoKey, name)
		require.NotRegexp(t, "hunter|admin", err.Error(), name)
	}
	object := objects(t, text)[0]
	object["stringData"].(map[string]any)["user"] = sops.FirstSealed(objects(t, again)[0])
	_, err := open(t, keys, object)
	require.ErrorContains(t, err, "stringData.user differs from its encrypted value in the file that SOPS encrypted")
	object = objects(t, text)[0]
	values := object["stringData"].(map[string]any)
	values["user"], values["password"] = values["password"], values["user"]
	_, err = open(t, keys, object)
	require.ErrorContains(t, err, "differs from its encrypted value in the file that SOPS encrypted")
}

// Each file of testdata/hostile is refused before any key is asked for; its first line says with what.
func TestHostileFiles_G4(t *testing.T) {
	names, err := filepath.Glob("testdata/hostile/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		want, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# want: "), "\n")
		require.NotEmpty(t, want, name)
		_, err = sops.Read(text)
		require.ErrorContains(t, err, want, name)
		require.NotContains(t, err.Error(), "\x1b", name)
	}
	text := read(t, "secret.yaml")
	with := func(more string) []byte { return []byte(strings.Replace(text, "metadata:\n", "metadata:\n"+more, 1)) }
	deep := "    a: " + strings.Repeat("[", 60) + strings.Repeat("]", 60) + "\n"
	wide := "    a: [" + strings.Repeat("x,", 20_001) + "]\n"
	entry := text[strings.Index(text, "        - enc"):strings.Index(text, "    encrypted_regex")]
	for want, text := range map[string][]byte{
		"it has 4194305 bytes; expected at most 4194304": bytes.Repeat([]byte("#"), 4<<20+1),
		"metadata.a is nested deeper than 50 levels":     with(deep),
		"it has more than 20000 values":                  with(wide),
		"it has 101 recipients; expected at most 100":    []byte(strings.Replace(text, entry, strings.Repeat(entry, 101), 1)),
		"it has 9000 documents, and each is stored with": []byte(text + strings.Repeat("---\n{a: b}\n", 8999)),
		"it is not valid YAML":                           with("    a: " + strings.Repeat("[", 20_000)),
	} {
		_, err := sops.Read(text)
		require.ErrorContains(t, err, want)
	}
	for name, want := range map[string]string{
		"whole.yaml":    `apiVersion is encrypted, and in a Secret only data and stringData can be: encrypt it with --encrypted-regex "^(data|stringData)$"`,
		"comments.yaml": `its SOPS metadata has "encrypted_comment_regex", which is not supported`,
		"values.yaml":   "password is encrypted, and in a Secret only",
	} {
		_, err := sops.Read([]byte(read(t, name)))
		require.ErrorContains(t, err, want, name)
	}
}

// Another sort of key among the recipients does no harm: the age identity decrypts, and nobody else is asked.
func TestOtherKeyTypesAreNotUsed(t *testing.T) {
	text := strings.Replace(read(t, "secret.yaml"), "sops:\n", "sops:\n    shamir_threshold: 0\n    pgp: []\n    azure_kv:\n"+
		"        - {vault_url: 'http://127.0.0.1:1', name: a, version: b, created_at: '2026-11-23T01:54:19Z', enc: AQ==}\n", 1)
	got, err := open(t, keysOf(t, "key.txt"), objects(t, text)[0])
	require.NoError(t, err)
	require.Equal(t, "hunter2hunter2", got["stringData"].(map[string]any)["password"])
}

// What an observation of an encrypted Secret takes more than of another.
func BenchmarkOpen(b *testing.B) {
	keys := keysOf(b, "key.txt")
	raw, err := json.Marshal(objects(b, read(b, "secret.yaml"))[0])
	require.NoError(b, err)
	for b.Loop() {
		_, err := keys.Open("shop", raw)
		require.NoError(b, err)
	}
}

// FuzzOpen: whatever a file is, nothing panics, no error shows what was decrypted, and what is decrypted is what SOPS
// encrypted.
func FuzzOpen(f *testing.F) {
	keys := keysOf(f, "key.txt")
	known := map[any]bool{"hunter2": true, "2001-02-03T04:05:06Z": true} // and those of plain files
	seeds, err := filepath.Glob("testdata/*/*.*")
	require.NoError(f, err)
	for _, name := range seeds {
		text, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(string(text))
	}
	plain, err := filepath.Glob("testdata/recorded/plain/*")
	require.NoError(f, err)
	for _, name := range plain {
		for _, object := range objects(f, read(f, "plain/"+filepath.Base(name))) {
			for _, field := range []string{"data", "stringData"} {
				values, _ := object[field].(map[string]any)
				for _, v := range values {
					known[fmt.Sprint(v)] = true
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 20_000 {
			t.Skip()
		}
		var object map[string]any
		if yaml.Unmarshal([]byte(text), &object) != nil || sops.FirstSealed(object) == "" {
			_, _ = sops.Read([]byte(text))
			return
		}
		sealed := map[string]bool{}
		for _, field := range []string{"data", "stringData"} {
			values, _ := object[field].(map[string]any)
			for key, v := range values {
				text, _ := v.(string)
				sealed[field+key] = sops.IsSealed(text)
			}
		}
		object["apiVersion"], object["kind"], object[sops.Field] = "v1", "Secret", text
		raw, err := json.Marshal(object)
		if err != nil {
			return
		}
		got, err := keys.Open("shop", raw)
		if err != nil {
			require.NotContains(t, err.Error(), "hunter")
			return
		}
		var back map[string]any
		require.NoError(t, json.Unmarshal(got, &back))
		for _, field := range []string{"data", "stringData"} {
			values, _ := back[field].(map[string]any)
			for key, v := range values {
				require.True(t, !sealed[field+key] || known[fmt.Sprint(v)], "%v", v)
			}
		}
	})
}
