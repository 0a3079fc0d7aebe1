package activities

import (
	"context"

	"github.com/converge-engine/converge/entities/protocol"
)

// Rules answers the rules of the installation (F4).
func (a *Activities) Rules(ctx context.Context, _ protocol.RulesRequest) (protocol.Rules, error) {
	return a.Store.Rules(ctx)
}

// Configure keeps rules of the installation, unless there are some of that number, and answers those that stand.
func (a *Activities) Configure(ctx context.Context, r protocol.Rules) (protocol.Rules, error) {
	return a.Store.CreateRules(ctx, r)
}
