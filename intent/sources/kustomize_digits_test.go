package sources

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The scan finds what the regular expression does, in its order.
func TestLongNumbersAreThoseOfTheExpression(t *testing.T) {
	t.Parallel()
	expression := regexp.MustCompile(`[0-9][0-9A-Za-z_.+]{14,}`)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`([0-9A-Za-z_.+]{0,20}[-: \n"é]{0,2}){0,8}`).Draw(t, "text")
		require.Equal(t, expression.FindAllString(text, -1), longNumbers([]byte(text)))
	})
}
