package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/outcome"
)

// An invalid command line of admin is refused before anything is queried, terminated or written.
func TestAdminRefuses(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"admin export backup.tar.gz", "! converge: admin export: no store; name one with --store or CONVERGE_STORE, or run this in the directory of converge dev\n"},
		{"admin export --from dev --profile prod x", "! converge: admin export: expected only one of --from and --profile\n"},
		{"admin import", "! converge: admin import: no store; name the one to fill with --store or CONVERGE_STORE\n"},
		{"admin import --store STORE nowhere.tar.gz", "! converge: open nowhere.tar.gz: no such file or directory\n"},
		{"admin export a b", "! converge: usage: converge admin export [FILE]; for example: converge admin export backup.tar.gz\n"},
	} {
		c := newConsole(t, &fakeAPI{})
		code, output := c.run(t, tt.line)
		require.Equal(t, outcome.Error, code, tt.line)
		require.Equal(t, tt.want, output, tt.line)
	}
}

// An export requires a confirmation, and does not change an existing file.
func TestAdminExportNeedsConfirmation(t *testing.T) {
	c := newConsole(t, &fakeAPI{})
	store, file := t.TempDir(), filepath.Join(t.TempDir(), "a.tar.gz")
	require.NoError(t, os.WriteFile(file, []byte("yesterday's"), 0o600))
	code, output := c.run(t, "admin export --from dev --store "+store+" "+file)
	require.Equal(t, outcome.Error, code)
	require.Contains(t, output, "to continue elsewhere requires --yes when not running interactively")
	for line, noted := range map[string]bool{"admin export --from dev ": true, "admin export --from dev --address 127.0.0.1:7300 ": false} {
		c = newConsole(t, &fakeAPI{})
		env := c.Env
		c.Env = func(name string) string {
			if name == "TEMPORAL_ADDRESS" {
				return "prod:7233"
			}
			return env(name)
		}
		_, output = c.run(t, line+"--store "+store+" "+file)
		require.Equal(t, noted, strings.Contains(output, "TEMPORAL_ADDRESS (prod:7233) is not used"), output)
	}
	c = newConsole(t, &fakeAPI{})
	code, output = c.run(t, "admin export --store "+store+" "+file)
	require.Equal(t, outcome.Error, code)
	require.Contains(t, output, "belongs to no installation yet: no worker has used it")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "yesterday's", string(data))
	entries, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Len(t, entries, 1, "no partial file remains")
}

// A command that is printed names the server of the command that prints it, and holds for a shell.
func TestConnectionFlags(t *testing.T) {
	f := &Factory{}
	require.Empty(t, f.connectionFlags())
	f.conn.Profile, f.conn.Address, f.conn.Namespace = "prod", "temporal:7233", "team a"
	require.Equal(t, " --profile prod --address temporal:7233 --namespace 'team a'", f.connectionFlags())
}
