package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/store"
)

// A name and a version of a library mean one content for good, and what is near a name that there is not is said.
func TestLibraryVersionHasOneContent_G2(t *testing.T) {
	dir := t.TempDir()
	s, err := store.Open(t.Context(), dir)
	require.NoError(t, err)
	content := config.LibraryContent{Name: "org-channels", Version: 2, Files: map[string]string{"converge.yaml": "# nothing\n"}}
	digest, err := s.PutLibraryContent(t.Context(), content)
	require.NoError(t, err)
	require.Equal(t, content.Digest(), digest)
	first := protocol.Library{LibraryName: protocol.LibraryName{Name: "org-channels", Version: 2, Digest: digest}, By: entities.Who{Name: "olga"}}
	stored, err := s.CreateLibrary(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, first, stored)
	second := first
	second.Digest, second.By.Name = strings.Repeat("0", 64), "mallory"
	stored, err = s.CreateLibrary(t.Context(), second)
	require.NoError(t, err)
	require.Equal(t, first, stored)

	find := s.Imports(t.Context())
	got, err := find("org-channels", 2)
	require.NoError(t, err)
	require.Equal(t, content, got)
	_, err = find("org-channels", 1)
	require.EqualError(t, err, "there is no version 1 of library org-channels; expected 2 [unknown-library]")
	_, err = find("org-chanels", 2)
	require.EqualError(t, err, `there is no library "org-chanels"; expected org-channels; did you mean "org-channels"? [unknown-library]`)

	record := filepath.Join(dir, "libraries", "org-channels", "000000000002")
	was, err := os.ReadFile(record)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(record, []byte(strings.Replace(string(was), digest, second.Digest, 1)), 0o600))
	again, err := store.Open(t.Context(), dir)
	require.NoError(t, err)
	_, err = again.Imports(t.Context())("org-channels", 2)
	require.ErrorContains(t, err, "library org-channels 2 is damaged in the store: ")
}
