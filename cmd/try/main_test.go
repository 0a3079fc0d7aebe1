package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestArguments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, row := range []struct {
		args, want []string
		wrong      string
	}{
		{nil, []string{"examples/hello"}, ""},
		{[]string{"--port", "7300"}, []string{"examples/hello", "--port", "7300"}, ""},
		{[]string{dir, "--port", "7300"}, []string{dir, "--port", "7300"}, ""},
		{[]string{dir + "/missing"}, nil, "no directory " + dir + "/missing: no such file or directory"},
		{[]string{file}, nil, file + " is not a directory"},
		{[]string{"--help"}, nil, "usage: go run ./cmd/try [DIR]"},
	} {
		have, err := arguments(row.args)
		require.Equal(t, row.want, have)
		if row.wrong == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, row.wrong)
		}
	}
}
