package activities

import (
	"context"
	"fmt"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/loosen"
	"github.com/converge-engine/converge/intent/store"
)

// maxLoosened limits the entries per service.
const maxLoosened = 100

// loosened lists the requirements that a spec loosens compared with the spec of a digest. compared is false if no comparison was
// requested or that spec no longer exists.
func (a *Activities) loosened(ctx context.Context, before string, spec *entities.Spec) (all []entities.Loosening, compared bool, err error) {
	if before == "" {
		return nil, false, nil
	}
	old, err := a.Store.Spec(ctx, before)
	if store.IsNotFound(err) || store.IsDamaged(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	check, extension, failed := a.Store.Definitions(ctx)
	all = loosen.Rules(&old, spec, loosen.Definitions{Check: check, Extension: extension})
	if more := len(all) - maxLoosened; more > 0 {
		all = append(all[:maxLoosened:maxLoosened], entities.Loosening{Text: fmt.Sprintf("%d more rules are looser", more)})
	}
	return all, *failed == nil, *failed
}
