package sops_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/sops"
)

// keyFile is a recorded identity in a file of that mode.
func keyFile(t *testing.T, name string, mode os.FileMode) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(read(t, name)), 0o600))
	require.NoError(t, os.Chmod(file, mode))
	return file
}

func variables(all map[string]string) func(string) string {
	return func(name string) string { return all[name] }
}

// Identities come from files that are nobody else's to read, or as SOPS itself takes them; all of them serve, so that the
// key of a file can be changed.
func TestIdentities(t *testing.T) {
	ours, theirs := keyFile(t, "key.txt", 0o600), keyFile(t, "other.txt", 0o440)
	for name, load := range map[string]func() (*sops.Keys, error){
		"files": func() (*sops.Keys, error) { return sops.Load([]string{theirs, ours}, variables(nil)) },
		"variable": func() (*sops.Keys, error) {
			return sops.Load(nil, variables(map[string]string{sops.FileVariable: ours}))
		},
		"both": func() (*sops.Keys, error) {
			return sops.Load(nil, variables(map[string]string{sops.FileVariable: ours, sops.KeyVariable: read(t, "other.txt")}))
		},
		"flags win": func() (*sops.Keys, error) {
			return sops.Load([]string{ours}, variables(map[string]string{sops.FileVariable: "/nowhere"}))
		},
	} {
		keys, err := load()
		require.NoError(t, err, name)
		_, err = open(t, keys, objects(t, read(t, "secret.yaml"))[0])
		require.NoError(t, err, name)
	}
}

// An identity of one application decrypts nothing for another, whoever copies the file there.
func TestIdentityOfAnApplication_G5(t *testing.T) {
	keys, err := sops.Load([]string{"billing=" + keyFile(t, "key.txt", 0o600), keyFile(t, "other.txt", 0o600)}, variables(nil))
	require.NoError(t, err)
	_, err = open(t, keys, objects(t, read(t, "secret.yaml"))[0]) // for shop
	require.ErrorIs(t, err, sops.ErrNoKey)
	_, err = open(t, keys, objects(t, read(t, "others.yaml"))[0])
	require.NoError(t, err)
}

func TestInvalidIdentities_G5(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "wrong")
	require.NoError(t, os.WriteFile(wrong, []byte("hunter2\n"), 0o600))
	for want, file := range map[string]string{
		"other users can read or change it (0644); use chmod 600":                    keyFile(t, "key.txt", 0o644),
		"other users can read or change it (0620)":                                   keyFile(t, "key.txt", 0o620),
		"no such file or directory":                                                  "/nowhere/at/all",
		"it is not a regular file":                                                   t.TempDir(),
		"it contains something else; expected lines that begin with AGE-SECRET-KEY-": wrong,
	} {
		_, err := sops.Load([]string{"shop=" + file}, variables(nil))
		require.ErrorContains(t, err, "age identities of "+file+": "+want)
		require.NotRegexp(t, "hunter|AGE-SECRET-KEY-[A-Z0-9]", err.Error())
		_, err = sops.Load(nil, variables(map[string]string{sops.FileVariable: file}))
		require.ErrorContains(t, err, want)
	}
	_, err := sops.Load(nil, variables(map[string]string{sops.KeyVariable: "AGE-SECRET-KEY-1HUNTER2"}))
	require.EqualError(t, err, "age identities of SOPS_AGE_KEY: it contains something else; expected lines that begin with AGE-SECRET-KEY-, from age-keygen")
}
