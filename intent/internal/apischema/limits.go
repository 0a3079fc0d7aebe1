package apischema

import (
	"fmt"
	"math/big"
	"regexp"
	"unicode/utf8"

	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// limits are the value validations of a CustomResourceDefinition for text, numbers and lists.
type limits struct {
	pattern                    *regexp.Regexp
	minLength, maxLength       *big.Float
	minItems, maxItems         *big.Float
	minimum, maximum           *big.Float
	exclusiveMin, exclusiveMax bool
}

// limitsOf returns the limits of a schema; nil if it has none. The API server uses the same regular expressions, and accepts no others.
func limitsOf(s map[string]any) *limits {
	l := limits{
		minLength: decimal(s["minLength"]), maxLength: decimal(s["maxLength"]), minItems: decimal(s["minItems"]), maxItems: decimal(s["maxItems"]),
		minimum: decimal(s["minimum"]), maximum: decimal(s["maximum"]),
		exclusiveMin: s["exclusiveMinimum"] == true, exclusiveMax: s["exclusiveMaximum"] == true,
	}
	if text, ok := s["pattern"].(string); ok {
		l.pattern, _ = regexp.Compile(text) // an invalid one is the fault of the definition
	}
	if l == (limits{}) {
		return nil
	}
	return &l
}

// decimal returns a number without rounding it; nil if it is none.
func decimal(v any) *big.Float {
	if !isNumber(v) {
		return nil
	}
	number, _, err := big.ParseFloat(fmt.Sprint(v), 10, 256, big.ToNearestEven)
	if err != nil {
		return nil
	}
	return number
}

// within checks a value by its limits. A value of another type is reported elsewhere.
func (c *check) within(path string, v any, l *limits) {
	if l == nil {
		return
	}
	report := func(expected string, limit any) {
		c.problem(path, strict.Fault{Code: "bad-value", Message: "this is " + substitute.Describe(v), Expected: fmt.Sprintf(expected, limit)})
	}
	switch x := v.(type) {
	case string:
		if l.pattern != nil && !l.pattern.MatchString(x) {
			report("text that matches %s", strict.Clip(l.pattern.String()))
		}
		between(utf8.RuneCountInString(x), l.minLength, l.maxLength, report)
	case []any:
		between(len(x), l.minItems, l.maxItems, report)
	default:
		l.number(decimal(v), report)
	}
}

// between checks a length.
func between(n int, least, most *big.Float, report func(string, any)) {
	count := new(big.Float).SetInt64(int64(n))
	if least != nil && count.Cmp(least) < 0 {
		report("a length of at least %s", text(least))
	}
	if most != nil && count.Cmp(most) > 0 {
		report("a length of at most %s", text(most))
	}
}

// number checks a number; nil is none.
func (l *limits) number(n *big.Float, report func(string, any)) {
	if n == nil {
		return
	}
	if l.minimum != nil && (n.Cmp(l.minimum) < 0 || l.exclusiveMin && n.Cmp(l.minimum) == 0) {
		report(bound("at least", "more than", l.exclusiveMin), text(l.minimum))
	}
	if l.maximum != nil && (n.Cmp(l.maximum) > 0 || l.exclusiveMax && n.Cmp(l.maximum) == 0) {
		report(bound("at most", "less than", l.exclusiveMax), text(l.maximum))
	}
}

func bound(inclusive, exclusive string, isExclusive bool) string {
	if isExclusive {
		return exclusive + " %s"
	}
	return inclusive + " %s"
}

func text(n *big.Float) string { return n.Text('g', 20) }
