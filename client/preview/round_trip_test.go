package preview

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// The CLI keeps every digit of a number. A release has it as Temporal passes it on, and a plan has the same value.
func TestParametersOfAPlanAreThoseOfARelease(t *testing.T) {
	got, err := roundTrip(protocol.PrepareRequest{Version: "v2", Parameters: map[string]any{"replicas": json.Number("4"), "text": "x"}})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"replicas": float64(4), "text": "x"}, got.Parameters)
	require.Equal(t, "v2", got.Version)
}
