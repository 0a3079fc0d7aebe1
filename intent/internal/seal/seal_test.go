package seal_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/internal/seal"
)

func newKey() string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	return base64.StdEncoding.EncodeToString(secret)
}

func TestSealedContentRequiresItsKey_G5(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	older, newer := newKey(), newKey()
	t.Setenv("NEWER", newer)
	require.NoError(t, os.WriteFile(file, []byte("# of last year\n"+older+"\n"), 0o600))
	before, err := seal.Load("file:" + file)
	require.NoError(t, err)
	rotated, err := seal.Load("env:NEWER, file://" + file)
	require.NoError(t, err)
	withdrawn, err := seal.Load("env:NEWER")
	require.NoError(t, err)

	plain := []byte("hunter2hunter2")
	sealed := before.Seal("bundles/a", plain)
	require.True(t, seal.Is(sealed))
	require.NotContains(t, string(sealed), string(plain))
	require.NotEqual(t, sealed, before.Seal("bundles/a", plain), "equal content is not recognizable")
	for _, ring := range []*seal.Ring{before, rotated} {
		opened, err := ring.Open("bundles/a", sealed)
		require.NoError(t, err)
		require.Equal(t, plain, opened)
	}
	require.True(t, before.SealedWithNewest(sealed))
	require.False(t, rotated.SealedWithNewest(sealed))
	require.True(t, withdrawn.SealedWithNewest(rotated.Seal("x", plain)))

	_, err = before.Open("bundles/b", sealed)
	require.ErrorIs(t, err, seal.ErrBroken, "under another name")
	for i := range sealed {
		damaged := bytes.Clone(sealed)
		damaged[i] ^= 1
		_, err := before.Open("bundles/a", damaged)
		require.Error(t, err, i)
	}
	for n := range sealed {
		_, err := before.Open("bundles/a", sealed[:n])
		require.Error(t, err, n)
	}
	_, err = withdrawn.Open("bundles/a", sealed)
	require.ErrorIs(t, err, seal.ErrNoKey)
	var none *seal.Ring
	_, err = none.Open("bundles/a", sealed)
	require.ErrorIs(t, err, seal.ErrNoKey)
}

func TestInvalidKeys(t *testing.T) {
	t.Setenv("SHORT", "aGVsbG8=")
	t.Setenv("NO_BASE64", "hunter2 hunter2")
	t.Setenv("COMMENT", "# nothing")
	for reference, wrong := range map[string]string{
		"env:SHORT": "line 1 is not a key", "env:NO_BASE64": "line 1 is not a key", "env:COMMENT": "it contains no key", "env:UNSET": "the variable is not set",
		"file:/nowhere/at/all": "no such file", newKey(): "expected file:/path or env:NAME",
	} {
		_, err := seal.Load(reference)
		require.ErrorContains(t, err, wrong)
		require.NotContains(t, err.Error(), "hunter2")
		require.NotContains(t, err.Error(), "=", "a key itself is not shown")
	}
	ring, err := seal.Load(" , ")
	require.NoError(t, err)
	require.Nil(t, ring)
}
