package store

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Who lists while another worker removes what is old gets what is left, and no error.
func TestListWhileFilesAreRemoved(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir())
	require.NoError(t, err)
	for round := range 20 {
		var keys []string
		for n := range 50 {
			keys = append(keys, fmt.Sprintf("tokens/%d/%02d", round, n))
			require.NoError(t, s.blobs.write(t.Context(), keys[n], []byte("x")))
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, key := range keys {
				assert.NoError(t, s.blobs.remove(t.Context(), key))
			}
		}()
		for removed := false; !removed; {
			select {
			case <-done:
				removed = true
			default:
			}
			_, err := s.blobs.list(t.Context(), "tokens/")
			require.NoError(t, err)
		}
	}
}
