package plan

import "regexp"

// capturedRE matches a reference to a captured value: its service and its name.
var capturedRE = regexp.MustCompile(`\$\{\{ captured\.([a-z0-9-]+)\.([A-Za-z0-9_-]+) \}\}`)

// NamesCaptured reports whether a text refers to a captured value.
func NamesCaptured(text string) bool { return capturedRE.MatchString(text) }

// WithCaptured replaces the references to captured values in a text.
func WithCaptured(text string, value func(service, name string) string) string {
	return capturedRE.ReplaceAllStringFunc(text, func(match string) string {
		found := capturedRE.FindStringSubmatch(match)
		return value(found[1], found[2])
	})
}
