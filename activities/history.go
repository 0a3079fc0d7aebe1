package activities

import (
	"context"

	"github.com/converge-engine/converge/entities/protocol"
)

// History keeps lines of an audit trail beyond Temporal's retention. Lines that are kept already are
// left as they are, so that it may be called again with them.
func (a *Activities) History(ctx context.Context, r protocol.HistoryRequest) error {
	return a.Store.AppendAudit(ctx, r.Application, r.Service, r.Lines)
}
