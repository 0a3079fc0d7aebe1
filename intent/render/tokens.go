package render

import (
	"regexp"
	"strings"

	"github.com/converge-engine/converge/intent/sources"
)

const letters = "ghijklmnopqrstuvwxyz"

// secondToken returns a token of the second rendering. It differs in every letter, so that every transformation of a token, such as
// truncation or encoding, differs, too.
func secondToken(token string) string {
	return strings.Map(func(r rune) rune { return rune(letters[(strings.IndexRune(letters, r)+7)%len(letters)]) }, token)
}

// restoreSecond replaces the tokens of the second rendering by substitutions.
func restoreSecond(text string) string {
	return strings.NewReplacer(secondToken(sources.Version), "${{ version }}", secondToken(sources.FullVersion), "${{ fullVersion }}").Replace(text)
}

var checksum = regexp.MustCompile(`[0-9a-f]{8,128}`)

// firstDifference returns the first line in which the two renderings of a template differ after their tokens are replaced; "" if there is
// none. Checksums of texts with a version may differ, because every version rolls the pods anyway.
func firstDifference(first, second string) string {
	one := strings.Split(sources.RestoreSubstitutions(first), "\n")
	two := strings.Split(restoreSecond(second), "\n")
	for i, line := range one {
		if i >= len(two) || checksum.ReplaceAllString(line, "#") != checksum.ReplaceAllString(two[i], "#") {
			return lineKey(line)
		}
	}
	if len(two) > len(one) {
		return lineKey(two[len(one)])
	}
	return ""
}

// lineKey returns the part of a line before its value, which may be a secret.
func lineKey(line string) string {
	key, _, found := strings.Cut(strings.TrimSpace(line), ":")
	if found {
		return strings.TrimSpace(key)
	}
	return "a line of text"
}
