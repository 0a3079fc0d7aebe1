package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What our code imports stands in the first block of a go.mod, what that brings along in the last: `go mod tidy` leaves
// lines in the block where they are.
func TestDirectRequirementsOfModulesAreSeparate(t *testing.T) {
	for path := range repositoryFiles(t, "go.mod") {
		data, err := os.ReadFile(filepath.Join(repository, path))
		require.NoError(t, err)
		var kinds []bool // of each block: whether it is of indirect requirements
		for _, block := range regexp.MustCompile(`(?ms)^require \(\n(.*?)^\)`).FindAllStringSubmatch(string(data), -1) {
			lines := strings.Split(strings.TrimSpace(block[1]), "\n")
			kind := strings.HasSuffix(lines[0], "// indirect")
			for _, line := range lines {
				require.Equal(t, kind, strings.HasSuffix(line, "// indirect"), "%s: %s stands in the wrong block", path, strings.TrimSpace(line))
			}
			kinds = append(kinds, kind)
		}
		require.Contains(t, [][]bool{{false, true}, {true}}, kinds, "%s: expected one block of direct requirements, then one of indirect ones", path)
	}
}
