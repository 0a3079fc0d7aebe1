// Package sops_test holds intent/sops to SOPS: what SOPS encrypts is decrypted to the same, and what SOPS refuses is
// refused. It also makes the files that the tests there have recorded (go test . -update).
package sops_test

import (
	"io"
	"os"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/aes"
	sopsage "github.com/getsops/sops/v3/age"
	"github.com/getsops/sops/v3/cmd/sops/common"
	"github.com/getsops/sops/v3/cmd/sops/formats"
	"github.com/getsops/sops/v3/config"
	"github.com/getsops/sops/v3/logging"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	for _, logger := range logging.Loggers {
		logger.SetOutput(io.Discard)
	}
	home, err := os.MkdirTemp("", "home-") // SOPS looks for keys there
	if err != nil {
		panic(err)
	}
	for name := range map[string]bool{"HOME": true, "XDG_CONFIG_HOME": true} {
		_ = os.Setenv(name, home)
	}
	code := m.Run()
	_ = os.RemoveAll(home)
	os.Exit(code)
}

// order is what is to be encrypted, and how.
type order struct {
	plain      string
	format     string // yaml when empty
	recipients []string
	rules      sops.Metadata // of it the rules only
}

// usual is the rule that everybody has for Secrets.
var usual = sops.Metadata{EncryptedRegex: "^(data|stringData)$"}

func newStore(format string) common.Store {
	if format == "" {
		format = "yaml"
	}
	return common.StoreForFormat(formats.FormatFromString(format), config.NewStoresConfig())
}

// encrypt is what `sops --encrypt` does.
func encrypt(t require.TestingT, o order) []byte {
	store := newStore(o.format)
	branches, err := store.LoadPlainFile([]byte(o.plain))
	require.NoError(t, err)
	var group sops.KeyGroup
	for _, name := range o.recipients {
		key, err := sopsage.MasterKeyFromRecipient(name)
		require.NoError(t, err)
		group = append(group, key)
	}
	meta := o.rules
	meta.KeyGroups, meta.Version = []sops.KeyGroup{group}, "3.13.3"
	tree := sops.Tree{Branches: branches, Metadata: meta}
	key, errs := tree.GenerateDataKey()
	require.Empty(t, errs)
	require.NoError(t, common.EncryptTree(common.EncryptTreeOpts{Tree: &tree, Cipher: aes.NewCipher(), DataKey: key}))
	text, err := store.EmitEncryptedFile(tree)
	require.NoError(t, err)
	return text
}

// identity is a new one, which SOPS uses in this test.
func identity(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	t.Setenv("SOPS_AGE_KEY", id.String())
	return id
}

// lines are the lines of a text, one below the other.
func lines(all ...string) string { return strings.Join(all, "\n") + "\n" }
