package sops_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"filippo.io/age"
	"github.com/getsops/sops/v3"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "encrypt the recorded files anew, with new keys")

// recorded has the files that the tests of intent/sops decrypt, with keys that serve nothing else.
const recorded = "../../intent/sops/testdata/recorded"

const secret = `apiVersion: v1
kind: Secret
metadata:
    name: db
    labels: {tier: back}
type: Opaque
# of production
stringData:
    # who may write
    user: admin
    password: hunter2hunter2
    motd: |
        first
        second ü€
    empty: ""
    template: "${{ version }}"
data:
    key: aHVudGVyLWlzLWJhc2U2NA==
`

func TestRecord(t *testing.T) {
	if !*update {
		t.Skip("only with -update")
	}
	key, other, pq := newKey(t), newKey(t), newHybrid(t)
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(recorded, name), []byte(text), 0o600))
	}
	require.NoError(t, os.RemoveAll(recorded))
	require.NoError(t, os.MkdirAll(filepath.Join(recorded, "plain"), 0o750))
	write("key.txt", "# throw-away keys of the tests\n"+key.String()+"\n"+pq.String()+"\n")
	write("other.txt", other.String()+"\n")
	ours, theirs := key.Recipient().String(), other.Recipient().String()
	two := secret + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: second}\nstringData: {token: hunter-token}\n"
	for name, o := range map[string]order{
		"secret.yaml":            {plain: secret, recipients: []string{ours}, rules: usual},
		"again.yaml":             {plain: secret, recipients: []string{ours}, rules: usual},
		"mac-only.yaml":          {plain: secret, recipients: []string{ours}, rules: sops.Metadata{EncryptedRegex: "^(data|stringData)$", MACOnlyEncrypted: true}},
		"unencrypted-regex.yaml": {plain: secret, recipients: []string{ours}, rules: sops.Metadata{UnencryptedRegex: "^(apiVersion|kind|metadata|type)$"}},
		"documents.yaml":         {plain: two, recipients: []string{ours}, rules: usual},
		"recipients.yaml":        {plain: secret, recipients: []string{theirs, ours}, rules: usual},
		"post-quantum.yaml":      {plain: secret, recipients: []string{pq.Recipient().String()}, rules: usual},
		"types.yaml":             {plain: "apiVersion: v1\nkind: Secret\nmetadata: {name: t}\nstringData: {i: 42, f: 1.50, b: true, d: 2001-02-03T04:05:06Z}\n", recipients: []string{ours}, rules: usual},
		"secret.json": {
			plain:  `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "stringData": {"password": "hunter2hunter2"}}`,
			format: "json", recipients: []string{ours}, rules: usual,
		},
	} {
		write(name, string(encrypt(t, o)))
		write(filepath.Join("plain", name), o.plain)
	}
	// Which nobody here decrypts, for one reason or the other.
	write("others.yaml", string(encrypt(t, order{plain: secret, recipients: []string{theirs}, rules: usual})))
	write("whole.yaml", string(encrypt(t, order{plain: secret, recipients: []string{ours}})))
	write("comments.yaml", string(encrypt(t, order{plain: secret, recipients: []string{ours}, rules: sops.Metadata{EncryptedCommentRegex: "who may"}})))
	write("config.yaml", string(encrypt(t, order{plain: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: hunter2}\n", recipients: []string{ours}, rules: usual})))
	write("values.yaml", string(encrypt(t, order{plain: "image: web\npassword: hunter2\n", recipients: []string{ours}, rules: sops.Metadata{EncryptedRegex: "password"}})))
}

func newKey(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	return id
}

func newHybrid(t *testing.T) *age.HybridIdentity {
	t.Helper()
	id, err := age.GenerateHybridIdentity()
	require.NoError(t, err)
	return id
}
