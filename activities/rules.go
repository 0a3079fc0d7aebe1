package activities

import (
	"context"

	"github.com/converge-engine/converge/entities/protocol"
)

// Rules answers the rules of the installation (F4). That they are damaged is told apart from a store that does not answer: then
// there are some.
func (a *Activities) Rules(ctx context.Context, _ protocol.RulesRequest) (protocol.Rules, error) {
	rules, err := a.Store.Rules(ctx)
	return rules, damage(err)
}

// Configure keeps rules of the installation, unless there are some of that number, and answers those that stand.
func (a *Activities) Configure(ctx context.Context, r protocol.Rules) (protocol.Rules, error) {
	stands, err := a.Store.CreateRules(ctx, r)
	return stands, damage(err)
}
