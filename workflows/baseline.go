package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
)

// This file holds what the installation demands of all applications (G2): that services look once it is otherwise, and who may
// publish an application that is not there yet.

// spreadState is what an installation remembers of services that are still to look at its baseline.
type spreadState struct {
	// Spread is the number of the rules whose baseline they are to look at; 0: all have been told.
	Spread int64 `json:"spread,omitempty"`
	// Behind could not be told.
	Behind unreached `json:"behind,omitzero"`
}

// spreading is the kind of trouble that services cannot be told of a baseline.
const spreading = "baseline"

// compare has services look once the rules in force demand something else of applications than those before.
func (i *installation) compare(before protocol.Rules) {
	now := i.state.Rules
	if entities.DigestOf(before.Baseline) != entities.DigestOf(now.Baseline) ||
		now.Baseline != nil && entities.DigestOf(before.Identity) != entities.DigestOf(now.Identity) {
		i.state.Spread = max(now.Number, 1) // no rules are others, too
	}
}

// spread has services look at the baseline that is in force, unless that is under way. A newer one begins anew, as does the
// next run.
func (i *installation) spread() {
	s := &i.state.spreadState
	switch {
	case i.telling && (i.drains() || i.told != s.Spread && s.Spread != 0):
		i.stopTelling()
		return
	case i.telling || i.drains() || s.Spread == 0 && !s.Behind.due(i.now()):
		return
	}
	request := protocol.BaselineRequest{Rules: i.state.Rules.Number}
	if s.Spread == 0 && s.Behind.More == 0 {
		request.Only = s.Behind.Services
	}
	ctx, stop := workflow.WithCancel(i.work)
	ctx = enduring(ctx, fmt.Sprintf("have services look at the baseline of rules %d", request.Rules))
	i.telling, i.told, i.stopTelling = true, s.Spread, stop
	future := workflow.ExecuteActivity(ctx, protocol.ActivityBaseline, request)
	i.await(func(ctx workflow.Context) {
		var answer protocol.AnnounceAnswer
		err := future.Get(ctx, &answer)
		i.telling = false
		switch {
		case temporal.IsCanceledError(err):
		case err != nil: // its worker went away for over an hour: begin again
			i.trouble(spreading, "services do not know the baseline yet: "+rootCause(err))
		case i.told == s.Spread:
			i.spreadTo(answer.Unreached)
		}
	})
}

// spreadTo takes in that all services have been told, but for some.
func (i *installation) spreadTo(missed protocol.Unreached) {
	s := &i.state.spreadState
	s.Spread, s.Behind = 0, s.Behind.after(missed, i.now())
	if len(missed.Services) > 0 {
		i.trouble(spreading, s.Behind.text("not told of another baseline"))
	} else {
		i.clear(spreading)
	}
}

// looksAgain is when services are told again that could not be; zero while some are being told.
func (i *installation) looksAgain() time.Time {
	if i.telling || i.drains() {
		return time.Time{}
	}
	return i.state.Behind.Next
}

// ruledElsewhere: whoever publishes an application that was never published is judged by the rules of the installation.
func (a *application) ruledElsewhere(row *verb.Row) bool {
	return row.Name == protocol.Publish && a.newest().Number == 0
}

// consult asks for them. Without them nothing is published: a store that does not answer could not take a publication either.
func (a *application) consult(ctx workflow.Context) error {
	var now protocol.Rules
	if err := a.fromStore(ctx, protocol.ActivityRules, protocol.RulesRequest{}, &now); err != nil {
		return err
	}
	a.founding = &now
	return nil
}

// mayBegin refuses who may not publish an application that was never published.
func (a *application) mayBegin(ctx workflow.Context, r verb.Request, who entities.Who) error {
	row := verb.Find(a.verbs, protocol.Publish)
	if !a.ruledElsewhere(row) {
		return nil
	}
	if a.founding == nil { // a signal that was taken in by the run before
		if err := a.consult(ctx); err != nil {
			return err
		}
	}
	if a.founding == nil { // it goes on as it began
		return nil
	}
	if err := a.authorize(row, r, who); err != nil {
		return refused(fmt.Errorf("%w; %s was never published, and the rules of the installation say who may", err, a.name))
	}
	return nil
}
