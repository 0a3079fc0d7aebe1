package activities

import (
	"context"

	"github.com/converge-engine/converge/entities/protocol"
)

// partSize bounds what Restore answers at once, in bytes.
const partSize = 44 << 10

// Spill keeps state that is too large to be carried from one run to the next.
func (a *Activities) Spill(ctx context.Context, r protocol.SpillRequest) (string, error) {
	return a.Store.PutState(ctx, r.Packed)
}

// Restore reads one part of it back.
func (a *Activities) Restore(ctx context.Context, r protocol.RestoreRequest) (protocol.RestoreAnswer, error) {
	packed, err := a.Store.State(ctx, r.Digest)
	if err != nil {
		return protocol.RestoreAnswer{}, err
	}
	end := min(r.Offset+partSize, len(packed))
	if r.Offset > end {
		return protocol.RestoreAnswer{}, refuse("carried state %s has %d bytes; none at %d", r.Digest, len(packed), r.Offset)
	}
	return protocol.RestoreAnswer{Part: packed[r.Offset:end], Total: len(packed)}, nil
}
