package words

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const repository = "../.."

// Goals of 1,000 words: in comments, and in pages.
const (
	inComments = 1.0
	inPages    = 2.0
)

// Comments and pages are in plain English: their rate of dialect is no higher than it may be.
func TestRates(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"activities", "client", "cmd", "entities", "intent", "runtimes", "worker", "workflows"} {
		holds(t, dir, inComments, Comments)
	}
	holds(t, "docs", inPages, Pages)
}

func holds(t *testing.T, dir string, goal float64, count func(string) (Count, error)) {
	t.Helper()
	c, err := count(filepath.Join(repository, dir))
	require.NoError(t, err)
	require.Positive(t, c.Words)
	require.LessOrEqual(t, c.PerThousand(), goal, "%s; see: go run ./tests/words/rates -v %s", dir, dir)
}

// The count finds words and phrases across lines, in any case, and no parts of words.
func TestCount(t *testing.T) {
	t.Parallel()
	var c Count
	c.add("x.go", 10, "Whoever is told of it goes\non. A goalkeeper is beside the point; untold, besides, whateverest.")
	require.Equal(t, []string{"x.go:10: Whoever", "x.go:10: told", "x.go:10: goes\non", "x.go:11: beside"}, c.Places)
	require.Equal(t, 16, c.Words)
	require.InDelta(t, 1000*4.0/16, c.PerThousand(), 0.01)
}

// Code in pages does not count.
func TestPages(t *testing.T) {
	t.Parallel()
	require.Equal(t, "\n\nx \n", code.ReplaceAllStringFunc("```\ntold\n```x `anew`\n", func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }))
}
