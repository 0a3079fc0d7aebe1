package protocol

import (
	"encoding/json"
	"errors"
)

// This file holds how an answer gets through Temporal that is larger than a payload may be (F8): the answer of a query in parts, each asked for
// on its own, that of a local activity by way of the store.

const (
	// MaxPayload is what no payload passes, in bytes.
	MaxPayload = 64 << 10
	// MaxAnswer is what goes in one piece: encryption, and what is around it, takes some, too.
	MaxAnswer = 60 << 10
	// PartSize is how many packed bytes a part has at most: base64 in JSON adds a third.
	PartSize = 44 << 10
)

// PartSchema names the version of Part.
const PartSchema = "converge.part/v1"

// InParts is the argument of a query whose answer may come in parts. Without it an answer that is too large is cut short.
type InParts struct {
	Parts bool `json:"parts"`
	// Of is the answer that parts were had of, and From how many bytes; none: it begins.
	Of   string `json:"of,omitempty"`
	From int    `json:"from,omitempty"`
}

// Part is one part of an answer: of its JSON, packed, Size bytes in all. Who asks for more of an answer that is not there any more gets the
// first part of the present one.
type Part struct {
	Schema string `json:"schema"` // PartSchema
	Of     string `json:"of"`     // digest of the packed answer
	From   int    `json:"from,omitempty"`
	Size   int    `json:"size"`
	Packed Packed `json:"packed"`
}

// mostAsks bounds how often one answer is asked for: one that is another one each time would be asked for without end.
const mostAsks = 1000

// Whole asks for an answer, in parts where it is too large for one, and decodes it.
func Whole(ask func(InParts) (json.RawMessage, error), into any) error {
	var packed Packed
	of := ""
	for range mostAsks {
		raw, err := ask(InParts{Parts: true, Of: of, From: len(packed)})
		if err != nil {
			return err
		}
		part, isPart := partIn(raw)
		if !isPart {
			return json.Unmarshal(raw, into)
		}
		if part.Of != of || part.From != len(packed) { // it begins anew
			of, packed = part.Of, nil
		}
		if packed = append(packed, part.Packed...); len(packed) >= part.Size {
			return packed.Unpack(into)
		}
	}
	return errors.New("the answer changes faster than it can be read; ask again")
}

// partIn is the part that an answer is, if it is one.
func partIn(raw json.RawMessage) (p Part, ok bool) {
	err := json.Unmarshal(raw, &p)
	return p, err == nil && p.Schema == PartSchema
}

// packedBeyond is a value packed where it is too large to go as it is.
func packedBeyond(v any) Packed {
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

// InStore is part of what local activities answer that may be too large: then that is the digest of the packed answer in the store, and nothing
// else is filled in. Histories have it only of answers that are too large.
type InStore struct {
	AnswerInStore string `json:"answerInStore,omitempty"`
}

// Elsewhere is that digest; "": the answer is whole.
func (s *InStore) Elsewhere() string { return s.AnswerInStore }

// Leave leaves the answer to the store.
func (s *InStore) Leave(digest string) { s.AnswerInStore = digest }
