package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/converge-engine/converge/intent/codec"
	"github.com/converge-engine/converge/intent/store"
)

// lookForKeys is how often a worker looks which keys payloads are encrypted with.
const lookForKeys = 30 * time.Second

// readable refuses a worker that lacks the key with which payloads were encrypted last: what it cannot read it would refuse or
// fail. It tells the codec which keys there are.
func readable(ctx context.Context, c *codec.Codec, s *store.Store) error {
	known, last, err := s.PayloadKeys(ctx)
	if err != nil {
		return err
	}
	c.Know(known)
	if last != "" && !c.Has(last) {
		return fmt.Errorf("payloads of this installation are encrypted, with the key %s, and this worker does not have it; name it by CONVERGE_STORE_KEY [no-payload-key]", last)
	}
	return nil
}

// announce says which key payloads are encrypted with from now on, before any is.
func announce(ctx context.Context, c *codec.Codec, s *store.Store) error {
	if c.Encrypts() == "" {
		return nil
	}
	return s.PutPayloadKey(ctx, c.Encrypts(), time.Now())
}

// lookedFor has a codec know of keys that others begin to use, until the context ends. Those that it lacks are named in the log.
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
			continue // it is tried again, and others say that the store is away
		}
		c.Know(known)
		if last != "" && !c.Has(last) {
			log.Error("payloads are encrypted with a key that this worker does not have: it fails at every workflow; name it by CONVERGE_STORE_KEY", "key", last)
		}
	}
}
