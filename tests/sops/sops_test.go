package sops_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/cmd/sops/formats"
	"github.com/getsops/sops/v3/decrypt"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	ours "github.com/converge-engine/converge/intent/sops"
)

// values are the data and stringData of each Secret of a file, as text; nil of what holds neither.
func values(t require.TestingT, text []byte) (all []map[string]string) {
	for decoder := yaml.NewDecoder(strings.NewReader(string(text))); ; {
		var object map[string]any
		if decoder.Decode(&object) != nil {
			return all
		}
		all = append(all, valuesOf(object))
	}
}

func valuesOf(object map[string]any) map[string]string {
	found := map[string]string{}
	for _, field := range []string{"data", "stringData"} {
		entries, _ := object[field].(map[string]any)
		for key, v := range entries {
			found[field+"."+key] = fmt.Sprint(v)
		}
	}
	return found
}

// opened are the values that our own decryption finds in the documents of an encrypted file.
func opened(t require.TestingT, keys *ours.Keys, text []byte) (all []map[string]string, err error) {
	for decoder := yaml.NewDecoder(strings.NewReader(string(text))); ; {
		var object map[string]any
		if decoder.Decode(&object) != nil { // what is no YAML is for those who parse it
			return all, nil //nolint:nilerr // as above
		}
		if object["kind"] != "Secret" || object["apiVersion"] != "v1" { // which compiling would refuse
			return nil, errors.New("no Secret")
		}
		object[ours.Field] = string(text)
		raw, err := json.Marshal(object)
		require.NoError(t, err)
		plain, err := keys.Open("shop", raw)
		if err != nil {
			return nil, err
		}
		var back map[string]any
		require.NoError(t, json.Unmarshal(plain, &back))
		require.NotContains(t, back, ours.Field)
		all = append(all, valuesOf(back))
	}
}

func keysOf(t *testing.T, id *age.X25519Identity) *ours.Keys {
	t.Helper()
	keys, err := ours.Load(nil, func(name string) string { return map[string]string{"SOPS_AGE_KEY": id.String()}[name] })
	require.NoError(t, err)
	return keys
}

// secrets draws a file of Secrets: comments, several documents, texts of all sorts.
func secrets() *rapid.Generator[string] {
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z0-9 =:#'"\n-]{0,40}`), rapid.SampledFrom([]string{
		"", "true", "0x1F", "1e3", "~", "null", "2001-02-03", "ENC[", "${{ version }}", "line\nline\n", " # no comment", "ü€😀", "yes",
	})).Filter(func(s string) bool { // the library does not read all that it writes
		var back map[string]map[string]string
		out, err := yaml.Marshal(map[string]map[string]string{"a": {"b": s}})
		return err == nil && yaml.Unmarshal(out, &back) == nil && back["a"]["b"] == s
	})
	key := rapid.StringMatching(`[a-zA-Z][a-zA-Z0-9._-]{0,10}`)
	return rapid.Custom(func(t *rapid.T) string {
		var documents []string
		for i := range rapid.IntRange(1, 3).Draw(t, "documents") {
			object := &yaml.Node{Kind: yaml.MappingNode}
			add := func(to *yaml.Node, key string, value any) *yaml.Node {
				name, node := &yaml.Node{}, &yaml.Node{}
				require.NoError(t, name.Encode(key))
				require.NoError(t, node.Encode(value))
				if rapid.IntRange(0, 4).Draw(t, "commented") == 0 {
					name.HeadComment = "# " + rapid.StringMatching(`[a-z ]{1,10}`).Draw(t, "comment")
				}
				to.Content = append(to.Content, name, node)
				return node
			}
			add(object, "kind", "Secret")
			add(object, "metadata", map[string]any{"name": fmt.Sprint("s", i), "labels": map[string]string{"a": text.Draw(t, "label")}})
			add(object, "apiVersion", "v1")
			for _, field := range []string{"stringData", "data"} {
				if node := add(object, field, map[string]string{}); rapid.Bool().Draw(t, "filled") {
					for _, key := range rapid.SliceOfNDistinct(key, 1, 4, rapid.ID).Draw(t, "keys") {
						add(node, key, text.Draw(t, key))
					}
					node.Style = 0
				}
			}
			add(object, "immutable", rapid.Bool().Draw(t, "immutable"))
			out, err := yaml.Marshal(object)
			require.NoError(t, err)
			documents = append(documents, string(out))
		}
		return strings.Join(documents, "---\n")
	})
}

