package entities

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Limits of reported values.
const (
	MaxReported     = 16      // names
	MaxReportedText = 4 << 10 // bytes of each
)

// Reported is the values that an extension, or a step of a plan, reported when it succeeded, by name (A21). None of them is secret.
type Reported struct {
	Outputs map[string]string `json:"outputs,omitempty"`
	// Addresses are addresses of targets of a plan (E15).
	Addresses map[string]string `json:"addresses,omitempty"`
}

// reportedRE matches a reference to a reported value: its whole name.
var reportedRE = regexp.MustCompile(`\$\{\{ ((?:outputs|addresses)\.[A-Za-z0-9_.-]+) \}\}`)

// WithReported replaces the references to reported values in a text. "outputs.infra.host" and "addresses.media" are names.
func WithReported(text string, value func(name string) string) string {
	return reportedRE.ReplaceAllStringFunc(text, func(match string) string { return value(reportedRE.FindStringSubmatch(match)[1]) })
}

// HasReportedReference reports whether a text refers to a reported value.
func HasReportedReference(text string) bool { return reportedRE.MatchString(text) }

// ParseReported parses the report at the end of a command's output: a JSON object with outputs and addresses that starts at the beginning
// of a line. It ignores other fields and unwanted names. A missing name is an error.
func ParseReported(printed string, outputs, addresses []string) (r Reported, err error) {
	var report struct{ Outputs, Addresses map[string]any }
	start := strings.LastIndex("\n"+printed, "\n{")
	if start < 0 || decode(printed[start:], &report) != nil {
		return r, errors.New(`it reported nothing; expected {"outputs": {"NAME": "TEXT"}} at the end of its stdout`)
	}
	if r.Outputs, err = reportedOf("output", report.Outputs, outputs); err == nil {
		r.Addresses, err = reportedOf("address", report.Addresses, addresses)
	}
	return r, err
}

// decode decodes an object. Numbers keep their notation.
func decode(text string, into any) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("unexpected text after the object")
	}
	return nil
}

// reportedOf returns the wanted values as text.
func reportedOf(what string, values map[string]any, wanted []string) (texts map[string]string, err error) {
	for _, name := range wanted {
		text := ""
		switch v := values[name].(type) {
		case nil:
			return nil, fmt.Errorf("it did not report the %s %s; it reported %s", what, name, FirstNames(append(SortedKeys(values), noneIfEmpty(values)...)))
		case string:
			text = v
		case json.Number, bool:
			text = fmt.Sprint(v)
		default:
			return nil, fmt.Errorf("the reported %s %s is not text", what, name)
		}
		switch {
		case len(text) > MaxReportedText:
			return nil, fmt.Errorf("the reported %s %s has %d bytes; expected at most %d", what, name, len(text), MaxReportedText)
		case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
			return nil, fmt.Errorf("the reported %s %s is not text", what, name)
		}
		if texts == nil {
			texts = map[string]string{}
		}
		texts[name] = text
	}
	return texts, nil
}

func noneIfEmpty(values map[string]any) []string {
	if len(values) == 0 {
		return []string{"none"}
	}
	return nil
}
