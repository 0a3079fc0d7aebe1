package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// elsewhereRE finds references to documents that are not in the repository: by a name in capitals, or by the number of
// a section. What is meant is said in place, by a requirement's id, or by a page of docs/.
var elsewhereRE = regexp.MustCompile(`\b(?:DESIGN|INTERFACE|STYLE|FACTS|REQUIREMENTS)\b|\b[Ss]ection [0-9]`)

// this file has to name them.
const thisFile = "tests/references_test.go"

func TestReferencesCanBeOpened(t *testing.T) {
	for path := range repositoryFiles(t, ".go", ".md", ".txtar", ".yaml", ".yml", "Makefile") {
		if path == thisFile {
			continue
		}
		data, err := os.ReadFile(filepath.Join(repository, path))
		require.NoError(t, err)
		for n, line := range strings.Split(string(data), "\n") {
			require.False(t, elsewhereRE.MatchString(line), "%s:%d refers to what a reader cannot open: %s", path, n+1, line)
		}
	}
}

func TestReferenceRulesCanFail(t *testing.T) {
	t.Parallel()
	for text, refused := range map[string]bool{
		"bounded (DESIGN section 3)":                        true,
		"the example of INTERFACE 1":                        true,
		"as said in STYLE.":                                 true,
		"Section 9: an idle service":                        true,
		"section 12 of something":                           true,
		"what is left is orphaned (D10)":                    false,
		"docs/protocol.md, Search attributes":               false,
		"a section of the page":                             false,
		"type Interface interface{}; REDESIGNED, designing": false,
	} {
		require.Equal(t, refused, elsewhereRE.MatchString(text), text)
	}
}
