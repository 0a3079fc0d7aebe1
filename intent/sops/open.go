package sops

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"filippo.io/age"
	"filippo.io/age/armor"

	"github.com/converge-engine/converge/intent/internal/canonical"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// ErrNoKey reports that no identity can decrypt a file. A matching identity may be added later.
var ErrNoKey = errors.New("this worker has no age identity for it")

// Open decrypts an object of a bundle: it verifies the MAC of the file, and decrypts the values that SOPS encrypted. Other values do not
// change. The error is ErrNoKey if a key would fix it. No error contains decrypted text.
func (k *Keys) Open(application string, raw json.RawMessage) (json.RawMessage, error) {
	if !bytes.Contains(raw, []byte(`"`+Field+`":"`)) {
		return raw, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return nil, fmt.Errorf("read an object of a bundle: %w", err)
	}
	text, ok := object[Field].(string)
	if !ok || object["apiVersion"] != "v1" || object["kind"] != "Secret" {
		return raw, nil
	}
	delete(object, Field)
	metadata, _ := object["metadata"].(map[string]any)
	action := fmt.Sprintf("decrypt Secret %v", metadata["name"])
	f, err := Read([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%s, which SOPS encrypted: %w", action, err)
	}
	if err := f.CheckObject(object); err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	plain, err := f.open(k.identitiesFor(application))
	if err != nil {
		return nil, fmt.Errorf("%s, which SOPS encrypted for %s: %w", action, listRecipients(f.Recipients()), err)
	}
	if err := eachSealed(object, func(_, _, text string) (any, error) { return plain[text], nil }); err != nil {
		return nil, err
	}
	return canonical.JSON(object)
}

// listRecipients lists a few recipients.
func listRecipients(names []string) string {
	const limit = 5
	more := ""
	if len(names) > limit {
		more = fmt.Sprintf(" and %d more", len(names)-limit)
		names = names[:limit]
	}
	return strings.Join(strict.Map(names, short), ", ") + more
}

// short returns a recipient, and shortens very long ones.
func short(name string) string {
	if len(name) <= len("age1")+58 {
		return name
	}
	return name[:40] + "…"
}

// open decrypts the values of a file, by their encrypted texts, and verifies the MAC of the whole file.
func (f *File) open(identities []age.Identity) (map[string]any, error) {
	secret, err := f.key(identities)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithNonceSize(block, 32)
	if err != nil {
		return nil, err
	}
	plain := map[string]any{}
	var covered bytes.Buffer
	if f.onlySealed {
		covered.Write(sealedOnlyMACPrefix[:])
	}
	for _, l := range f.leaves {
		if l.seal != nil {
			if l.value, err = l.seal.open(aead, strings.Join(l.path, ":")+":"); err != nil {
				return nil, fmt.Errorf("%s %w", strict.Clip(strings.Join(l.path, ".")), err)
			}
			plain[l.text] = l.value
		}
		if l.seal != nil || !f.onlySealed {
			covered.Write(bytesOf(l.value))
		}
	}
	mac, err := f.mac.open(aead, f.modified)
	if err != nil {
		return nil, errors.New("its MAC cannot be decrypted: the file was changed, its lastmodified for one; encrypt it again")
	}
	sum := fmt.Sprintf("%X", sha512.Sum512(covered.Bytes()))
	if text, _ := mac.(string); subtle.ConstantTimeCompare([]byte(text), []byte(sum)) != 1 {
		return nil, errors.New("its MAC does not match: the file was changed after it was encrypted, possibly its plain text; encrypt it again")
	}
	return plain, nil
}

// sealedOnlyMACPrefix is the prefix of the MAC input if the MAC covers encrypted values only. It distinguishes this MAC from one of all
// values: SHA-256 of "sops".
var sealedOnlyMACPrefix = [32]byte{
	0x8a, 0x3f, 0xd2, 0xad, 0x54, 0xce, 0x66, 0x52, 0x7b, 0x10, 0x34, 0xf3, 0xd1, 0x47, 0xbe, 0xb,
	0xb, 0x97, 0x5b, 0x3b, 0xf4, 0x4f, 0x72, 0xc6, 0xfd, 0xad, 0xec, 0x81, 0x76, 0xf2, 0x7d, 0x69,
}

// key decrypts the key of the file.
func (f *File) key(identities []age.Identity) ([]byte, error) {
	for _, r := range f.recipients {
		if len(identities) == 0 {
			break
		}
		from, err := age.Decrypt(armor.NewReader(strings.NewReader(r.enc)), identities...)
		var other *age.NoIdentityMatchError
		if errors.As(err, &other) {
			continue
		}
		var secret []byte
		if err == nil {
			secret, err = io.ReadAll(io.LimitReader(from, 33))
		}
		if err != nil || len(secret) != 32 {
			return nil, fmt.Errorf("the key for %s in it is damaged", short(r.name))
		}
		return secret, nil
	}
	if len(identities) == 0 {
		return nil, fmt.Errorf("%w: it has none; start it with --sops-age-key-file", ErrNoKey)
	}
	return nil, fmt.Errorf("%w: it has those of %s", ErrNoKey, listRecipients(recipientsOf(identities)))
}

// open decrypts a value. Errors do not contain the value.
func (s *sealed) open(aead cipher.AEAD, place string) (any, error) {
	plain, err := aead.Open(nil, s.iv, append(bytes.Clone(s.data), s.auth...), []byte(place))
	if err != nil {
		return nil, errors.New("cannot be decrypted: it was changed, or moved from elsewhere")
	}
	text := string(plain)
	var v any = text
	switch s.kind {
	case "int":
		v, err = strconv.Atoi(text)
	case "float":
		v, err = strconv.ParseFloat(text, 64)
	case "bool":
		v, err = strconv.ParseBool(text)
	case "time":
		var t time.Time
		err = t.UnmarshalText(plain)
		v = t
	}
	if err != nil {
		return nil, errors.New("does not have its stated type")
	}
	return v, nil
}

// bytesOf returns the MAC input of a value.
func bytesOf(v any) []byte {
	switch x := v.(type) {
	case int:
		return strconv.AppendInt(nil, int64(x), 10)
	case float64:
		return strconv.AppendFloat(nil, x, 'f', -1, 64)
	case bool:
		if x {
			return []byte("True")
		}
		return []byte("False")
	case time.Time:
		text, err := x.MarshalText()
		if err != nil { // an unprintable year: the MAC will not match
			return nil
		}
		return text
	}
	text, _ := v.(string)
	return []byte(text)
}
