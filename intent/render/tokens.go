package render

import (
	"regexp"
	"strings"

	"github.com/converge-engine/converge/intent/sources"
)

const letters = "ghijklmnopqrstuvwxyz"

// other returns a token of the second rendering. It differs in every letter, so that every transformation of a token, such as truncation
// or encoding, differs, too.
func other(token string) string {
	return strings.Map(func(r rune) rune { return rune(letters[(strings.IndexRune(letters, r)+7)%len(letters)]) }, token)
}

// reopenOther replaces the tokens of the second rendering by substitutions.
func reopenOther(text string) string {
	return strings.NewReplacer(other(sources.Version), "${{ version }}", other(sources.FullVersion), "${{ fullVersion }}").Replace(text)
}

var checksum = regexp.MustCompile(`[0-9a-f]{8,128}`)

// differs returns the first line in which the two renderings of a template differ after their tokens are replaced; "" if there is none.
// Checksums of texts with a version may differ, because every version rolls the pods anyway.
func differs(first, second string) string {
	one := strings.Split(sources.Reopen(first), "\n")
	two := strings.Split(reopenOther(second), "\n")
	for i, line := range one {
		if i >= len(two) || checksum.ReplaceAllString(line, "#") != checksum.ReplaceAllString(two[i], "#") {
			return orBlank(line)
		}
	}
	if len(two) > len(one) {
		return orBlank(two[len(one)])
	}
	return ""
}

// orBlank returns the part of a line before its value, which may be a secret.
func orBlank(line string) string {
	key, _, found := strings.Cut(strings.TrimSpace(line), ":")
	if found {
		return strings.TrimSpace(key)
	}
	return "a line of text"
}
