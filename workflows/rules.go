package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
)

// This file holds the rules for objects that belong to no application (F4): who may do what with a runtime, and with everything. The store
// has the rules. They are read before each verb. While the store does not answer, the last known rules apply.

// rulesKnown are the rules of the installation as a workflow last read them.
type rulesKnown struct {
	Rules protocol.Rules `json:"rules,omitzero"`
}

func (k *rulesKnown) rules() (*entities.Identity, []entities.Grant, bool) {
	return k.Rules.Identity, k.Rules.Grants, k.Rules.Number > 0
}

// knows sets the rules that a run starts with.
func (k *rulesKnown) knows(r protocol.Rules) { k.Rules = r }

// consultRules reads the rules.
func (s *shell) consultRules(ctx workflow.Context, known *rulesKnown) error {
	var now protocol.Rules
	err := s.fromStore(ctx, protocol.ActivityRules, protocol.RulesRequest{}, &now)
	switch {
	case err == nil:
		known.Rules = now
	case known.Rules.Number == 0 && !isStoreError(err): // damaged: rules exist
		return err
	}
	return nil
}

// configure sets the rules. The previous rules have already authorized this caller.
func (i *installation) configure(ctx workflow.Context, r verb.Request, who entities.Who) (any, error) {
	held := i.state.Rules
	if entities.DigestOf(held.Rules) == entities.DigestOf(r.Rules) {
		return protocol.Answer{Message: fmt.Sprintf("rules %d are the same; nothing changed", held.Number)}, nil
	}
	next := protocol.Rules{Number: held.Number + 1, Rules: r.Rules, At: i.now(), By: who}
	var stands protocol.Rules
	if err := i.fromStore(ctx, protocol.ActivityConfigure, next, &stands); err != nil {
		return nil, err
	}
	i.state.Rules = stands
	if entities.DigestOf(stands.Rules) != entities.DigestOf(next.Rules) {
		return nil, refused(fmt.Errorf("%s set rules %d in the meantime; review them first: converge admin rules", stands.By.Name, stands.Number))
	}
	text := fmt.Sprintf("rules %d are in force", stands.Number)
	i.compare(held)
	if change := entities.BaselineChange(held.Baseline, stands.Baseline); change != "" {
		text += "; baseline: " + change
	}
	i.note(entities.EventRules, &who, text, r.Reason)
	return protocol.Answer{Message: joined(text, replaced(r, who))}, nil
}
