package protocol

import (
	"encoding/json"
	"errors"
)

// This file transfers answers that are larger than a payload may be (F8): the answer of a query in parts, each requested separately; the
// answer of a local activity through the store.

const (
	// MaxPayload is the maximum size of a payload, in bytes.
	MaxPayload = 64 << 10
	// MaxAnswer is the maximum size in one piece. The rest is for encryption and the envelope.
	MaxAnswer = 60 << 10
	// PartSize is the maximum number of packed bytes in a part: base64 in JSON adds a third.
	PartSize = 44 << 10
)

// PartSchema names the version of Part.
const PartSchema = "converge.part/v1"

// PartsQuery is the argument of a query whose answer may come in parts. Without it, an answer that is too large is shortened.
type PartsQuery struct {
	Parts bool `json:"parts"`
	// Digest is the digest of the answer whose parts were received, and Offset how many bytes of it. Empty: the first request.
	Digest string `json:"of,omitempty"`
	Offset int    `json:"from,omitempty"`
}

// Part is one part of an answer: of its JSON, packed, Size bytes in all. If the requested answer no longer exists, the first part of the
// current one is returned.
type Part struct {
	Schema string `json:"schema"` // PartSchema
	Digest string `json:"of"`     // digest of the packed answer
	Offset int    `json:"from,omitempty"`
	Size   int    `json:"size"`
	Packed Packed `json:"packed"`
}

// maxPartRequests limits the requests for one answer. If the answer changed at each request, they would never end.
const maxPartRequests = 1000

// QueryWhole requests an answer, in parts if it is too large for one, and decodes it.
func QueryWhole(ask func(PartsQuery) (json.RawMessage, error), into any) error {
	var packed Packed
	of := ""
	for range maxPartRequests {
		raw, err := ask(PartsQuery{Parts: true, Digest: of, Offset: len(packed)})
		if err != nil {
			return err
		}
		part, isPart := partIn(raw)
		if !isPart {
			return json.Unmarshal(raw, into)
		}
		if part.Digest != of || part.Offset != len(packed) { // the answer changed; start again
			of, packed = part.Digest, nil
		}
		if packed = append(packed, part.Packed...); len(packed) >= part.Size {
			return packed.Unpack(into)
		}
	}
	return errors.New("the answer changed too often while it was read; try again")
}

// partIn returns the part in an answer, if it is one.
func partIn(raw json.RawMessage) (p Part, ok bool) {
	err := json.Unmarshal(raw, &p)
	return p, err == nil && p.Schema == PartSchema
}

// packIfLarge returns a packed value if the value is too large to be sent plain.
func packIfLarge(v any) Packed {
	raw, err := json.Marshal(v)
	if err != nil || len(raw) <= MaxAnswer {
		return nil
	}
	packed, err := Pack(json.RawMessage(raw))
	if err != nil {
		return nil
	}
	return packed
}

// StoredAnswer is embedded in answers of local activities that may be too large. Then it contains the digest of the packed answer in the
// store, and all other fields are empty. In histories it appears only in answers that are too large.
type StoredAnswer struct {
	AnswerDigest string `json:"answerInStore,omitempty"`
}

// StoredDigest returns that digest; "": the answer is complete.
func (s *StoredAnswer) StoredDigest() string { return s.AnswerDigest }

// SetStoredDigest replaces the answer by its digest in the store.
func (s *StoredAnswer) SetStoredDigest(digest string) { s.AnswerDigest = digest }
