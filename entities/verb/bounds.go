package verb

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/converge-engine/converge/entities/protocol"
)

// Bounds in bytes of what anybody may send. All of it stays in state for a while, and state that
// outgrows what the server accepts at once would end the workflow for good.
const (
	MaxPayload = 64 << 10
	MaxName    = 256     // of who asks, and of ids
	MaxReason  = 2 << 10 // free text
	MaxToken   = 16 << 10
)

// CheckRaw refuses a payload that no verb could take, before anything is kept of it.
func CheckRaw(verb string, raw json.RawMessage) error {
	switch {
	case len(raw) == 0:
		return fmt.Errorf("%s without a payload; expected JSON as in docs/protocol.md", verb)
	case len(raw) > MaxPayload:
		return fmt.Errorf("payload of %s: %d bytes; at most %d", verb, len(raw), MaxPayload)
	case !json.Valid(raw):
		return fmt.Errorf("payload of %s: not JSON; expected JSON as in docs/protocol.md", verb)
	}
	return nil
}

// Strictly decodes a payload within bounds, refusing fields that its type does not have.
func Strictly(verb string, raw json.RawMessage, into any) error {
	if err := CheckRaw(verb, raw); err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("payload of %s: %s", verb, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// checkAct refuses what every verb's payload carries when it is missing or too long.
func checkAct(a protocol.Act) error {
	switch {
	case strings.TrimSpace(a.By) == "" && a.Token == "":
		return errors.New(`"by" is missing; expected who asks`)
	case a.By != strings.TrimSpace(a.By) || strings.ContainsFunc(a.By, invisible):
		// "bob" and "bob " would count as two people who approved.
		return fmt.Errorf(`"by" is %q; expected a name without blanks around it and without what cannot be seen`, Clip(a.By, MaxName))
	}
	return firstTooLong([]field{
		{"token", a.Token, MaxToken}, {"by", a.By, MaxName}, {"requestId", a.RequestID, MaxName}, {"reason", a.Reason, MaxReason},
	})
}

// invisible: a character that shows nothing, or does something to a terminal.
func invisible(r rune) bool { return !unicode.IsPrint(r) }

// checkFields refuses names that are longer than any name is, and what its verb needs when it is not there. The version
// of a release has bounds of its own (State.CheckRelease).
func (row *Row) checkFields(r Request) error {
	most := 4 * MaxName // the id of a lease is made of names
	if row.Store {
		r.Version, most = "", MaxName
	}
	fields := []field{
		{"id", r.ID, most},
		{"version", r.Version, MaxName},
		{"channel", r.Channel, MaxName},
		{"topic", r.Topic, MaxName},
		{"condition", r.Condition, MaxName},
		{"comment", r.Comment, MaxReason},
	}
	for _, f := range fields {
		if f.text == "" && slices.Contains(row.Needed, f.name) {
			return fmt.Errorf(`"%s" is missing`, f.name)
		}
	}
	return firstTooLong(fields)
}

type field struct {
	name, text string
	most       int
}

func firstTooLong(fields []field) error {
	for _, f := range fields {
		if n := len(f.text); n > f.most {
			return fmt.Errorf(`"%s" is %d bytes long; at most %d`, f.name, n, f.most)
		}
	}
	return nil
}

// Clip cuts text off, between characters.
func Clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
