package trail

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities"
)

// chain is what a workflow records: lines with these texts, each an hour after the one before it.
func chain(after *entities.StoredEntry, texts ...string) (out []entities.StoredEntry) {
	for _, text := range texts {
		l := entities.AuditEntry{N: 1, At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Kind: entities.EventPause, Text: text}
		if text == "again" {
			l.Kind = entities.EventRestart
		}
		if after != nil {
			l.N, l.At, l.Prev = after.N+1, after.At.Add(time.Hour), after.Hash
		}
		out = append(out, storedEntry(l))
		after = &out[len(out)-1]
	}
	return out
}

func storedEntry(l entities.AuditEntry) entities.StoredEntry {
	return entities.StoredEntry{AuditEntry: l, Hash: l.Hash()}
}

func endOf(lines []entities.StoredEntry, exact bool) End {
	last := lines[len(lines)-1]
	return End{TrailEnd: entities.TrailEnd{N: last.N, Hash: last.Hash}, Exact: exact}
}

func numbered(n int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprint("line ", i+1))
	}
	return texts
}

func problemTexts(r Report) string {
	var all []string
	for _, p := range r.Problems {
		all = append(all, p.Text)
	}
	return strings.Join(all, "; ")
}

// Changed, removed and inserted lines are found by number, also at the end. An unchanged trail has no problem.
func TestVerify(t *testing.T) {
	whole := chain(nil, numbered(9)...)
	changed := func(n int, text string) entities.StoredEntry {
		l := whole[n-1].AuditEntry
		l.Text = text
		return storedEntry(l)
	}
	without := func(ns ...int) (out []entities.StoredEntry) {
		for _, l := range whole {
			if !strings.Contains(fmt.Sprint(ns), fmt.Sprint(l.N)) {
				out = append(out, l)
			}
		}
		return out
	}
	stripped := func() (out []entities.StoredEntry) {
		for _, l := range whole {
			l.AuditEntry.Prev = ""
			out = append(out, storedEntry(l.AuditEntry))
		}
		return out
	}
	for name, tt := range map[string]struct {
		lines []entities.StoredEntry
		end   End
		want  string
	}{
		"unchanged":                            {whole, endOf(whole, true), ""},
		"with later lines than the checkpoint": {whole, endOf(whole[:6], false), ""},
		"with an unknown end":                  {whole, End{}, ""},
		"changed":                              {append(without(5), changed(5, "x")), endOf(whole, true), "line 5 differs from what was recorded"},
		"the last one changed":                 {append(without(9), changed(9, "x")), endOf(whole, true), "line 9 differs from what was recorded"},
		"the first one changed":                {append(without(1), changed(1, "x")), endOf(whole, true), "line 1 differs from what was recorded"},
		"removed":                              {without(4, 5), endOf(whole, true), "lines 4 to 5 were removed"},
		"the first ones removed":               {without(1, 2), endOf(whole, true), "lines 1 to 2 were removed"},
		"removed from the end":                 {whole[:7], endOf(whole, true), "lines 8 to 9 were removed from the end"},
		"removed, by a checkpoint":             {whole[:5], endOf(whole[:6], false), "line 6 was removed from the end"},
		"all of it":                            {nil, endOf(whole, true), "lines 1 to 9 were removed from the end"},
		"inserted":                             {append(without(), chain(&whole[3], "x")...), endOf(whole, true), "line 5 was never recorded, or was moved"},
		"appended":                             {append(without(), chain(&whole[8], "x")...), endOf(whole, true), "line 10 was never recorded, or was moved"},
		"without any hash":                     {stripped(), endOf(whole, true), strings.Join(each(9, "line %d differs from what was recorded"), "; ")},
		"everything rewritten":                 {chain(nil, strings.Split("a b c d e f g h i", " ")...), endOf(whole, true), "line 9 differs from what was recorded"},
		"two of them":                          {append(without(2, 7), changed(7, "x")), endOf(whole, true), "line 2 was removed; line 7 differs from what was recorded"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, problemTexts(Verify(tt.lines, tt.end)))
		})
	}
}

