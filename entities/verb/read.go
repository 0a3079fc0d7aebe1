package verb

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/converge-engine/converge/entities/protocol"
)

// Limits in bytes for all input. All of it stays in the workflow state for a while. A state larger than the server accepts at once would
// end the workflow for good.
const (
	MaxPayload = 64 << 10
	MaxName    = 256     // of users, and of ids
	MaxReason  = 2 << 10 // free text
	MaxToken   = 16 << 10
)

// CheckRaw rejects a payload that is invalid for every verb, before any of it is stored.
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

// tooLarge is the start of the placeholder for a payload that is too large. The placeholder is no valid payload.
const tooLarge = `"too large: `

// TooLarge returns a placeholder for a payload of a number of bytes that is too large to pass on.
func TooLarge(bytes int) json.RawMessage {
	return fmt.Appendf(nil, `%s%d bytes; at most %d"`, tooLarge, bytes, MaxPayload)
}

// DecodeStrict decodes the input of a user, within limits. It rejects unknown fields, so that a misspelt field does not count as a missing
// one.
func DecodeStrict(verb string, raw json.RawMessage, out any) error {
	return decode(verb, raw, out, (*json.Decoder).DisallowUnknownFields)
}

// DecodeTolerant decodes the input of another workflow, within limits. It ignores unknown fields: they come from a newer version, which
// adds no field that an older version has to understand.
func DecodeTolerant(verb string, raw json.RawMessage, out any) error {
	return decode(verb, raw, out, func(*json.Decoder) {})
}

func decode(verb string, raw json.RawMessage, out any, configure func(*json.Decoder)) error {
	if err := CheckRaw(verb, raw); err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	configure(d)
	err := d.Decode(out)
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		subject := ""
		if field := jsonPath(mismatch.Field); field != "" {
			subject = strconv.Quote(field) + " is "
		}
		return fmt.Errorf("payload of %s: %s%s; expected %s", verb, subject, jsonKind(mismatch.Value), jsonShape(mismatch.Type))
	}
	if err != nil {
		return fmt.Errorf("payload of %s: %s", verb, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// jsonPath is the path of a field as encoding/json gives it, without the names of embedded structs: those are of Go, and begin with a capital.
func jsonPath(path string) string {
	names := slices.DeleteFunc(strings.Split(path, "."), func(name string) bool { return name != "" && 'A' <= name[0] && name[0] <= 'Z' })
	return strings.Join(names, ".")
}

// jsonKind describes a JSON value that encoding/json names "string" or "number 1.5".
func jsonKind(value string) string {
	kind, literal, _ := strings.Cut(value, " ")
	switch kind {
	case "string":
		return "a text"
	case "bool":
		return "true or false"
	case "array", "object":
		return "an " + kind
	}
	if literal != "" {
		return "the number " + literal
	}
	return "a number"
}

// jsonShape is the JSON value that a Go type is decoded from, in words.
func jsonShape(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Pointer:
		return jsonShape(t.Elem())
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number below 2^63"
}

// checkAct rejects an Act with a missing or too long field. Every payload contains an Act.
func checkAct(a protocol.RequestMeta) error {
	switch {
	case strings.TrimSpace(a.By) == "" && a.Token == "":
		return errors.New(`"by" is missing; expected the name of the caller`)
	case a.By != strings.TrimSpace(a.By) || strings.ContainsFunc(a.By, unprintable):
		// "bob" and "bob " would count as two approvers.
		return fmt.Errorf(`"by" is %q; expected a name without surrounding blanks and invisible characters`, Clip(a.By, MaxName))
	}
	for _, service := range a.To {
		if service == "" || len(service) > MaxName {
			return fmt.Errorf(`"to" names %q; expected the names of services`, Clip(service, 60))
		}
	}
	return checkLengths([]field{
		{"token", a.Token, MaxToken}, {"by", a.By, MaxName}, {"requestId", a.RequestID, MaxName}, {"reason", a.Reason, MaxReason},
	})
}
