package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/converge-engine/converge/intent/codec"
	"github.com/converge-engine/converge/intent/store"
)

// payloadKeyInterval is how often a worker reads the keys that encrypt payloads.
const payloadKeyInterval = 30 * time.Second

// checkPayloadKey refuses a worker without the key that encrypted payloads last: the worker would refuse or fail payloads that it cannot
// decrypt. It also gives the codec the known keys.
func checkPayloadKey(ctx context.Context, c *codec.Codec, s *store.Store) error {
	known, last, err := s.PayloadKeys(ctx)
	if err != nil {
		return err
	}
	c.SetKnown(known)
	if last != "" && !c.Has(last) {
		return fmt.Errorf("payloads of this installation are encrypted with the key %s, which this worker does not have; set CONVERGE_STORE_KEY [no-payload-key]", last)
	}
	return nil
}

// recordPayloadKey records which key encrypts payloads from now on, before the first use.
func recordPayloadKey(ctx context.Context, c *codec.Codec, s *store.Store) error {
	if c.Encrypts() == "" {
		return nil
	}
	return s.PutPayloadKey(ctx, c.Encrypts(), time.Now())
}

// refreshPayloadKeys adds keys to a codec that other workers start to use, until the context ends. Missing keys are logged.
func refreshPayloadKeys(ctx context.Context, c *codec.Codec, s *store.Store, log *slog.Logger) {
	ticker := time.NewTicker(payloadKeyInterval)
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
		c.SetKnown(known)
		if last != "" && !c.Has(last) {
			log.Error("payloads are encrypted with a key that this worker does not have, so every workflow fails; set CONVERGE_STORE_KEY", "key", last)
		}
	}
}
