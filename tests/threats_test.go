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
	require.Greater(t, rowsWithTests(t, "threat-model.md", "| threat |"), 20)
}

// So does every row of what operators may do in Temporal.
func TestActsOfOperatorsNameTheirTests(t *testing.T) {
	t.Parallel()
	require.Greater(t, rowsWithTests(t, "incidents.md", "| `temporal …` |"), 8)
}

// So does every row of the table of what Converge does beside others.
func TestFeaturesNameTheirTests(t *testing.T) {
	t.Parallel()
	require.Greater(t, rowsWithTests(t, "kubernetes.md", "| | Argo CD |"), 10)
}

// So does every key that can be rotated.
func TestKeysNameTheirTests(t *testing.T) {
	t.Parallel()
	require.Greater(t, rowsWithTests(t, "install.md", "| key |"), 8)
}

// rowsWithTests counts the rows of the tables in a document that begin with such a line: the last cell of each names tests that exist.
func rowsWithTests(t *testing.T, document, begin string) (rows int) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repository, "docs", document))
	require.NoError(t, err)
	known, named := testsOfAll(t), regexp.MustCompile("`(Test\\w+)`")
	in := false
	for n, line := range strings.Split(string(data), "\n") {
		in = strings.HasPrefix(line, begin) || in && strings.HasPrefix(line, "|")
		cells := strings.Split(line, "|")
		if !in || strings.HasPrefix(line, begin) || strings.HasPrefix(line, "| ---") {
			continue
		}
		rows++
		tests := named.FindAllStringSubmatch(cells[len(cells)-2], -1)
		require.NotEmpty(t, tests, "docs/%s:%d names no test", document, n+1)
		for _, test := range tests {
			require.True(t, known[test[1]], "docs/%s:%d names %s, which there is not", document, n+1, test[1])
		}
	}
	return rows
}

func testsOfAll(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for path := range repositoryFiles(t, "_test.go") {
		data, err := os.ReadFile(filepath.Join(repository, path))
		require.NoError(t, err)
		for _, found := range declared.FindAllSubmatch(data, -1) {
			known[string(found[1])] = true
		}
	}
	return known
}
