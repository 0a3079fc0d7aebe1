package compile_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/store"
)

const databaseKey = "apiVersion: v1\nkind: Secret\nmetadata: {name: db}\nstringData: {password: hunter2hunter2}\n"

// storeSecret compiles a service with a Secret as a publication to that store does, and writes it there.
func storeSecret(t *testing.T, s *store.Store) *compile.Compiled {
	t.Helper()
	digest, err := s.SecretDigest(t.Context())
	require.NoError(t, err)
	files := fstest.MapFS{"shop.converge.yaml": {Data: []byte(cluster("kubernetes: {manifests: ['*.yaml']}"))}, "db.yaml": {Data: []byte(databaseKey)}}
	loaded, err := compile.LoadFS(files, "/config", config.Options{AllowFake: true, SecretDigest: digest})
	require.NoError(t, err)
	compiled, err := compile.Compile(loaded)
	require.NoError(t, err)
	for _, b := range compiled.Bundles {
		require.NoError(t, s.PutBundle(t.Context(), b))
	}
	_, err = s.PutIncarnation(t.Context(), compiled.Incarnation)
	require.NoError(t, err)
	return compiled
}

func opened(t *testing.T, dir, keys string) *store.Store {
	t.Helper()
	s, err := store.OpenWith(t.Context(), dir, keys)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// keyVariable is a new key, in a variable of that name.
func keyVariable(t *testing.T, name string) {
	t.Helper()
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	t.Setenv(name, base64.StdEncoding.EncodeToString(secret))
}

// A Secret lies nowhere in a store that has a key, in no spelling; nor does anything that confirms a guess of it. What is
// named stays named when keys are changed, and is written again with the newest.
func TestSecretsInTheStoreAreEncrypted_G5(t *testing.T) {
	keyVariable(t, "OLD")
	keyVariable(t, "NEW")
	dir := t.TempDir()
	before := storeSecret(t, opened(t, dir, "env:OLD"))
	bytes := before.Bundles[0].Bytes()
	sum := sha256.Sum256(bytes)
	plain, err := compile.LoadFS(fstest.MapFS{"shop.converge.yaml": {Data: []byte(cluster("kubernetes: {manifests: ['*.yaml']}"))}, "db.yaml": {Data: []byte(databaseKey)}}, "/config", config.Options{AllowFake: true})
	require.NoError(t, err)
	guessed, err := compile.Compile(plain)
	require.NoError(t, err)
	require.Equal(t, hex.EncodeToString(sum[:]), guessed.Bundles[0].Digest(), "a guess can be verified without a key")
	service, _ := guessed.Incarnation.Service("web")
	inClear := []string{"hunter2", base64.StdEncoding.EncodeToString([]byte("hunter2hunter2")), hex.EncodeToString(sum[:])[:12]}
	for _, list := range service.Objects {
		inClear = append(inClear, list["Secret/db"])
	}
	requireAbsent(t, dir, inClear...)

	rotated := opened(t, dir, "env:NEW,env:OLD")
	back, err := rotated.Bundle(t.Context(), before.Bundles[0].Digest())
	require.NoError(t, err)
	require.Equal(t, bytes, back.Bytes())
	written, damaged, err := rotated.Rekey(t.Context())
	require.Empty(t, damaged)
	require.NoError(t, err)
	require.Equal(t, 1, written)
	after := storeSecret(t, rotated)
	require.Equal(t, before.Incarnation.Hash(), after.Incarnation.Hash(), "another key releases nothing")

	withdrawn := opened(t, dir, "env:NEW")
	back, err = withdrawn.Bundle(t.Context(), before.Bundles[0].Digest())
	require.NoError(t, err, "it was written again with the newest key")
	require.Equal(t, bytes, back.Bytes())
	require.Equal(t, before.Incarnation.Hash(), storeSecret(t, withdrawn).Incarnation.Hash())
	requireAbsent(t, dir, inClear...)
}

// Who has no key reads no Secret and writes none in clear beside those that are encrypted. What holds none is read by all.
func TestStoreWithKeysRejectsWritesWithoutKeys_G5(t *testing.T) {
	keyVariable(t, "OLD")
	dir := t.TempDir()
	s := opened(t, dir, "env:OLD")
	made := storeSecret(t, s)
	without := opened(t, dir, "")
	_, _, err := without.Rekey(t.Context())
	require.ErrorContains(t, err, "no key is given")
	_, err = without.SecretDigest(t.Context())
	require.ErrorContains(t, err, "this process does not have the key; set CONVERGE_STORE_KEY")
	_, err = without.Bundle(t.Context(), made.Bundles[0].Digest())
	require.ErrorContains(t, err, "this process does not have the key; set CONVERGE_STORE_KEY")
	require.False(t, store.IsDamaged(err), "it waits for a worker with the key")

	key := filepath.Join(dir, "bundles", made.Bundles[0].Digest())
	data, err := os.ReadFile(key)
	require.NoError(t, err)
	data[len(data)-1] ^= 1
	require.NoError(t, os.WriteFile(key, data, 0o600))
	_, err = opened(t, dir, "env:OLD").Bundle(t.Context(), made.Bundles[0].Digest())
	require.True(t, store.IsDamaged(err), "%v", err)
	keyVariable(t, "NEW")
	written, damaged, err := opened(t, dir, "env:NEW,env:OLD").Rekey(t.Context())
	require.NoError(t, err)
	require.Zero(t, written)
	require.Len(t, damaged, 1)
	require.ErrorContains(t, damaged[0], made.Bundles[0].Digest())
	require.NoError(t, os.WriteFile(key, made.Bundles[0].Bytes(), 0o600))
	_, err = opened(t, dir, "env:OLD").Bundle(t.Context(), made.Bundles[0].Digest())
	require.True(t, store.IsDamaged(err), "plain content is not accepted: %v", err)
	require.NoError(t, opened(t, dir, "env:OLD").PutBundle(t.Context(), made.Bundles[0]), "publishing again repairs it")
	_, err = opened(t, dir, "env:OLD").Bundle(t.Context(), made.Bundles[0].Digest())
	require.NoError(t, err)
}

// An archive has what the store has: encrypted, with the secret that names it, and is imported without being read.
func TestArchivesHoldSecretsEncrypted_G5(t *testing.T) {
	keyVariable(t, "OLD")
	from, to := opened(t, t.TempDir(), "env:OLD"), opened(t, t.TempDir(), "env:OLD")
	made := storeSecret(t, from)
	_, err := from.Each(t.Context(), func(key string, data []byte) error {
		require.NotContains(t, string(data), "hunter2")
		return to.Restore(t.Context(), key, data)
	})
	require.NoError(t, err)
	back, err := to.Bundle(t.Context(), made.Bundles[0].Digest())
	require.NoError(t, err)
	require.Equal(t, made.Bundles[0].Bytes(), back.Bytes())
	require.Equal(t, made.Incarnation.Hash(), storeSecret(t, to).Incarnation.Hash())
}

func requireAbsent(t *testing.T, dir string, texts ...string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		if d.IsDir() {
			return nil
		}
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, text := range texts {
			require.False(t, strings.Contains(string(data)+path, text), "%s is in %s", text, path)
		}
		return nil
	}))
}
