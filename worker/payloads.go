package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/converge-engine/converge/intent/codec"
	"github.com/converge-engine/converge/intent/store"
)

// lookForKeys is how often a worker reads the keys that encrypt payloads.
const lookForKeys = 30 * time.Second

// readable refuses a worker without the key that encrypted payloads last: the worker would refuse or fail payloads that it cannot decrypt.
// It also gives the codec the known keys.
func readable(ctx context.Context, c *codec.Codec, s *store.Store) error {
	known, last, err := s.PayloadKeys(ctx)
	if err != nil {
		return err
	}
	c.Know(known)
	if last != "" && !c.Has(last) {
		return fmt.Errorf("payloads of this installation are encrypted with the key %s, which this worker does not have; set CONVERGE_STORE_KEY [no-payload-key]", last)
	}
	return nil
}

// announce records which key encrypts payloads from now on, before the first use.
func announce(ctx context.Context, c *codec.Codec, s *store.Store) error {
	if c.Encrypts() == "" {
		return nil
	}
	return s.PutPayloadKey(ctx, c.Encrypts(), time.Now())
}

// lookedFor adds keys to a codec that other workers start to use, until the context ends. Missing keys are logged.
func lookedFor(ctx context.Context, c *codec.Codec, s *store.Store, log *slog.Logger) {
	ticker := time.NewTicker(lookForKeys)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		known, last, err := s.PayloadKeys(ctx)
		if err != nil {
			continue // it is retried, and other parts report an unavailable store
		}
		c.Know(known)
		if last != "" && !c.Has(last) {
			log.Error("payloads are encrypted with a key that this worker does not have, so every workflow fails; set CONVERGE_STORE_KEY", "key", last)
		}
	}
}
