package plan

import "regexp"

// capturedRE is where a text has something that was captured: its service and its name.
var capturedRE = regexp.MustCompile(`\$\{\{ captured\.([a-z0-9-]+)\.([A-Za-z0-9_-]+) \}\}`)

// NamesCaptured tells whether a text has what was captured of a service.
func NamesCaptured(text string) bool { return capturedRE.MatchString(text) }

// WithCaptured puts what was captured in its places in a text.
func WithCaptured(text string, value func(service, name string) string) string {
	return capturedRE.ReplaceAllStringFunc(text, func(match string) string {
		found := capturedRE.FindStringSubmatch(match)
		return value(found[1], found[2])
	})
}