func each(n int, format string) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf(format, i+1))
	}
	return all
}

// A workflow that was reset or restarted continues from its checkpoint. The lines after the checkpoint are a fork of the chain.
func TestForkedLinesOfAnEarlierRun(t *testing.T) {
	before := chain(nil, numbered(5)...)
	lost := chain(&before[4], "lost 1", "lost 2")
	resumed := chain(&before[4], "again", "on")
	all := append(append(before, lost...), resumed...)
	r := Verify(all, endOf(resumed, true))
	require.Empty(t, r.Problems)
	require.Equal(t, Report{Lines: 9, Chained: 7, Forked: 2, End: 7}, r)
	require.NotEmpty(t, Verify(append(all, chain(&before[2], "forged")...), endOf(resumed, true)).Problems)
}

// A service that was deleted and declared again numbers its lines from one again. Nothing vouches for the earlier lines: anyone could
// have written them.
func TestLinesFromBeforeATakedown(t *testing.T) {
	first := chain(nil, numbered(6)...)
	var second []entities.StoredEntry
	prev := ""
	for n, text := range numbered(3) {
		l := entities.AuditEntry{N: int64(n + 1), At: first[5].At.Add(time.Duration(n+1) * time.Hour), Text: "later " + text, Prev: prev}
		second = append(second, storedEntry(l))
		prev = l.Hash()
	}
	r := Verify(append(append([]entities.StoredEntry{}, first...), second...), endOf(second, true))
	require.Empty(t, r.Problems)
	require.Equal(t, Report{Lines: 9, Chained: 3, Earlier: 6, End: 3}, r)
}

// Any single change of a trail with a known end is found. An unchanged trail has no problem.
func TestVerifyFindsEveryChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := chain(nil, numbered(rapid.IntRange(1, 30).Draw(t, "lines"))...)
		end := endOf(whole, true)
		if r := Verify(rapid.Permutation(whole).Draw(t, "order"), end); len(r.Problems) > 0 || r.Chained != len(whole) {
			t.Fatalf("whole, but %+v", r)
		}
		at := rapid.IntRange(0, len(whole)-1).Draw(t, "at")
		changed := append([]entities.StoredEntry{}, whole...)
		switch rapid.SampledFrom([]ProblemKind{Changed, Removed, Inserted, CutOff}).Draw(t, "what") {
		case Changed:
			l := changed[at].AuditEntry
			l.Who = &entities.Who{Name: "mallory"}
			changed[at] = storedEntry(l)
		case Removed:
			changed = append(changed[:at], changed[at+1:]...)
		case Inserted:
			changed = append(changed, chain(&whole[at], "x")...)
		case CutOff:
			changed = changed[:at]
		}
		if r := Verify(changed, end); len(r.Problems) == 0 {
			t.Fatalf("no problem found: %+v", r)
		}
	})
}

// A trail of years is verified in a moment: the time that it takes grows with its lines, and not with their square.
func TestVerifyLongTrails(t *testing.T) {
	const lines, atMost = 20_000, 20 * time.Second // a fraction of a second, and with the square two minutes
	before := chain(nil, numbered(lines)...)
	after := []entities.StoredEntry{storedEntry(entities.AuditEntry{N: 1, At: before[lines-1].At.Add(time.Hour), Text: "declared again"})}
	after = append(after, chain(&after[0], numbered(lines)...)...)
	forged := chain(&after[0], numbered(lines)...)[1:]
	for n := range forged {
		forged[n].Text = "forged"
		forged[n] = storedEntry(forged[n].AuditEntry)
	}
	began := time.Now()
	require.Empty(t, Verify(append(append([]entities.StoredEntry{}, before...), after...), endOf(after, true)).Problems)
	require.Len(t, Verify(append(append([]entities.StoredEntry{}, after...), forged...), endOf(after, true)).Problems, len(forged))
	require.Less(t, time.Since(began), atMost)
}
