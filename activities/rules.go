package activities

import (
	"context"

	"github.com/converge-engine/converge/entities/protocol"
)

// Rules returns the rules of the installation (F4). Damaged rules are distinguished from an unavailable store, because they mean that
// rules exist.
func (a *Activities) Rules(ctx context.Context, _ protocol.RulesRequest) (protocol.Rules, error) {
	rules, err := a.Store.Rules(ctx)
	return rules, damageError(err)
}

// Configure stores rules of the installation, unless there are rules with that number, and returns the stored ones. The definitions of a
// baseline's checks are stored before the rules that refer to them.
func (a *Activities) Configure(ctx context.Context, r protocol.Rules) (protocol.Rules, error) {
	if r.Baseline != nil {
		for _, c := range r.Baseline.Checks {
			if _, err := a.Store.PutCheck(ctx, c.How); err != nil {
				return protocol.Rules{}, damageError(err)
			}
		}
	}
	stored, err := a.Store.CreateRules(ctx, r)
	return stored, damageError(err)
}
