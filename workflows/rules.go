package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
)

// This file holds the rules for objects that belong to no application (F4): who may do what with a runtime, and with everything. The store
// has the rules. They are read before each verb. While the store does not answer, the last known rules apply; as long as none are known, only
// what must not wait is carried out.

// knownRules are the rules of the installation as a workflow last read them.
type knownRules struct {
	Rules protocol.Rules `json:"rules,omitzero"`
	// Read: they were read from the store. Without that, no rules do not mean that there are none.
	Read bool `json:"rulesRead,omitempty"`
}

func (k *knownRules) rules() (*entities.Identity, []entities.Grant, bool) {
	return k.Rules.Identity, k.Rules.Grants, k.Rules.Number > 0
}

// setRules sets the rules that a run starts with.
func (k *knownRules) setRules(r protocol.Rules) { k.Rules, k.Read = r, true }

// loadKnownRules reads the rules. An urgent request does not wait for a store that does not answer.
func (s *shell) loadKnownRules(ctx workflow.Context, known *knownRules, urgent bool) error {
	now, err := s.readRules(ctx, !known.Read && !urgent)
	switch {
	case err == nil:
		known.setRules(now)
	case isStoreError(err) && (known.Read || urgent):
	case known.Rules.Number == 0: // damaged: rules exist; or never read
		return err
	}
	return nil
}

// readRules reads the rules of the installation. If required, the caller of an update waits for a slow store outside the workflow task.
func (s *shell) readRules(ctx workflow.Context, required bool) (now protocol.Rules, err error) {
	err = s.callStore(ctx, protocol.ActivityRules, protocol.RulesRequest{}, &now)
	if required && isTimedOut(err) && workflow.GetCurrentUpdateInfo(ctx) != nil {
		err = s.callStore(outsideTask(ctx), protocol.ActivityRules, protocol.RulesRequest{}, &now)
	}
	return now, err
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
