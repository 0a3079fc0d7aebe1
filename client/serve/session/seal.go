package session

import (
	"bytes"
	"compress/flate"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Keys seal what cookies keep, so that browsers can neither read nor change it. The first seals, and all open.
type Keys []cipher.AEAD

const (
	minSecret = 32       // bytes
	maxOpened = 64 << 10 // bytes of what a cookie keeps
)

// RandomKeys are keys of this process alone: people sign in again after it has started again.
func RandomKeys() Keys { return Keys{keyOf([]byte(rand.Text() + rand.Text()))} }

// ParseKeys reads secrets, one on a line, of at least 32 bytes each. The newest is the first.
func ParseKeys(text []byte) (keys Keys, err error) {
	for n, line := range strings.Split(string(text), "\n") {
		switch line = strings.TrimSpace(line); {
		case line == "":
		case len(line) < minSecret:
			return nil, fmt.Errorf("line %d has %d bytes; expected a secret of at least %d, such as: openssl rand -base64 32", n+1, len(line), minSecret)
		default:
			keys = append(keys, keyOf([]byte(line)))
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("there is no secret; expected one on each line, such as: openssl rand -base64 32")
	}
	return keys, nil
}

func keyOf(secret []byte) cipher.AEAD {
	sum := sha256.Sum256(secret)
	block, err := aes.NewCipher(sum[:])
	if err == nil {
		var key cipher.AEAD
		if key, err = cipher.NewGCMWithRandomNonce(block); err == nil {
			return key
		}
	}
	panic(err) // the length of a key is fixed
}

// seal returns a value for a cookie. kind is what the cookie is for; it opens for nothing else.
func (k Keys) seal(kind string, value any) (string, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(k[0].Seal(nil, nil, packed.Bytes(), []byte(kind))), nil
}

// open reads the value of a cookie, and reports whether it was sealed for this kind.
func (k Keys) open(kind, text string, into any) bool {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return false
	}
	for _, key := range k {
		packed, err := key.Open(nil, nil, sealed, []byte(kind))
		if err != nil {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), maxOpened))
		return err == nil && json.Unmarshal(data, into) == nil
	}
	return false
}
