package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxDecisions keeps docs/decisions readable as a whole: a new decision extends the record of its area where there is one.
const maxDecisions = 35

var (
	decisionFileRE   = regexp.MustCompile(`^\d{4}-[a-z0-9]+(-[a-z0-9]+)*\.md$`)
	decisionTitleRE  = regexp.MustCompile(`\A# (\d+)\. (\S.*)\n`)
	decisionStatusRE = regexp.MustCompile(`(?m)^Status: ([a-z]+ · \d{4}-\d{2}-\d{2})$`)
)

// Records of decisions are numbered without gaps, have a title and a dated status, and are listed in the index in the same words.
func TestDocsDecisions(t *testing.T) {
	const dir = "docs/decisions"
	files, err := filepath.Glob(filepath.Join(repository, dir, "*.md"))
	require.NoError(t, err)
	var want [][]string
	for _, path := range files {
		name := filepath.Base(path)
		if name == "README.md" {
			continue
		}
		require.Regexp(t, decisionFileRE, name)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		title, status := decisionTitleRE.FindSubmatch(text), decisionStatusRE.FindSubmatch(text)
		require.NotNil(t, title, "%s: the first line is # N. and what was decided", name)
		require.NotNil(t, status, "%s: no line Status: accepted · 2006-01-02", name)
		n := len(want) + 1
		require.Equal(t, []string{fmt.Sprintf("%04d", n), fmt.Sprint(n)}, []string{name[:4], string(title[1])}, "%s: the next number is %d", name, n)
		want = append(want, []string{fmt.Sprint(n), fmt.Sprintf("[%s](%s)", title[2], name), string(status[1])})
	}
	require.NotEmpty(t, want)
	require.LessOrEqual(t, len(want), maxDecisions, "merge records of one area")

	var listed [][]string
	for _, row := range table(t, readPage(t, dir+"/README.md").text, "| number | decision | status |") {
		if row[0] != "" { // else it names an area
			listed = append(listed, row)
		}
	}
	require.Equal(t, want, listed, "%s/README.md", dir)
}
