package custom

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/converge-engine/converge/entities"
)

const mask = "***"

// redactor removes secrets from text. The zero value has none.
type redactor struct {
	secrets [][]byte      // longest first
	byFirst [256][][]byte // the same by their first byte
}

// redactEverything removes the whole text.
var redactEverything = func() *redactor {
	r := &redactor{}
	for b := range r.byFirst {
		r.secrets = append(r.secrets, []byte{byte(b)})
		r.byFirst[b] = r.secrets[b:]
	}
	return r
}()

// newRedactor also recognises a secret in another form (see forms), and each line of a secret with several lines (a private key is often
// printed line by line).
func newRedactor(values []string) *redactor {
	r := &redactor{}
	seen := map[string]bool{"": true}
	add := func(s string) {
		if !seen[s] {
			seen[s] = true
			r.secrets = append(r.secrets, []byte(s))
		}
	}
	for _, v := range values {
		add(v)
		for _, form := range forms(v) {
			add(form)
		}
		if lines := strings.Split(v, "\n"); len(lines) > 1 {
			for _, line := range lines {
				if line = strings.TrimSpace(line); len(line) >= 8 {
					add(line)
				}
			}
		}
	}
	slices.SortStableFunc(r.secrets, func(a, b []byte) int { return len(b) - len(a) })
	for _, s := range r.secrets {
		r.byFirst[s[0]] = append(r.byFirst[s[0]], s)
	}
	return r
}

// minEncoded is the length from which on an encoded secret is recognised, in bytes: a shorter one would hide text that has none.
const minEncoded = 6

// forms are what programs print in place of a secret: a string of JSON, HTML or a URL, hexadecimal digits, base64, also as a part of
// something that is encoded as a whole, and the secret backwards. An encoding that is broken into lines is not recognised.
func forms(secret string) []string {
	all := []string{asJSON(secret, false), asJSON(secret, true), html.EscapeString(secret)}
	if len(secret) < minEncoded/2 {
		return all
	}
	hexadecimal := hex.EncodeToString([]byte(secret))
	encoded := []string{hexadecimal, strings.ToUpper(hexadecimal), reversed(secret)}
	for _, escaped := range []string{url.QueryEscape(secret), url.PathEscape(secret)} {
		encoded = append(encoded, escaped, lowerEscapes.ReplaceAllStringFunc(escaped, strings.ToLower))
	}
	for _, alphabet := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		encoded = append(encoded, alphabet.EncodeToString([]byte(secret)))
		for before := range 3 { // bytes of something else that share a group of four characters with the secret
			text := alphabet.EncodeToString(append(make([]byte, before), secret...))
			encoded = append(encoded, text[(before*8+5)/6:(before+len(secret))*8/6])
		}
	}
	return append(all, slices.DeleteFunc(encoded, func(s string) bool { return len(s) < minEncoded })...)
}

var lowerEscapes = regexp.MustCompile(`%[0-9A-F]{2}`)

func reversed(s string) string {
	runes := []rune(s)
	slices.Reverse(runes)
	return string(runes)
}

