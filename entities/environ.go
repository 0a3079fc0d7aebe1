package entities

import "strings"

// MatchesName reports whether a name matches a pattern: the same name, or, if the pattern ends with *, any name with that prefix.
func MatchesName(pattern, name string) bool {
	prefix, any := strings.CutSuffix(pattern, "*")
	return name == pattern || any && strings.HasPrefix(name, prefix)
}
