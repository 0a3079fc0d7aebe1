// Package codec encrypts what Temporal keeps of payloads, with the keys of the store (docs/operating.md, What Temporal
// keeps). What is not encrypted is read as it is, so that histories that began in plain go on, and people may send verbs in plain.
// Keys are loaded when a process starts; nothing here is fetched while a workflow decides.
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
	// Encoding is what the metadata of an encrypted payload says it is.
	Encoding = "binary/converge-sealed"
	// KeyID is the metadata that names the key, as others do that encrypt payloads.
	KeyID = "encryption-key-id"
	// name is what payloads are encrypted under: none lies at a place that could be bound.
	name = "temporal payload"
)

// Setting is the variable that switches encryption on.
const Setting = "CONVERGE_ENCRYPT_PAYLOADS"

// Codec encrypts payloads, if it is to, and decrypts those that are. It implements converter.PayloadCodec. Safe for
// concurrent use. The zero value has no keys: it says so of what is encrypted.
type Codec struct {
	ring    *seal.Ring
	encrypt bool
	remote  converter.PayloadCodec // asked instead of a ring, where people look; nil: nobody is
	known   atomic.Pointer[map[string]bool]
}

// Load makes a codec of keys by reference, as CONVERGE_STORE_KEY has them: the first encrypts, when encrypting is asked for,
// and all decrypt. Setting is empty, or a truth value. It is an error to ask for encryption without a key.
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
		return nil, errors.New("payloads are to be encrypted, and there is no key; name it by CONVERGE_STORE_KEY")
	}
	return &Codec{ring: ring, encrypt: encrypt}, nil
}

// Remote makes a codec without keys that has a codec server encrypt and decrypt, with the header Authorization. It is for people who look,
// never for a worker, which would ask over the network while a workflow decides.
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

// Encrypts is the id of the key that payloads are encrypted with; empty: they are not.
func (c *Codec) Encrypts() string {
	if c == nil || !c.encrypt {
		return ""
	}
	return c.ring.IDs()[0]
}

// Has tells whether the codec has a key.
func (c *Codec) Has(id string) bool { return c != nil && c.ring.Has(id) }

// Keyed tells whether the codec has any key.
func (c *Codec) Keyed() bool { return c != nil && c.ring != nil }

// Know tells the codec which keys payloads of the installation were encrypted with, by id. A payload that names none of them
// is somebody's invention, and no reason for a workflow to wait until there is a key. Without this every one is missed.
func (c *Codec) Know(ids map[string]bool) { c.known.Store(&ids) }

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

// Decode implements converter.PayloadCodec. An error says which key is missing, or that a payload is broken.
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

// Is tells whether a payload says that it is encrypted.
func Is(p *commonpb.Payload) bool {
	return string(p.GetMetadata()[converter.MetadataEncoding]) == Encoding
}

// IsNoKey tells whether an error is that a key is missing.
func IsNoKey(err error) bool { return errors.Is(err, seal.ErrNoKey) }

// Read decodes payloads that somebody sent, as Converters do. The error IsNoKey when the installation used a key that the
// codec lacks; a payload that names another is broken. A nil codec reads what is not encrypted.
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

// Plain is what a payload holds. The error IsNoKey is as of Read; of one that is broken, the bytes are those that are there.
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

// missing tells whether payloads cannot be read for want of a key that the installation has used.
func (c *Codec) missing(payloads []*commonpb.Payload) bool {
	known := c.known.Load()
	for _, p := range payloads {
		id := seal.KeyID(p.GetData())
		if Is(p) && id != "" && !c.ring.Has(id) && (known == nil || (*known)[id]) {
			return true
		}
	}
	return false
}

// Refusal is what a text of the server's is to somebody who has no key; other texts are as they are.
func Refusal(message string) string {
	if strings.TrimSpace(message) == encodedFailure {
		return "what was answered is encrypted; name the key by CONVERGE_STORE_KEY, or a codec server by TEMPORAL_CODEC_ENDPOINT"
	}
	return message
}

// encodedFailure is what the SDK puts in the place of an encrypted message.
const encodedFailure = "Encoded failure"
