package store

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// between is a store in which something happens right before what is written.
type between struct {
	blobs
	happens func()
}

func (b *between) write(ctx context.Context, key string, data []byte) error {
	b.now()
	return b.blobs.write(ctx, key, data)
}

func (b *between) create(ctx context.Context, key string, data []byte) (bool, error) {
	b.now()
	return b.blobs.create(ctx, key, data)
}

func (b *between) now() {
	if happens := b.happens; happens != nil {
		b.happens = nil
		happens()
	}
}

// Two workers mark incarnations at once: the higher one stands, whoever is last.
func TestPlanMarkIsNotTakenBack_E13(t *testing.T) {
	for name, location := range map[string]string{"directory": t.TempDir(), "bucket": memoryURL} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), location)
			require.NoError(t, err)
			defer s.Close()
			mark := func(n int64) {
				require.NoError(t, s.MarkPlan(t.Context(), "home", "live", PlanNewest, n))
			}
			mark(3)
			raced := &between{blobs: s.blobs, happens: func() { mark(12) }}
			s.blobs = raced
			mark(5)
			mark(4)
			require.Nil(t, raced.happens)
			stands, err := s.PlanMarked(t.Context(), "home", "live", PlanNewest)
			require.NoError(t, err)
			require.Equal(t, int64(12), stands)
		})
	}
}
