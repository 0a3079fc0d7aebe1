package activities

import (
	"context"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/store"
)

// Library records that a library is published, unless its name and version are taken, and returns the recorded one. It first reads the
// library's content from the store with the same validation as an import (G1).
func (a *Activities) Library(ctx context.Context, r protocol.Library) (protocol.Library, error) {
	content, err := a.Store.LibraryContent(ctx, r.Digest)
	if err != nil {
		if store.IsNotFound(err) || store.IsDamaged(err) {
			err = refuse("content not found: %s; publish with: converge config library publish DIR", err)
		}
		return protocol.Library{}, err
	}
	doc, problems := config.ParseLibrary(content, "")
	switch {
	case len(problems) > 0:
		return protocol.Library{}, refuse("%s is not a library: %s", r.Digest, problems[0])
	case doc.Content.Digest() != r.Digest:
		return protocol.Library{}, refuse("%s contains more than a library", r.Digest)
	case doc.Content.Name != r.Name || int64(doc.Content.Version) != r.Version:
		return protocol.Library{}, refuse("%s is library %s %d, not %s %d", r.Digest, doc.Content.Name, doc.Content.Version, r.Name, r.Version)
	}
	stored, err := a.Store.CreateLibrary(ctx, r)
	return stored, damageError(err)
}
