package protocol

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf16"
)

// Act is what one person does by one request, in the form whose digest an issuer can sign (docs/protocol.md, "The digest of an act").
type Act struct {
	Installation string `json:"installation"` // its id
	Namespace    string `json:"namespace"`    // of Temporal
	Issuer       string `json:"issuer"`       // of the token
	Client       string `json:"client"`       // the OAuth client that the token is issued to: azp
	Subject      string `json:"subject"`      // the person, for the issuer
	Verb         string `json:"verb"`
	// Parameters are the fields of the request's payload, without by, token, requestId, reason and to.
	Parameters json.RawMessage `json:"parameters"`
	// Workflows are the ids of all workflows that the request is sent to, sorted.
	Workflows []string `json:"workflows"`
	// Release is the id of the release, Payload the digest of what it applies, and Rules the incarnation whose rules the person saw; empty and
	// 0: the act is about none.
	Release   string    `json:"release"`
	Payload   string    `json:"payload"`
	Rules     int64     `json:"rules"`
	Reason    string    `json:"reason"`
	RequestID string    `json:"requestId"`
	Random    string    `json:"random"`   // 128 random bits, base64url without padding
	NotAfter  time.Time `json:"notAfter"` // in whole seconds, UTC
}

// actPrefix names the form.
const actPrefix = "converge-act/1\n"

// Digest returns the digest of the act: SHA-256, in base64url without padding. The error says which field is invalid.
func (a Act) Digest() (string, error) {
	if !slices.IsSorted(a.Workflows) || len(a.Workflows) == 0 {
		return "", fmt.Errorf("workflows are %q; expected at least one, sorted", a.Workflows)
	}
	a.NotAfter = a.NotAfter.UTC().Truncate(time.Second)
	raw, err := json.Marshal(a)
	if err != nil {
		return "", err
	}
	text, err := canonicalJSON(raw)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(actPrefix), text...))
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// canonicalJSON returns JSON in the form of RFC 8785 (JSON Canonicalization Scheme).
func canonicalJSON(raw []byte) ([]byte, error) {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
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
	case float64:
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
	keys := make([]string, 0, len(object))
	for key := range object {
		keys = append(keys, key)
	}
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

// writeCanonicalNumber writes a number as ECMAScript does (RFC 8785, 3.2.2.3). So does encoding/json, except for a negative zero.
func writeCanonicalNumber(b *bytes.Buffer, number float64) error {
	if number == 0 || math.IsNaN(number) || math.IsInf(number, 0) { // JSON has neither of the latter
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
