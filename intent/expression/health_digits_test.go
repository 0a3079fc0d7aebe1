package expression

import (
	"testing"

	"github.com/stretchr/testify/require"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/converge-engine/converge/entities"
)

// An expression sees every digit of a whole number of an object, decoded as Kubernetes clients do.
func TestExpressionsSeeEveryDigit_H3(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Verdict{
		"spec.big == 9007199254740993":                            HealthCurrent,
		"spec.big == 9007199254740992":                            HealthInProgress,
		"spec.big > 9007199254740992 && object.spec.big % 2 == 1": HealthCurrent,
	} {
		h, faults := NewHealth(entities.HealthRule{Kind: "Widget", Current: text})
		require.Empty(t, faults)
		var object map[string]any
		require.NoError(t, utiljson.Unmarshal([]byte(`{"apiVersion":"shop.dev/v1","kind":"Widget","spec":{"big":9007199254740993}}`), &object))
		got, err := h.Of(t.Context(), object)
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
}
