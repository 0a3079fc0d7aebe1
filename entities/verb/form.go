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

// maxDepth is how deep a payload may be nested. State carries it some levels deeper, and JSON is read to 10,000 only: what
// comes near that would be accepted, and the state that it is in could never be read again.
const maxDepth = 100

// CheckForm refuses JSON that two readers could take for different things, or that could not be carried: text that is not
// UTF-8, an object that names a field twice, in capitals or not, nesting without end. It expects what CheckRaw has let pass.
func CheckForm(verb string, raw json.RawMessage) error {
	if !utf8.Valid(raw) {
		return fmt.Errorf("payload of %s: not UTF-8", verb)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // whether one is in range is said by whoever wants it
	if err := checkValue(d, maxDepth, false); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("payload of %s: %w", verb, err)
	}
	return nil
}

// checkValue reads one value. The names of its fields are ours, whatever their case, unless people chose them.
func checkValue(d *json.Decoder, deep int, chosen bool) error {
	token, err := d.Token()
	open, ok := token.(json.Delim)
	if err != nil || !ok {
		return err
	}
	if deep == 0 {
		return fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	seen := map[string]bool{}
	for d.More() {
		below := chosen
		if open == '{' {
			name, err := d.Token()
			if err != nil {
				return err
			}
			field := fmt.Sprint(name)
			below = chosen || field == "parameters" || field == "channelParameters"
			if !chosen {
				field = folded(field)
			}
			if seen[field] {
				return fmt.Errorf("%q is there twice", Clip(fmt.Sprint(name), 60))
			}
			seen[field] = true
		}
		if err := checkValue(d, deep-1, below); err != nil {
			return err
		}
	}
	_, err = d.Token() // that closes it
	return err
}

// folded is a name as encoding/json compares it: letters that differ by case alone are one.
func folded(name string) string {
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
