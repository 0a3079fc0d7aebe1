package workflows

import (
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// recentAudit is the part of the status of a Runtime or an Installation about actions of people: the newest lines of its audit trail,
// whether the store has them already or not.
type recentAudit struct {
	Recent []entities.AuditEntry `json:"recent,omitempty"`
}

// maxRecent is how many lines it has at most.
const maxRecent = 50

// addNew adds the lines that were recorded since the last call.
func (r *recentAudit) addNew(d *state.Mailbox) {
	seen := int64(0)
	if n := len(r.Recent); n > 0 {
		seen = r.Recent[n-1].N
	}
	later := slices.IndexFunc(d.Audit, func(l entities.AuditEntry) bool { return l.N > seen })
	if later >= 0 {
		r.Recent = entities.KeepLast(append(r.Recent, d.Audit[later:]...), maxRecent)
	}
}
