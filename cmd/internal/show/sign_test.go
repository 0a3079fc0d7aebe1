package show

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSign(t *testing.T) {
	colour := Screen{TTY: true, Colour: true}
	require.Equal(t, "\x1b[32m+\x1b[0m", colour.Sign("+", "+"))
	require.Equal(t, "\x1b[31m! refused\x1b[0m", colour.Sign("!", "! refused"))
	require.Equal(t, "?", colour.Sign("?", "?"))
	require.Equal(t, "-", Screen{TTY: true}.Sign("-", "-"), "never against NO_COLOR")
}
