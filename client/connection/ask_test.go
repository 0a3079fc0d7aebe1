package connection

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
)

// A query that the server gives up is asked again while there is time, and no other error is.
func TestAskRepeatsWhatTheServerGivesUp_F1(t *testing.T) {
	gaveUp := serviceerror.NewDeadlineExceeded("no worker took it")
	for name, row := range map[string]struct {
		answers []error
		asked   int
	}{
		"answered":              {[]error{nil}, 1},
		"answered in the end":   {[]error{gaveUp, gaveUp, nil}, 3},
		"another error":         {[]error{errors.New("no"), nil}, 1},
		"another error at last": {[]error{gaveUp, errors.New("no")}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			err := Ask(t.Context(), func() error { asked++; return row.answers[asked-1] })
			require.Equal(t, row.answers[row.asked-1], err)
			require.Equal(t, row.asked, asked)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := Ask(ctx, func() error { cancel(); return gaveUp })
	require.Equal(t, gaveUp, err, "there is no time left")
}
