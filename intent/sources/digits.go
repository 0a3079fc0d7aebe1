package sources

import (
	"strconv"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// digits rejects whole numbers that Kubernetes would round: it holds 64 bits with a sign, and others as floating-point numbers.
func (c *objectCheck) digits(path string, v any) {
	switch x := v.(type) {
	case map[string]any:
		for _, key := range strict.Keys(x) {
			c.digits(strict.Key(path, key), x[key])
		}
	case []any:
		for i, item := range x {
			c.digits(strict.Index(path, i), item)
		}
	case uint64:
		if uint64(float64(x)) == x && float64(x) < 1<<64 {
			return
		}
		text := strconv.FormatUint(x, 10)
		c.Report(path, strict.Fault{
			Code: "bad-value", Message: "the number " + text + " would lose digits in Kubernetes",
			Expected: "a whole number of at most 9223372036854775807, or text (put it in quotes: " + strconv.Quote(text) + ")",
		})
	}
}
