package sources

import (
	"regexp"
	"strings"
)

// Tokens stand for what is open when a chart is rendered. They are lower-case letters, so that they
// pass for a tag, a label or a part of a DNS name, and hold no hexadecimal digit, so that no part of
// one looks like a checksum.
const (
	Version     = "qzvrsxnwkpjmhtylug"
	FullVersion = "kwullvrsxnzqpjmhty"
)

const letters = "ghijklmnopqrstuvwxyz"

// other is a token of the second rendering: it differs in every letter, so that whatever becomes of
// a token, cut or encoded, differs too.
func other(token string) string {
	return strings.Map(func(r rune) rune { return rune(letters[(strings.IndexRune(letters, r)+7)%len(letters)]) }, token)
}

func opener(of func(string) string) *strings.Replacer {
	return strings.NewReplacer(of(Version), "${{ version }}", of(FullVersion), "${{ fullVersion }}")
}

// Reopen puts substitutions back in the place of tokens.
func Reopen(text string) string {
	return opener(func(token string) string { return token }).Replace(text)
}

func reopenOther(text string) string { return opener(other).Replace(text) }

var checksum = regexp.MustCompile(`[0-9a-f]{8,128}`)

// differs returns the first line in which the two renderings of a template differ although their
// tokens are put back; "" when there is none. Checksums of texts with a version may differ: every
// version rolls the pods anyway.
func differs(first, second string) string {
	one := strings.Split(Reopen(first), "\n")
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

// orBlank shows of a line what comes before its value, which may be a secret.
func orBlank(line string) string {
	key, _, found := strings.Cut(strings.TrimSpace(line), ":")
	if found {
		return strings.TrimSpace(key)
	}
	return "a line of text"
}

// replaceTexts is a copy of values with every text replaced.
func replaceTexts(v any, replace func(string) string) any {
	switch x := v.(type) {
	case map[string]any:
		all := make(map[string]any, len(x))
		for key, item := range x {
			all[key] = replaceTexts(item, replace)
		}
		return all
	case []any:
		all := make([]any, 0, len(x))
		for _, item := range x {
			all = append(all, replaceTexts(item, replace))
		}
		return all
	case string:
		return replace(x)
	}
	return v
}
