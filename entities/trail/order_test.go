package trail

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities"
)

// The lines of a trail are in the order of the chain, also if the server's clock was set back; lines of a terminated run are where they were
// written.
func TestInOrder(t *testing.T) {
	whole := chain(nil, numbered(4)...)
	fork := chain(&whole[3], "lost 5", "lost 6")
	again := chain(&whole[3], "again", "line 6", "line 7")
	for n := range again {
		again[n] = at(again[n], fork[1].At.Add(time.Duration(n+1)*time.Hour), again[:n])
	}
	back := chain(nil, numbered(6)...)
	for n := 3; n < len(back); n++ { // by half a day
		back[n] = at(back[n], back[n].At.Add(-12*time.Hour), back[:n])
	}
	for name, tt := range map[string]struct {
		lines []entities.StoredEntry
		want  string
	}{
		"a clock that advances":     {whole, "line 1, line 2, line 3, line 4"},
		"a clock that was set back": {back, "line 1, line 2, line 3, line 4, line 5, line 6"},
		"a terminated run":          {slices.Concat(whole, fork, again), "line 1, line 2, line 3, line 4, lost 5, lost 6, again, line 6, line 7"},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				var texts []string
				for _, l := range InOrder(entries(rapid.Permutation(tt.lines).Draw(t, "read"))) {
					texts = append(texts, l.Text)
				}
				require.Equal(t, tt.want, strings.Join(texts, ", "))
			})
		})
	}
}

// Nothing is lost or repeated, whatever the lines contain.
func TestInOrderKeepsAllLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := entries(rapid.SliceOf(rapid.Custom(func(t *rapid.T) entities.StoredEntry {
			hour := rapid.IntRange(0, 5).Draw(t, "hour")
			return storedEntry(entities.AuditEntry{N: rapid.Int64Range(1, 5).Draw(t, "n"), At: time.Unix(int64(hour)*3600, 0).UTC(), Prev: rapid.SampledFrom([]string{"", "x"}).Draw(t, "prev")})
		})).Draw(t, "lines"))
		require.ElementsMatch(t, lines, InOrder(lines))
	})
}

// at is a line at another time, chained to the last of those before it, if there is one.
func at(l entities.StoredEntry, when time.Time, before []entities.StoredEntry) entities.StoredEntry {
	e := l.AuditEntry
	if e.At = when; len(before) > 0 {
		e.Prev = before[len(before)-1].Hash
	}
	return storedEntry(e)
}

func entries(lines []entities.StoredEntry) (out []entities.AuditEntry) {
	for _, l := range lines {
		out = append(out, l.AuditEntry)
	}
	return out
}
