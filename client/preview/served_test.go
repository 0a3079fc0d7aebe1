package preview

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
)

// As many plans as there are places are made at once; another one waits its turn for a while. A server that only reads makes none.
func TestServedPlansAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := connection.ServiceName{Application: "shop", Service: "web"}
		s := NewServed()
		for range maxServed {
			s.places <- struct{}{}
		}
		begun := time.Now()
		_, err := s.Release(t.Context(), nil, read.Store{}, n, "v8", true)
		require.ErrorIs(t, err, ErrBusy)
		require.Equal(t, servedPatience, time.Since(begun))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.Release(gone, nil, read.Store{}, n, "v8", true)
		require.ErrorIs(t, err, ErrBusy)
		require.Len(t, s.places, maxServed)

		s = nil
		_, err = s.Release(t.Context(), nil, read.Store{}, n, "v8", true)
		require.ErrorIs(t, err, ErrNotServed)
	})
}
