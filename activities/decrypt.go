package activities

import (
	"errors"
	"fmt"

	"github.com/converge-engine/converge/intent/sops"
	"github.com/converge-engine/converge/runtimes"
)

// decrypt decrypts the SOPS-encrypted objects of an instance, only for a runtime that is about to get them. A missing key is not a
// permanent error, because a worker may get it later.
func (a *Activities) decrypt(in *runtimes.Request) error {
	if in.Payload == nil || in.Payload.Bundled() == nil {
		return nil
	}
	objects := in.Payload.Bundled().Objects
	for i, raw := range objects {
		plain, err := a.Sops.Open(in.Application, raw)
		if err != nil {
			err = fmt.Errorf("objects of %s: %w", in.Owner, err)
			if errors.Is(err, sops.ErrNoKey) {
				return err
			}
			return runtimes.Permanent(err)
		}
		objects[i] = plain
	}
	return nil
}
