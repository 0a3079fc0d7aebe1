package workflows

import (
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// recent is what a Runtime or an Installation shows in its status of what people did: the newest lines of its audit trail,
// whether the store has them by now or not.
type recent struct {
	Recent []entities.AuditLine `json:"recent,omitempty"`
}

// maxRecent bounds that.
const maxRecent = 50

// recall takes in what was noted since.
func (r *recent) recall(d *state.Desk) {
	seen := int64(0)
	if n := len(r.Recent); n > 0 {
		seen = r.Recent[n-1].N
	}
	later := slices.IndexFunc(d.Audit, func(l entities.AuditLine) bool { return l.N > seen })
	if later >= 0 {
		r.Recent = entities.KeepLast(append(r.Recent, d.Audit[later:]...), maxRecent)
	}
}
