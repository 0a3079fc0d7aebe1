package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every threat that docs/threat-model.md answers names at least one test that exists.
func TestThreatsNameTheirTests(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for path := range repositoryFiles(t, "_test.go") {
		data, err := os.ReadFile(filepath.Join(repository, path))
		require.NoError(t, err)
		for _, found := range declared.FindAllSubmatch(data, -1) {
			known[string(found[1])] = true
		}
	}
	data, err := os.ReadFile(filepath.Join(repository, "docs", "threat-model.md"))
	require.NoError(t, err)
	named := regexp.MustCompile("`(Test\\w+)`")
	rows := 0
	for n, line := range strings.Split(string(data), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || strings.HasPrefix(cells[1], " ---") || strings.TrimSpace(cells[1]) == "threat" {
			continue
		}
		rows++
		tests := named.FindAllStringSubmatch(cells[4], -1)
		require.NotEmpty(t, tests, "docs/threat-model.md:%d names no test", n+1)
		for _, test := range tests {
			require.True(t, known[test[1]], "docs/threat-model.md:%d names %s, which there is not", n+1, test[1])
		}
	}
	require.Greater(t, rows, 20)
}
