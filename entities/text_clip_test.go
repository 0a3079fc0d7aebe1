package entities_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities"
)

// A long message keeps its subject, and its last clauses: the cause and the remedy. It never exceeds its limit, and no character is cut.
func TestAMessageIsCutInTheMiddle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(100, 1000).Draw(t, "limit")
		subject, cause := rapid.StringN(1, 10, 30).Draw(t, "subject"), rapid.StringN(1, 60, 60).Draw(t, "cause")
		text := subject + strings.Repeat(rapid.SampledFrom([]string{"x", "é", "日", "\n"}).Draw(t, "filler"), 1000) + cause
		short := entities.ClipMessage(text, limit)
		switch {
		case len(short) > limit, !utf8.ValidString(short), !strings.Contains(short, "…"):
			t.Fatalf("%d bytes of %d: %q", len(short), limit, short)
		case !strings.HasPrefix(short, subject[:min(len(subject), 10)]) && utf8.ValidString(subject[:min(len(subject), 10)]), !strings.HasSuffix(short, cause):
			t.Fatalf("%q has not %q and %q", short, subject, cause)
		}
	})
	if got := entities.ClipMessage("short", 100); got != "short" {
		t.Fatal(got)
	}
}

// Of several messages, one on each line, those that fit are kept whole or cut in the middle each, and the others are counted.
func TestSeveralMessagesAreCutEach(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, limit := rapid.IntRange(1, 40).Draw(t, "n"), rapid.IntRange(400, 2000).Draw(t, "limit")
		lines := make([]string, n)
		for i := range lines {
			lines[i] = "apply " + strings.Repeat("x", rapid.IntRange(0, 2000).Draw(t, "length")) + " the cause (the remedy)"
		}
		short := entities.ClipMessages(strings.Join(lines, "\n"), limit)
		if len(short) > limit {
			t.Fatalf("%d bytes of %d", len(short), limit)
		}
		kept := strings.Split(short, "\n")
		if last := kept[len(kept)-1]; strings.HasPrefix(last, "and ") {
			kept = kept[:len(kept)-1]
			if last != fmt.Sprintf("and %d more", n-len(kept)) || len(kept) == 0 {
				t.Fatal(short)
			}
		} else if len(kept) != n {
			t.Fatal(short)
		}
		for _, line := range kept {
			if !strings.HasPrefix(line, "apply ") || !strings.HasSuffix(line, " the cause (the remedy)") {
				t.Fatalf("%q", line)
			}
		}
	})
}

func TestShellWord(t *testing.T) {
	for text, want := range map[string]string{
		"shop/web@1":                 "shop/web@1",
		"s3://releases?region=a&x=b": "'s3://releases?region=a&x=b'",
		"it's":                       `'it'\''s'`,
		"":                           "''",
		"$(reboot)":                  "'$(reboot)'",
	} {
		require.Equal(t, want, entities.ShellWord(text))
	}
}
