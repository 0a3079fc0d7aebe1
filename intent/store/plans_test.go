package store

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// interceptor is a store in which something happens right before what is written.
type interceptor struct {
	blobs
	hook func()
}

func (b *interceptor) write(ctx context.Context, key string, data []byte) error {
	b.intercept()
	return b.blobs.write(ctx, key, data)
}

func (b *interceptor) create(ctx context.Context, key string, data []byte) (bool, error) {
	b.intercept()
	return b.blobs.create(ctx, key, data)
}

func (b *interceptor) intercept() {
	if happens := b.hook; happens != nil {
		b.hook = nil
		happens()
	}
}

// Two workers mark incarnations at once: the higher one stands, whoever is last.
func TestPlanMarkNeverDecreases_E13(t *testing.T) {
	for name, location := range map[string]string{"directory": t.TempDir(), "bucket": memoryURL} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), location)
			require.NoError(t, err)
			defer s.Close()
			mark := func(n int64) {
				require.NoError(t, s.MarkPlan(t.Context(), "home", "live", PlanStarted, n))
			}
			mark(3)
			raced := &interceptor{blobs: s.blobs, hook: func() { mark(12) }}
			s.blobs = raced
			mark(5)
			mark(4)
			require.Nil(t, raced.hook)
			marked, err := s.PlanMarked(t.Context(), "home", "live", PlanStarted)
			require.NoError(t, err)
			require.Equal(t, int64(12), marked)
		})
	}
}
