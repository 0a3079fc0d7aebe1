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

// Configure keeps rules of the installation, unless there are some of that number, and answers those that stand. How the checks
// of a baseline are evaluated is in the store before the rules that name them.
func (a *Activities) Configure(ctx context.Context, r protocol.Rules) (protocol.Rules, error) {
	if r.Baseline != nil {
		for _, c := range r.Baseline.Checks {
			if _, err := a.Store.PutCheck(ctx, c.How); err != nil {
				return protocol.Rules{}, damage(err)
			}
		}
	}
	stands, err := a.Store.CreateRules(ctx, r)
	return stands, damage(err)
}
