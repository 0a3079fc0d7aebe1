// Package seal encrypts secrets in a store with keys that are not in the store. It imports the standard library only.
package seal

import (
	"bytes"
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// header is the prefix of sealed bytes; the id of the key and a newline follow.
const header = "converge-sealed/v1 "

// Ring is a list of keys, the newest first. The newest encrypts, all keys decrypt. Nil has none. It is safe for concurrent use.
type Ring struct{ keys []key }

type key struct {
	id   string
	aead cipher.AEAD
}

// Load reads keys by reference: file:/path and env:NAME, separated by commas, the newest first. Each contains keys, one per line: 32
// random bytes in base64. Without references the ring is nil.
func Load(references string) (*Ring, error) {
	r := &Ring{}
	for _, reference := range strings.Split(references, ",") {
		if reference = strings.TrimSpace(reference); reference == "" {
			continue
		}
		text, err := read(reference)
		if errors.Is(err, errNoReference) { // the text may be a key itself
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", reference, err)
		}
		if err := r.add(text); err != nil {
			return nil, fmt.Errorf("key %s: %w", reference, err)
		}
	}
	if len(r.keys) == 0 {
		return nil, nil
	}
	return r, nil
}

func read(reference string) (string, error) {
	kind, name, _ := strings.Cut(reference, ":")
	switch kind {
	case "file":
		text, err := os.ReadFile(strings.TrimPrefix(name, "//"))
		return string(text), err
	case "env":
		if text := os.Getenv(name); text != "" {
			return text, nil
		}
		return "", errors.New("the variable is not set")
	}
	return "", errNoReference
}

var errNoReference = errors.New("a key of the store is named by reference; expected file:/path or env:NAME")

// add adds keys. No error contains a key.
func (r *Ring) add(text string) error {
	before := len(r.keys)
	for n, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		secret, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(secret) != 32 {
			return fmt.Errorf("line %d is not a key; expected 32 random bytes in base64, from: head -c 32 /dev/urandom | base64", n+1)
		}
		k, err := newKey(secret)
		if err != nil {
			return err
		}
		r.keys = append(r.keys, k)
	}
	if len(r.keys) == before {
		return errors.New("it contains no key")
	}
	return nil
}

func newKey(secret []byte) (key, error) {
	content, err := hkdf.Key(sha256.New, secret, nil, "converge content", 32)
	named, err2 := hkdf.Key(sha256.New, secret, nil, "converge key id", 6)
	block, err3 := aes.NewCipher(content)
	if err := cmp.Or(err, err2, err3); err != nil {
		return key{}, err
	}
	aead, err := cipher.NewGCM(block)
	return key{hex.EncodeToString(named), aead}, err
}

// Is reports whether bytes are sealed.
func Is(data []byte) bool { return bytes.HasPrefix(data, []byte(header)) }

// Seal encrypts bytes with the newest key. They can only be opened under the same name, so an attacker with write access cannot swap
// sealed values.
func (r *Ring) Seal(name string, plain []byte) []byte {
	k := r.keys[0]
	out := []byte(header + k.id + "\n")
	nonce := make([]byte, k.aead.NonceSize())
	_, _ = rand.Read(nonce) // it never fails
	return k.aead.Seal(append(out, nonce...), nonce, plain, []byte(header+k.id+"\n"+name))
}

// SealedWithNewest reports whether bytes are sealed with the newest key.
func (r *Ring) SealedWithNewest(sealed []byte) bool {
	return r != nil && bytes.HasPrefix(sealed, []byte(header+r.keys[0].id+"\n"))
}

// IDs returns the ids of the keys, the newest first.
func (r *Ring) IDs() (ids []string) {
	for _, k := range r.keys {
		ids = append(ids, k.id)
	}
	return ids
}

// Has reports whether the ring has a key.
func (r *Ring) Has(id string) bool { return r != nil && slices.Contains(r.IDs(), id) }

// KeyID returns the id of the key that sealed the bytes; empty if they are not sealed.
func KeyID(sealed []byte) string {
	first, _, _ := bytes.Cut(sealed, []byte("\n"))
	id, is := strings.CutPrefix(string(first), header)
	if !is {
		return ""
	}
	return id
}

// ErrNoKey reports that bytes are sealed with a key that is not in the ring.
var ErrNoKey = errors.New("it is encrypted, and this process does not have the key; set CONVERGE_STORE_KEY")

// ErrBroken reports that bytes differ from the bytes that were sealed under that name.
var ErrBroken = errors.New("it is not the content that was encrypted under its name")

// Open decrypts bytes. The error is ErrNoKey or ErrBroken.
func (r *Ring) Open(name string, sealed []byte) ([]byte, error) {
	id := KeyID(sealed)
	_, rest, _ := bytes.Cut(sealed, []byte("\n"))
	switch {
	case id == "":
		return nil, ErrBroken
	case r == nil:
		return nil, fmt.Errorf("%w (its id is %q)", ErrNoKey, id)
	}
	for _, k := range r.keys {
		if k.id != id {
			continue
		}
		size := k.aead.NonceSize()
		if len(rest) < size {
			return nil, ErrBroken
		}
		plain, err := k.aead.Open(nil, rest[:size], rest[size:], []byte(header+id+"\n"+name))
		if err != nil {
			return nil, ErrBroken
		}
		return plain, nil
	}
	return nil, fmt.Errorf("%w (its id is %q)", ErrNoKey, id)
}

// Digest names content with HMAC-SHA256, in hex. Without the secret nobody can verify a guess of the content.
func Digest(secret, content []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write(content)
	return hex.EncodeToString(mac.Sum(nil))
}
