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

// knownRules are the rules of the installation as a workflow last read them.
type knownRules struct {
	Rules protocol.Rules `json:"rules,omitzero"`
}

func (k *knownRules) rules() (*entities.Identity, []entities.Grant, bool) {
	return k.Rules.Identity, k.Rules.Grants, k.Rules.Number > 0
}

// setRules sets the rules that a run starts with.
func (k *knownRules) setRules(r protocol.Rules) { k.Rules = r }

// loadKnownRules reads the rules.
func (s *shell) loadKnownRules(ctx workflow.Context, known *knownRules) error {
	var now protocol.Rules
	err := s.callStore(ctx, protocol.ActivityRules, protocol.RulesRequest{}, &now)
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
	current := i.state.Rules
	if entities.DigestOf(current.Rules) == entities.DigestOf(r.Rules) {
		return protocol.Answer{Message: fmt.Sprintf("rules %d are the same; nothing changed", current.Number)}, nil
	}
	next := protocol.Rules{Number: current.Number + 1, Rules: r.Rules, At: i.now(), By: who}
	var recorded protocol.Rules
	if err := i.callStore(ctx, protocol.ActivityConfigure, next, &recorded); err != nil {
		return nil, err
	}
	i.state.Rules = recorded
	if entities.DigestOf(recorded.Rules) != entities.DigestOf(next.Rules) {
		return nil, asRefusal(fmt.Errorf("%s set rules %d in the meantime; review them first: converge admin rules", recorded.By.Name, recorded.Number))
	}
	text := fmt.Sprintf("rules %d are in force", recorded.Number)
	i.detectBaselineChange(current)
	if change := entities.BaselineChange(current.Baseline, recorded.Baseline); change != "" {
		text += "; baseline: " + change
	}
	i.recordAudit(entities.EventRules, &who, text, r.Reason)
	return protocol.Answer{Message: joinNotes(text, identityNote(r, who))}, nil
}
