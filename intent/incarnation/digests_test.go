package incarnation

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What differs cannot be made to look the same by a digest that begins alike.
func TestDigestsAreComparedInFull_G1(t *testing.T) {
	const beginning = "0123456789ab"
	a, b := sha256+beginning+strings.Repeat("0", 52), sha256+beginning+strings.Repeat("1", 52)
	d := Difference{Rules: changes(map[string]string{"crafted": a, "other": a}, map[string]string{"crafted": b, "other": sha256 + strings.Repeat("f", 64)})}
	require.Equal(t, `release channels
  ~ crafted  `+a+` → `+b+`
  ~ other  sha256 0123456789ab → sha256 ffffffffffff
`, d.String())
}
