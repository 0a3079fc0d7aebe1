package sops

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"filippo.io/age/armor"
	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// secretRule selects the encrypted fields of a Secret, as is usual for SOPS.
const secretRule = "^(data|stringData)$"

// formatVersion is the SOPS version of the file format.
const formatVersion = "3.13.3"

// CheckRecipient rejects a name that is not an age recipient that SOPS accepts without more information.
func CheckRecipient(name string) error {
	_, err := age.ParseRecipients(strings.NewReader(name))
	if err != nil || !recipientRE.MatchString(name) {
		return errors.New("it is not an age recipient; expected one that begins with age1, from age-keygen")
	}
	return nil
}

// Seal writes texts as a Kubernetes Secret that is encrypted for age recipients in the format of SOPS: `sops decrypt` reads it. No error
// contains a text.
func Seal(name string, texts map[string]string, recipients []string, now time.Time) ([]byte, error) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithNonceSize(block, 32)
	if err != nil {
		return nil, err
	}
	modified := now.UTC().Format(time.RFC3339)
	covered := bytes.NewBufferString("v1" + "Secret" + name)
	values := &yaml.Node{Kind: yaml.MappingNode}
	for _, key := range strict.Keys(texts) {
		covered.WriteString(texts[key])
		value := texts[key]
		if value != "" { // empty values are not encrypted
			value = seal(aead, value, "stringData:"+key+":")
		}
		values.Content = append(values.Content, scalar(key), scalar(value))
	}
	meta := map[string]any{
		"lastmodified": modified, "encrypted_regex": secretRule, "version": formatVersion,
		"mac": seal(aead, fmt.Sprintf("%X", sha512.Sum512(covered.Bytes())), modified),
	}
	if meta["age"], err = encryptKey(secret, recipients); err != nil {
		return nil, err
	}
	sops := &yaml.Node{}
	if err := sops.Encode(meta); err != nil {
		return nil, err
	}
	return yaml.Marshal(mapping("apiVersion", scalar("v1"), "kind", scalar("Secret"), "metadata", mapping("name", scalar(name)), "stringData", values, Field, sops))
}

// encryptKey encrypts the key of a file for each recipient.
func encryptKey(secret []byte, recipients []string) (all []map[string]string, err error) {
	if len(recipients) == 0 {
		return nil, errors.New("there are no recipients for it")
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(recipients))) {
		to, err := age.ParseRecipients(strings.NewReader(name))
		if err != nil {
			return nil, fmt.Errorf("%s is not an age recipient", strict.Clip(name))
		}
		var text bytes.Buffer
		armored := armor.NewWriter(&text)
		into, err := age.Encrypt(armored, to...)
		if err == nil {
			_, err = into.Write(secret)
		}
		if err == nil {
			err = errors.Join(into.Close(), armored.Close())
		}
		if err != nil {
			return nil, fmt.Errorf("encrypt for %s: %w", short(name), err)
		}
		all = append(all, map[string]string{"recipient": name, "enc": text.String()})
	}
	return all, nil
}

// seal encrypts a text for a place in the file.
func seal(aead cipher.AEAD, text, place string) string {
	iv := make([]byte, aead.NonceSize())
	_, _ = rand.Read(iv) // it never fails
	out := aead.Seal(nil, iv, []byte(text), []byte(place))
	at := len(out) - aead.Overhead()
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("%sdata:%s,iv:%s,tag:%s,type:str]", sealedPrefix, encode(out[:at]), encode(iv), encode(out[at:]))
}

func scalar(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

// mapping returns a mapping with keys and values in order.
func mapping(all ...any) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode}
	for _, each := range all {
		switch x := each.(type) {
		case string:
			node.Content = append(node.Content, scalar(x))
		case *yaml.Node:
			node.Content = append(node.Content, x)
		}
	}
	return node
}

// Texts decrypts the output of Seal. The error is ErrNoKey if a key would fix it. No error contains decrypted text.
func (k *Keys) Texts(application string, text []byte) (map[string]string, error) {
	f, err := Read(text)
	if err != nil {
		return nil, err
	}
	plain, err := f.open(k.identitiesFor(application))
	if err != nil {
		return nil, fmt.Errorf("it is encrypted for %s: %w", listRecipients(f.Recipients()), err)
	}
	all := map[string]string{}
	for _, l := range f.leaves {
		if len(l.path) != secretDepth-1 || l.path[0] != "stringData" {
			continue
		}
		all[l.path[1]], _ = l.value.(string)
		if l.seal != nil {
			all[l.path[1]], _ = plain[l.text].(string)
		}
	}
	return all, nil
}
