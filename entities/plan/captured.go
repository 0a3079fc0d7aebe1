package plan

import "regexp"

// capturedRE matches a reference to a captured value: its service and its name.
var capturedRE = regexp.MustCompile(`\$\{\{ captured\.([a-z0-9-]+)\.([A-Za-z0-9_-]+) \}\}`)

// RefersToCaptured reports whether a text refers to a captured value.
func RefersToCaptured(text string) bool { return capturedRE.MatchString(text) }

// ReplaceCaptured replaces the references to captured values in a text.
func ReplaceCaptured(text string, value func(service, name string) string) string {
	return capturedRE.ReplaceAllStringFunc(text, func(match string) string {
		groups := capturedRE.FindStringSubmatch(match)
		return value(groups[1], groups[2])
	})
}