// What SOPS encrypts is decrypted as SOPS does it.
func TestDecryptsAsSOPSDoes(t *testing.T) {
	id := identity(t)
	keys := keysOf(t, id)
	rapid.Check(t, func(r *rapid.T) {
		o := order{plain: secrets().Draw(r, "plain"), recipients: []string{id.Recipient().String()}, rules: rapid.SampledFrom([]sops.Metadata{
			usual, {EncryptedRegex: "^(data|stringData)$", MACOnlyEncrypted: true}, {UnencryptedRegex: "^(apiVersion|kind|metadata|immutable)$"}, {EncryptedSuffix: "ata"},
		}).Draw(r, "rules")}
		if o.rules.EncryptedSuffix != "" {
			o.plain = strings.ReplaceAll(o.plain, "metadata:", "meta:") // which ends so too
		}
		text := encrypt(r, o)
		theirs, err := decrypt.Data(text, "yaml")
		require.NoError(r, err)
		got, err := opened(r, keys, text)
		require.NoError(r, err, string(text))
		require.Equal(r, values(r, theirs), got, string(text))
	})
}

// A file that was changed anywhere is decrypted to the same or not at all, and never where SOPS would not.
func TestRefusesWhatSOPSRefuses(t *testing.T) {
	id := identity(t)
	keys := keysOf(t, id)
	plain := lines("apiVersion: v1", "kind: Secret", "metadata:", "  name: db", "  labels: {tier: back}",
		"stringData:", "  # of staging", "  user: admin", "  password: hunter2hunter2", "data:", "  key: aHVudGVyMg==")
	text := encrypt(t, order{plain: plain, recipients: []string{id.Recipient().String()}, rules: usual})
	want := values(t, []byte(plain))
	refused, same := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		rows := strings.Split(string(text), "\n")
		at := rapid.IntRange(0, len(rows)-1).Draw(r, "line")
		switch rapid.IntRange(0, 3).Draw(r, "how") {
		case 0:
			rows = append(rows[:at:at], rows[at+1:]...)
		case 1:
			other := rapid.IntRange(0, len(rows)-1).Draw(r, "other")
			rows[at], rows[other] = rows[other], rows[at]
		case 2:
			rows[at] += rapid.StringMatching(`[ a-z:#]{1,3}`).Draw(r, "more")
		default:
			if len(rows[at]) > 0 {
				i := rapid.IntRange(0, len(rows[at])-1).Draw(r, "column")
				rows[at] = rows[at][:i] + rapid.StringMatching(`[a-zA-Z0-9:+/=-]`).Draw(r, "instead") + rows[at][i+1:]
			}
		}
		changed := []byte(strings.Join(rows, "\n"))
		got, err := opened(r, keys, changed)
		if err != nil {
			refused++
			require.NotContains(r, err.Error(), "hunter2")
			return
		}
		if len(got) == 0 { // no YAML
			return
		}
		theirs, err := decrypt.Data(changed, "yaml")
		require.NoError(r, err, "SOPS refuses it:\n%s", changed)
		require.Equal(r, values(r, theirs), got)
		if fmt.Sprint(got) == fmt.Sprint(want) {
			same++
		}
	})
	t.Logf("refused %d, the same %d", refused, same)
	require.NotZero(t, refused)
}

// The files that were recorded are what SOPS decrypts to the texts beside them, if it decrypts them.
func TestRecordedFiles(t *testing.T) {
	key, err := os.ReadFile(filepath.Join(recorded, "key.txt"))
	require.NoError(t, err)
	t.Setenv("SOPS_AGE_KEY", string(key))
	names, err := filepath.Glob(filepath.Join(recorded, "plain", "*"))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		want, err := os.ReadFile(name)
		require.NoError(t, err)
		text, err := os.ReadFile(filepath.Join(recorded, filepath.Base(name)))
		require.NoError(t, err)
		got, err := decrypt.Data(text, strings.TrimPrefix(filepath.Ext(name), "."))
		require.NoError(t, err, name)
		require.Equal(t, values(t, want), values(t, got), name)
	}
}

// What is captured and encrypted here SOPS decrypts to the same, and edits.
func TestSOPSReadsWhatIsSealed_E2(t *testing.T) {
	id := identity(t)
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.MapOfN(rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_]{0,8}`), rapid.String(), 1, 4).Draw(t, "texts")
		sealed, err := ours.Seal("prowlarr", texts, []string{id.Recipient().String()}, time.Now())
		require.NoError(t, err)
		plain, err := decrypt.DataWithFormat(sealed, formats.Yaml)
		require.NoError(t, err)
		var back struct {
			Kind       string            `yaml:"kind"`
			StringData map[string]string `yaml:"stringData"`
		}
		require.NoError(t, yaml.Unmarshal(plain, &back))
		require.Equal(t, "Secret", back.Kind)
		require.Equal(t, texts, back.StringData)
	})
}
