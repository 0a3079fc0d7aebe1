package strict

import (
	"regexp"
	"sync"
)

// Pattern compiles a regular expression at the first use. Those with counts such as {0,251} are large, and every start of a program would
// wait for them.
func Pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
