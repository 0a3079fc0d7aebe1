package verb

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

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
	case strings.HasPrefix(string(raw), tooLarge):
		return fmt.Errorf("payload of %s: %s", verb, strings.Trim(string(raw[1:]), `"`))
	case !json.Valid(raw):
		return fmt.Errorf("payload of %s: not JSON; expected JSON as in docs/protocol.md", verb)
	}
	return nil
}

// tooLarge is how what stands for a payload that is too large begins, which is no payload.
const tooLarge = `"too large: `

// TooLarge stands for a payload of so many bytes where that itself would be too much to hand on.
func TooLarge(bytes int) json.RawMessage {
	return fmt.Appendf(nil, `%s%d bytes; at most %d"`, tooLarge, bytes, MaxPayload)
}

// Strictly decodes what a person sends, within bounds, refusing fields that its type does not have: one that is misspelt
// is not one that is left out.
func Strictly(verb string, raw json.RawMessage, into any) error {
	return decode(verb, raw, into, (*json.Decoder).DisallowUnknownFields)
}

// Tolerantly decodes what another workflow sends, within bounds. Fields that its type does not have are of a newer
// version, which means nothing by them that an older one would have to know.
func Tolerantly(verb string, raw json.RawMessage, into any) error {
	return decode(verb, raw, into, func(*json.Decoder) {})
}

func decode(verb string, raw json.RawMessage, into any, as func(*json.Decoder)) error {
	if err := CheckRaw(verb, raw); err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	as(d)
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
