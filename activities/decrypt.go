package activities

import (
	"errors"
	"fmt"

	"github.com/converge-engine/converge/intent/sops"
	"github.com/converge-engine/converge/runtimes"
)

// decrypt decrypts the objects of an instance that SOPS encrypted, for a runtime that is about to see them and for nobody
// else. Where a key is missing the error is not permanent: a worker may get it.
func (a *Activities) decrypt(in *runtimes.Instance) error {
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
