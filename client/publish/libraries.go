package publish

import (
	"fmt"

	"github.com/converge-engine/converge/intent/incarnation"
)

// checkLibraries refuses a library whose content differs from the newest incarnation under the same version: the store was tampered with. A
// library that is read from a directory may change until it is published.
func (p *publication) checkLibraries(before *incarnation.Incarnation) error {
	if before == nil {
		return nil
	}
	for _, now := range p.imported {
		for _, library := range before.Imports() {
			if now.Path == "" && library.Name == now.Name && library.Version == now.Version && library.Digest != now.Digest {
				return fmt.Errorf("library %s %d had the digest %s in the newest incarnation, and has %s in the store now; publish it under another version",
					now.Name, now.Version, library.Digest, now.Digest)
			}
		}
	}
	return nil
}
