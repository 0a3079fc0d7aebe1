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

// This file holds the baseline that the installation requires of all applications (G2): it makes services check a changed baseline, and it
// decides who may publish a new application.

// spreadState is the part of an installation's state about services that have not checked the baseline yet.
type spreadState struct {
	// Spread is the number of the rules with the baseline to check; 0 if all services were notified.
	Spread int64 `json:"spread,omitempty"`
	// Behind are the services that could not be notified.
	Behind unreached `json:"behind,omitzero"`
}

// spreading is the kind of trouble in which services cannot be notified of a baseline.
const spreading = "baseline"

// compare schedules a check by the services if the baseline of the current rules differs from the one before.
func (i *installation) compare(before protocol.Rules) {
	now := i.state.Rules
	if entities.DigestOf(before.Baseline) != entities.DigestOf(now.Baseline) ||
		now.Baseline != nil && entities.DigestOf(before.Identity) != entities.DigestOf(now.Identity) {
		i.state.Spread = max(now.Number, 1) // removed rules are a change too
	}
}

// spread notifies services of the current baseline, unless that is in progress. A newer baseline restarts it, and so does the next run.
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
	ctx = enduring(ctx, fmt.Sprintf("notify services of the baseline of rules %d", request.Rules))
	i.telling, i.told, i.stopTelling = true, s.Spread, stop
	future := workflow.ExecuteActivity(ctx, protocol.ActivityBaseline, request)
	i.await(func(ctx workflow.Context) {
		var answer protocol.AnnounceAnswer
		err := future.Get(ctx, &answer)
		i.telling = false
		switch {
		case temporal.IsCanceledError(err):
		case err != nil: // its worker was gone for over an hour: start again
			i.trouble(spreading, "services are not notified of the baseline yet: "+rootCause(err))
		case i.told == s.Spread:
			i.spreadTo(answer.Unreached)
		}
	})
}

// spreadTo records that all services were notified except those in missed.
func (i *installation) spreadTo(missed protocol.Unreached) {
	s := &i.state.spreadState
	s.Spread, s.Behind = 0, s.Behind.after(missed, i.now())
	if len(missed.Services) > 0 {
		i.trouble(spreading, s.Behind.text("not notified of a changed baseline"))
	} else {
		i.clear(spreading)
	}
}

// looksAgain is the time of the next attempt for the services that could not be notified; zero while a notification runs.
func (i *installation) looksAgain() time.Time {
	if i.telling || i.drains() {
		return time.Time{}
	}
	return i.state.Behind.Next
}

// ruledElsewhere is true for the first publication of an application: the rules of the installation decide about it.
func (a *application) ruledElsewhere(row *verb.Row) bool {
	return row.Name == protocol.Publish && a.newest().Number == 0
}

// consult reads these rules. Without them nothing is published: a store that does not answer could not record a publication either.
func (a *application) consult(ctx workflow.Context) error {
	var now protocol.Rules
	if err := a.fromStore(ctx, protocol.ActivityRules, protocol.RulesRequest{}, &now); err != nil {
		return err
	}
	a.founding = &now
	return nil
}

// mayBegin refuses a caller who may not publish a new application.
func (a *application) mayBegin(ctx workflow.Context, r verb.Request, who entities.Who) error {
	row := verb.Find(a.verbs, protocol.Publish)
	if !a.ruledElsewhere(row) {
		return nil
	}
	if a.founding == nil { // a signal that the previous run received
		if err := a.consult(ctx); err != nil {
			return err
		}
	}
	if err := a.authorize(row, r, who); err != nil {
		return refused(fmt.Errorf("%w; %s was never published, so the rules of the installation apply", err, a.name))
	}
	return nil
}
