package compile_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/tests/intenttest"
)

// Each archive is a directory with mistakes and, last, everything that is said about them. Its
// comment cites the requirement.
func TestMalformedConfigurations(t *testing.T) {
	archives, err := filepath.Glob("testdata/malformed/*.txtar")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(archives), 30)
	for _, name := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			require.NoError(t, err)
			dir, want := t.TempDir(), ""
			for i, file := range archive.Files {
				if file.Name == "errors" {
					want = string(file.Data)
					archive.Files = archive.Files[:i]
					break
				}
				path := filepath.Join(dir, filepath.FromSlash(file.Name))
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
				require.NoError(t, os.WriteFile(path, file.Data, 0o600))
			}
			got := problemsIn(t, dir)
			if *intenttest.Update {
				archive.Files = append(archive.Files, txtar.File{Name: "errors", Data: []byte(got)})
				require.NoError(t, os.WriteFile(name, txtar.Format(archive), 0o600))
				return
			}
			require.Equal(t, want, got)
		})
	}
}

func problemsIn(t *testing.T, dir string) string {
	_, err := compile.Load(dir)
	var problems strict.Problems
	require.True(t, errors.As(err, &problems), "%v", err)
	for _, p := range problems {
		require.NotEmpty(t, p.Code)
		require.True(t, p.Line > 0 && p.Column > 0 && p.File != "", "%v", p)
	}
	return string(bytes.TrimSpace([]byte(problems.Error()))) + "\n"
}