func asJSON(s string, escapeHTML bool) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(escapeHTML)
	if err := enc.Encode(s); err != nil {
		return "" // cannot happen with a string
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`)
}

// longest is the length of the longest secret, 0 without any.
func (r *redactor) longest() int {
	if len(r.secrets) == 0 {
		return 0
	}
	return len(r.secrets[0])
}

// match is the length of the longest secret with which b begins.
func (r *redactor) match(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	for _, s := range r.byFirst[b[0]] {
		if bytes.HasPrefix(b, s) {
			return len(s)
		}
	}
	return 0
}

// isSecretPrefix reports whether b is the beginning of a secret, but not a complete one.
func (r *redactor) isSecretPrefix(b []byte) bool {
	return slices.ContainsFunc(r.secrets, func(s []byte) bool { return len(b) < len(s) && bytes.HasPrefix(s, b) })
}

// dropPartialSecret redacts a stream that was cut without regard to secrets: if its beginning is missing, it drops bytes that may be
// a part of a secret.
func (r *redactor) dropPartialSecret(stream []byte, truncated bool) []byte {
	if !truncated {
		return stream
	}
	return stream[min(len(stream), max(0, r.longest()-1)):]
}

// text redacts a complete string.
func (r *redactor) text(s string) string {
	if len(r.secrets) == 0 {
		return s
	}
	t := r.tail(len(s) + len(mask)*(len(s)+1))
	_, _ = t.Write([]byte(s)) // a tail never fails
	return t.String()
}

// objects redacts every string of a parsed document. The observed version is no secret, so it stays even if a secret is a part of
// it: otherwise a very short "secret" would prevent an instance from converging.
func (r *redactor) objects(objects []entities.Object, version string) []entities.Object {
	if len(r.secrets) == 0 {
		return objects
	}
	for i := range objects {
		o := &objects[i]
		o.Name, o.Type, o.Message = r.text(o.Name), r.text(o.Type), r.text(o.Message)
		for j := range o.Versions {
			if o.Versions[j].Version != version {
				o.Versions[j].Version = r.text(o.Versions[j].Version)
			}
		}
		for j := range o.Links {
			o.Links[j].URL, o.Links[j].Name = r.text(o.Links[j].URL), r.text(o.Links[j].Name)
		}
		for j := range o.Events {
			o.Events[j].Message = r.text(o.Events[j].Message)
		}
	}
	return objects
}

// tail keeps the redacted end of a stream. It redacts before it cuts, and across writes, so that no part of a secret is left.
// Overlapping secrets are masked together.
type tail struct {
	mu      sync.Mutex // it may be read while it grows
	r       *redactor
	limit   int
	pending []byte // not decided yet: shorter than the longest secret
	covered int    // number of pending bytes that belong to a secret that began earlier
	masked  bool   // the last kept text is a mask
	kept    []byte
	dropped int // bytes dropped at the beginning
}

func (r *redactor) tail(limit int) *tail { return &tail{r: r, limit: limit} }

// Write never fails.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending = append(t.pending, b...)
	t.flush(max(1, t.r.longest()))
	return len(b), nil
}

// flush passes on the bytes of pending that are followed by at least lookahead-1 bytes.
func (t *tail) flush(lookahead int) {
	i := 0
	for ; len(t.pending)-i >= lookahead && i < len(t.pending); i++ {
		t.covered = max(t.covered, t.r.match(t.pending[i:]))
		if t.covered == 0 {
			t.kept, t.masked = append(t.kept, t.pending[i]), false
			continue
		}
		t.covered--
		if !t.masked {
			t.kept, t.masked = append(t.kept, mask...), true
		}
	}
	t.pending = append(t.pending[:0], t.pending[i:]...)
	if len(t.kept) > 2*t.limit { // not at every write: the copy would cost more than the output
		t.cut(t.limit)
	}
}

func (t *tail) cut(limit int) {
	if over := len(t.kept) - limit; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
		t.dropped += over
	}
}

// last is the current end of the stream, at most limit bytes, in valid UTF-8. It omits bytes that may be the beginning of a secret.
func (t *tail) last(limit int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	safe := 0
	for safe < len(t.pending) && !t.r.isSecretPrefix(t.pending[safe:]) {
		safe++
	}
	end := tail{
		r: t.r, limit: limit, covered: t.covered, masked: t.masked,
		kept: slices.Clone(t.kept[max(0, len(t.kept)-limit):]), pending: slices.Clone(t.pending[:safe]),
	}
	end.flush(0)
	end.cut(limit)
	return strings.ToValidUTF8(string(wholeRunes(end.kept)), "?")
}

// wholeRunes drops the rest of a character that was cut at the beginning.
func wholeRunes(b []byte) []byte {
	for len(b) > 0 && !utf8.RuneStart(b[0]) {
		b = b[1:]
	}
	return b
}

// String ends the stream and returns the kept text, in valid UTF-8, at most limit bytes. It notes a missing beginning.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flush(0)
	const noticeSize = len("(the first 12345678901234 bytes are left out)\n")
	if t.dropped == 0 && len(t.kept) <= t.limit {
		return strings.ToValidUTF8(string(t.kept), "?")
	}
	t.cut(t.limit - noticeSize)
	rest := wholeRunes(t.kept)
	return fmt.Sprintf("(the first %d bytes are left out)\n%s", t.dropped+len(t.kept)-len(rest), strings.ToValidUTF8(string(rest), "?"))
}
