package verb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxDepth limits the nesting of a payload. The state nests the payload some levels deeper, and encoding/json reads at most 10,000 levels.
// Without this limit a payload near that bound would be accepted, and the state with it could never be read again.
const maxDepth = 100

// CheckForm rejects JSON that two parsers could read differently, and JSON that cannot be stored: text that is not UTF-8, an object with a
// field twice (ignoring case), unlimited nesting. The payload must have passed CheckRaw.
func CheckForm(verb string, raw json.RawMessage) error {
	if !utf8.Valid(raw) {
		return fmt.Errorf("payload of %s: not UTF-8", verb)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // the field's own type checks the range
	if err := checkValue(d, maxDepth, false); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("payload of %s: %w", verb, err)
	}
	return nil
}

// checkValue reads one value. Field names are ours, and match in any case, unless users chose them.
func checkValue(d *json.Decoder, depth int, userNames bool) error {
	token, err := d.Token()
	open, ok := token.(json.Delim)
	if err != nil || !ok {
		return err
	}
	if depth == 0 {
		return fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	seen := map[string]bool{}
	for d.More() {
		userNamesBelow := userNames
		if open == '{' {
			name, err := d.Token()
			if err != nil {
				return err
			}
			field := fmt.Sprint(name)
			userNamesBelow = userNames || field == "parameters" || field == "channelParameters"
			if !userNames {
				field = foldCase(field)
			}
			if seen[field] {
				return fmt.Errorf("field %q occurs twice", Clip(fmt.Sprint(name), 60))
			}
			seen[field] = true
		}
		if err := checkValue(d, depth-1, userNamesBelow); err != nil {
			return err
		}
	}
	_, err = d.Token() // the closing delimiter
	return err
}

// foldCase normalizes a name as encoding/json compares it, ignoring case.
func foldCase(name string) string {
	return strings.Map(func(r rune) rune {
		for {
			next := unicode.SimpleFold(r)
			if next <= r {
				return next
			}
			r = next
		}
	}, name)
}
