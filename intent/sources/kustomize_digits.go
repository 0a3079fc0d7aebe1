package sources

import (
	"bytes"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/config"
)

// longNumbers returns the numbers in a text that a float64 may not hold exactly: a digit, and at least 14 characters of a number. A scan
// takes a tenth of the time of a regular expression.
func longNumbers(text []byte) (found []string) {
	for i := 0; i < len(text); i++ {
		if text[i] < '0' || text[i] > '9' {
			continue
		}
		start := i
		for i < len(text) && inNumber(text[i]) {
			i++
		}
		if i-start > 14 {
			found = append(found, string(text[start:i]))
		}
	}
	return found
}

// inNumber reports whether a number may have a character: a digit, a letter of its base or its exponent, or a sign inside.
func inNumber(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '_' || c == '.' || c == '+'
}

// checkDigits rejects the output of Kustomize if it has a whole number above 2^53 that no input has: JSON patches round all numbers of
// their objects.
func checkDigits(inputs map[string][]byte, output []byte) error {
	found := longNumbers(output)
	if len(found) == 0 {
		return nil
	}
	known := map[string]bool{"": true}
	for _, text := range inputs {
		for _, number := range longNumbers(text) {
			known[wholeNumber(number)] = true
		}
	}
	if !slices.ContainsFunc(found, func(number string) bool { return !known[wholeNumber(number)] }) {
		return nil // as usual, without parsing it
	}
	decoder := yaml.NewDecoder(bytes.NewReader(output))
	var node yaml.Node
	for config.DecodeNode(decoder, &node) == nil { // an error is reported by the reader of objects
		if rounded := unknownNumber(&node, known); rounded != "" {
			return &Refusal{
				"Kustomize has rounded a number to " + rounded, "a strategic merge patch in place of a JSON patch, or the number in quotes",
			}
		}
		node = yaml.Node{}
	}
	return nil
}

// unknownNumber returns the first whole number above 2^53 that is not known, or "".
func unknownNumber(node *yaml.Node, known map[string]bool) string {
	if tag := node.ShortTag(); node.Kind == yaml.ScalarNode && (tag == "!!int" || tag == "!!float") && len(longNumbers([]byte(node.Value))) > 0 {
		if number := wholeNumber(strings.TrimLeft(node.Value, "+-")); !known[number] {
			return number
		}
	}
	for _, inner := range node.Content {
		if number := unknownNumber(inner, known); number != "" {
			return number
		}
	}
	return ""
}

// wholeNumber returns the digits of a whole number above 2^53, without a sign, or "".
func wholeNumber(text string) string {
	plain := strings.ReplaceAll(text, "_", "")
	if n, err := strconv.ParseUint(plain, 0, 64); err == nil {
		return strconv.FormatUint(n, 10)
	}
	f, _, err := big.ParseFloat(plain, 10, 4096, big.ToNearestEven)
	if err != nil || !f.IsInt() {
		return ""
	}
	n, _ := f.Int(nil)
	return n.String()
}
