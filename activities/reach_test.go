package activities

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// Nobody is missed of a batch in which no one was reached, since all of it is told again: a service whose own fault it was would
// be named twice. Of one in which somebody was, each is missed that was not.
func TestNoteOfABatch(t *testing.T) {
	own, outage := error(&store.CorruptError{Key: "specs/1", Why: "cut off"}), errors.New("no server")
	services := []string{"a", "b", "c"}
	r := &reach{}
	require.EqualError(t, r.note(services, []error{own, outage, outage}), "notify b: no server")
	require.Zero(t, r.missed)
	require.Empty(t, r.last)

	require.NoError(t, r.note(services, []error{own, nil, outage}))
	require.Equal(t, protocol.Unreached{Services: []string{"a", "c"}, Why: "a: " + own.Error()}, r.missed)
	require.Equal(t, "c", r.last)

	require.NoError(t, (&reach{}).note(services, []error{own, own, own}), "it is nobody else's fault")
}
