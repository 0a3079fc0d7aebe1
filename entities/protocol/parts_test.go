package protocol_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// inParts answers in parts of so many bytes.
func inParts(t *testing.T, value any, of string, size int) func(protocol.PartsQuery) protocol.Part {
	t.Helper()
	packed, err := protocol.Pack(value)
	require.NoError(t, err)
	return func(q protocol.PartsQuery) protocol.Part {
		from := q.Offset
		if q.Digest != of {
			from = 0
		}
		return protocol.Part{Schema: protocol.PartSchema, Digest: of, Offset: from, Size: len(packed), Packed: packed[from:min(from+size, len(packed))]}
	}
}

// The parts of an answer are joined. If the answer changes in between, the transfer starts again.
func TestAnswerInParts_F8(t *testing.T) {
	t.Parallel()
	first, second := inParts(t, "an answer", "a", 7), inParts(t, "another answer", "b", 5)
	asked := 0
	ask := func(q protocol.PartsQuery) (json.RawMessage, error) {
		require.True(t, q.Parts)
		if asked++; asked <= 2 {
			return json.Marshal(first(q))
		}
		return json.Marshal(second(q))
	}
	var got string
	require.NoError(t, protocol.QueryWhole(ask, &got))
	require.Equal(t, "another answer", got)

	asked = -100
	require.NoError(t, protocol.QueryWhole(ask, &got))
	require.Equal(t, "an answer", got)
}

// An older worker answers in one piece. An error of the query is returned.
func TestAnswerOfOlderWorker_F8(t *testing.T) {
	t.Parallel()
	var status protocol.Status
	whole := func(protocol.PartsQuery) (json.RawMessage, error) {
		return json.RawMessage(`{"schema":"converge.status/v1","service":"web"}`), nil
	}
	require.NoError(t, protocol.QueryWhole(whole, &status))
	require.Equal(t, "web", status.Service)
	failing := func(protocol.PartsQuery) (json.RawMessage, error) { return nil, errors.New("no worker answers") }
	require.EqualError(t, protocol.QueryWhole(failing, &status), "no worker answers")
}

// The requests for an answer that changes each time are limited.
func TestAnswerThatKeepsChanging_F8(t *testing.T) {
	t.Parallel()
	asked := 0
	ask := func(q protocol.PartsQuery) (json.RawMessage, error) {
		asked++
		return json.Marshal(inParts(t, "an answer", string(rune('a'+asked%20)), 7)(q))
	}
	require.EqualError(t, protocol.QueryWhole(ask, new(string)), "the answer changed too often while it was read; try again")
}
