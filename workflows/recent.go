package workflows

import (
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// recent is the part of the status of a Runtime or an Installation about actions of people: the newest lines of its audit trail, whether
// the store has them already or not.
type recent struct {
	Recent []entities.AuditLine `json:"recent,omitempty"`
}

// maxRecent is how many lines it has at most.
const maxRecent = 50

// recall adds the lines that were noted since the last call.
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
