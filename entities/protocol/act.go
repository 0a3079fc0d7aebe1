package protocol

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/converge-engine/converge/entities"
)

// Act is what one person does by one request, in the form whose digest an issuer can sign (docs/protocol.md, "A token for one act"). What the
// token itself has, such as its issuer, its client and the person, is signed with the digest.
type Act struct {
	Namespace string `json:"namespace"` // of Temporal
	Receiver  string `json:"receiver"`  // its workflow id, or that of every service of the application, if the request names its receivers
	Verb      string `json:"verb"`
	// Request is the payload, without token.
	Request json.RawMessage `json:"request"`
}

// ActNonce is the beginning of a nonce that is the digest of an act.
const ActNonce = "converge-act-1."

// Nonce returns the nonce of a token for this act: ActNonce, and the digest of the act (SHA-256) in base64url without padding. The error says
// why the payload has none.
func (a Act) Nonce() (string, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(a.Request, &fields); err != nil {
		return "", fmt.Errorf("the payload is no JSON object: %w", err)
	}
	for _, name := range entities.SortedKeys(fields) {
		if strings.EqualFold(name, "token") { // the decoder ignores case too
			delete(fields, name)
		}
	}
	var id string
	if _ = json.Unmarshal(fields["requestId"], &id); id == "" { // a wrong type has no id either
		return "", errors.New(`a token for one act needs the field "requestId"`)
	}
	request, err := json.Marshal(fields)
	if err != nil {
		return "", err
	}
	a.Request = request
	raw, err := json.Marshal(a)
	if err != nil {
		return "", err
	}
	text, err := canonicalJSON(raw)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return ActNonce + base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// canonicalJSON returns JSON in the form of RFC 8785 (JSON Canonicalization Scheme).
func canonicalJSON(raw []byte) ([]byte, error) {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := writeCanonical(&b, value); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func writeCanonical(b *bytes.Buffer, value any) error {
	switch v := value.(type) {
	case string:
		writeCanonicalString(b, v)
	case json.Number:
		return writeCanonicalNumber(b, v)
	case []any:
		b.WriteByte('[')
		for n, item := range v {
			if n > 0 {
				b.WriteByte(',')
			}
			if err := writeCanonical(b, item); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case map[string]any:
		return writeCanonicalObject(b, v)
	default: // null, true and false
		fixed, err := json.Marshal(v)
		b.Write(fixed)
		return err
	}
	return nil
}

// writeCanonicalObject sorts keys by their UTF-16 code units (RFC 8785, 3.2.3).
func writeCanonicalObject(b *bytes.Buffer, object map[string]any) error {
	keys := entities.SortedKeys(object)
	slices.SortFunc(keys, func(x, y string) int { return slices.Compare(utf16.Encode([]rune(x)), utf16.Encode([]rune(y))) })
	b.WriteByte('{')
	for n, key := range keys {
		if n > 0 {
			b.WriteByte(',')
		}
		writeCanonicalString(b, key)
		b.WriteByte(':')
		if err := writeCanonical(b, object[key]); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

// maxExact is the largest integer up to which every one has a number of its own (RFC 7493, 2.2).
const maxExact = 1<<53 - 1

// writeCanonicalNumber writes a number as ECMAScript does (RFC 8785, 3.2.2.3). So does encoding/json, except for a negative zero. A number that
// others would be equal to is refused.
func writeCanonicalNumber(b *bytes.Buffer, literal json.Number) error {
	number, err := literal.Float64()
	if err != nil || !strings.ContainsAny(literal.String(), ".eE") && math.Abs(number) > maxExact {
		return fmt.Errorf("the number %s has no digest; expected one of at most %d, or a text", literal, maxExact)
	}
	if number == 0 {
		b.WriteByte('0')
		return nil
	}
	text, err := json.Marshal(number)
	b.Write(text)
	return err
}

// writeCanonicalString escapes only what JSON requires (RFC 8785, 3.2.2.2).
func writeCanonicalString(b *bytes.Buffer, text string) {
	b.WriteByte('"')
	for _, r := range text {
		switch r {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case '\b':
			b.WriteString(`\b`)
		case '\t':
			b.WriteString(`\t`)
		case '\n':
			b.WriteString(`\n`)
		case '\f':
			b.WriteString(`\f`)
		case '\r':
			b.WriteString(`\r`)
		default:
			if r < ' ' {
				b.WriteString(`\u00` + strconv.FormatInt(int64(r)+0x100, 16)[1:])
			} else {
				b.WriteRune(r)
			}
		}
	}
	b.WriteByte('"')
}
