// Package codec encrypts payloads in Temporal with the keys of the store (docs/secrets.md, What Temporal keeps). It reads unencrypted
// payloads unchanged, so existing histories continue, and users may send unencrypted verbs. Keys are loaded when a process starts;
// workflow code fetches nothing.
package codec

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"

	"github.com/converge-engine/converge/intent/internal/seal"
)

const (
	// Encoding is the encoding in the metadata of an encrypted payload.
	Encoding = "binary/converge-sealed"
	// KeyID is the metadata field with the key's id, which other payload codecs use, too.
	KeyID = "encryption-key-id"
	// name is the name for encryption. Payloads have no location to bind them to.
	name = "temporal payload"
)

// Setting is the environment variable that enables encryption.
const Setting = "CONVERGE_ENCRYPT_PAYLOADS"

// Codec encrypts payloads if enabled, and decrypts encrypted ones. It implements converter.PayloadCodec. It is safe for concurrent use.
// The zero value has no keys, and returns an error for encrypted payloads.
type Codec struct {
	ring     *seal.Ring
	encrypt  bool
	remote   converter.PayloadCodec // used instead of the ring, for interactive users; nil: none
	knownIDs atomic.Pointer[map[string]bool]
}

// Load makes a codec of key references in the format of CONVERGE_STORE_KEY. The first key encrypts if encryption is enabled, and all
// keys decrypt. Setting is empty or a boolean. Enabling encryption without a key is an error.
func Load(keys, setting string) (*Codec, error) {
	encrypt, err := strconv.ParseBool(setting)
	if setting != "" && err != nil {
		return nil, fmt.Errorf("%s is %q; expected true or false", Setting, setting)
	}
	ring, err := seal.Load(keys)
	if err != nil {
		return nil, err
	}
	if encrypt && ring == nil {
		return nil, errors.New("payloads must be encrypted, and there is no key; set CONVERGE_STORE_KEY")
	}
	return &Codec{ring: ring, encrypt: encrypt}, nil
}

// Remote makes a codec without keys that uses a codec server, with the header Authorization. It is for interactive users, never for a
// worker, where workflow code would wait for the network.
func Remote(endpoint, authorization, namespace string) *Codec {
	return &Codec{remote: converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{
		Endpoint: strings.TrimSuffix(endpoint, "/"),
		Client:   http.Client{Timeout: 10 * time.Second},
		ModifyRequest: func(r *http.Request) error {
			r.Header.Set("X-Namespace", namespace)
			if authorization != "" {
				r.Header.Set("Authorization", authorization)
			}
			return nil
		},
	})}
}

// Encrypts returns the id of the key that encrypts payloads; empty: they are not encrypted.
func (c *Codec) Encrypts() string {
	if c == nil || !c.encrypt {
		return ""
	}
	return c.ring.IDs()[0]
}

// Has reports whether the codec has a key.
func (c *Codec) Has(id string) bool { return c != nil && c.ring.Has(id) }

// Keyed reports whether the codec has any key.
func (c *Codec) Keyed() bool { return c != nil && c.ring != nil }

// SetKnown sets the ids of the keys that the installation ever used for payloads. A payload with another key id is forged, and a workflow
// must not wait for that key. Without this call, every unknown key counts as missing.
func (c *Codec) SetKnown(ids map[string]bool) { c.knownIDs.Store(&ids) }

// Encode implements converter.PayloadCodec.
func (c *Codec) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	id := c.Encrypts()
	switch {
	case c.remote != nil:
		return c.remote.Encode(payloads)
	case id == "":
		return payloads, nil
	}
	out := make([]*commonpb.Payload, len(payloads))
	for n, p := range payloads {
		plain, err := proto.Marshal(p)
		if err != nil {
			return nil, err
		}
		out[n] = &commonpb.Payload{
			Metadata: map[string][]byte{converter.MetadataEncoding: []byte(Encoding), KeyID: []byte(id)},
			Data:     c.ring.Seal(name, plain),
		}
	}
	return out, nil
}

// Decode implements converter.PayloadCodec. An error names the missing key, or reports a damaged payload.
func (c *Codec) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	if c.remote != nil && slices.ContainsFunc(payloads, Is) {
		return c.remote.Decode(payloads)
	}
	out := make([]*commonpb.Payload, len(payloads))
	for n, p := range payloads {
		if out[n] = p; !Is(p) {
			continue
		}
		plain, err := c.ring.Open(name, p.GetData())
		if err != nil {
			return nil, fmt.Errorf("a payload cannot be read: %w", err)
		}
		out[n] = &commonpb.Payload{}
		if err := proto.Unmarshal(plain, out[n]); err != nil {
			return nil, fmt.Errorf("a payload cannot be read: %w", seal.ErrBroken)
		}
	}
	return out, nil
}

// Is reports whether a payload is marked as encrypted.
func Is(p *commonpb.Payload) bool {
	return string(p.GetMetadata()[converter.MetadataEncoding]) == Encoding
}

// IsNoKey reports whether an error is caused by a missing key.
func IsNoKey(err error) bool { return errors.Is(err, seal.ErrNoKey) }

// Read decodes received payloads with Converters. The error satisfies IsNoKey if the installation used a key that the codec lacks; a
// payload with any other unknown key is damaged. A nil codec reads unencrypted payloads only.
func (c *Codec) Read(payloads *commonpb.Payloads, into ...any) error {
	if c == nil {
		c = &Codec{}
	}
	data, _ := c.Converters()
	err := data.FromPayloads(payloads, into...)
	if IsNoKey(err) && !c.missing(payloads.GetPayloads()) {
		return seal.ErrBroken
	}
	return err
}

// Plain returns the content of a payload. IsNoKey errors are as for Read. For a damaged payload it returns the raw bytes.
func (c *Codec) Plain(p *commonpb.Payload) ([]byte, error) {
	plain, err := c.Decode([]*commonpb.Payload{p})
	switch {
	case err == nil:
		return plain[0].GetData(), nil
	case c.remote != nil, IsNoKey(err) && c.missing([]*commonpb.Payload{p}):
		return nil, err
	}
	return p.GetData(), nil
}

// missing reports whether payloads cannot be read because a key is missing that the installation has used.
func (c *Codec) missing(payloads []*commonpb.Payload) bool {
	known := c.knownIDs.Load()
	for _, p := range payloads {
		id := seal.KeyID(p.GetData())
		if Is(p) && id != "" && !c.ring.Has(id) && (known == nil || (*known)[id]) {
			return true
		}
	}
	return false
}

// Refusal converts a server message for users without a key; it does not change other texts.
func Refusal(message string) string {
	if strings.TrimSpace(message) == encodedFailure {
		return "the answer is encrypted; set CONVERGE_STORE_KEY to the key, or TEMPORAL_CODEC_ENDPOINT to a codec server"
	}
	return message
}

// encodedFailure is the SDK's replacement for an encrypted message.
const encodedFailure = "Encoded failure"
