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

// baselineState is the part of an installation's state about services that have not checked the baseline yet.
type baselineState struct {
	// PendingRules is the number of the rules with the baseline to check; 0 if all services were notified.
	PendingRules int64 `json:"spread,omitempty"`
	// BaselineUnnotified are the services that could not be notified.
	BaselineUnnotified unreached `json:"behind,omitzero"`
}

// problemBaseline is the kind of the problem that services cannot be notified of a baseline.
const problemBaseline = "baseline"

// detectBaselineChange schedules a check by the services if the baseline of the current rules, or the address of the board, differs from the one
// before.
func (i *installation) detectBaselineChange(before protocol.Rules) {
	now := i.state.Rules
	if before.Board != now.Board || entities.DigestOf(before.Baseline) != entities.DigestOf(now.Baseline) ||
		now.Baseline != nil && entities.DigestOf(before.Identity) != entities.DigestOf(now.Identity) {
		i.state.PendingRules = max(now.Number, 1) // removed rules are a change too
	}
}

// notifyBaseline notifies services of the current baseline, unless that is in progress. A newer baseline restarts it, and so does the next
// run.
func (i *installation) notifyBaseline() {
	s := &i.state.baselineState
	switch {
	case i.baselineRunning && (i.blocksNewWork() || i.baselineNumber != s.PendingRules && s.PendingRules != 0):
		i.stopBaseline()
		return
	case i.baselineRunning || i.blocksNewWork() || s.PendingRules == 0 && !s.BaselineUnnotified.due(i.now()):
		return
	}
	request := protocol.BaselineRequest{Rules: i.state.Rules.Number}
	if s.PendingRules == 0 && s.BaselineUnnotified.More == 0 {
		request.Only = s.BaselineUnnotified.Services
	}
	ctx, stop := workflow.WithCancel(i.workCtx)
	ctx = withLongActivity(ctx, fmt.Sprintf("notify services of the baseline of rules %d", request.Rules))
	i.baselineRunning, i.baselineNumber, i.stopBaseline = true, s.PendingRules, stop
	future := workflow.ExecuteActivity(ctx, protocol.ActivityBaseline, request)
	i.trackOperation(func(ctx workflow.Context) {
		var answer protocol.AnnounceAnswer
		err := future.Get(ctx, &answer)
		i.baselineRunning = false
		switch {
		case temporal.IsCanceledError(err):
		case err != nil: // its worker was gone for over an hour: start again
			i.setProblem(problemBaseline, "services are not notified of the baseline yet: "+rootCause(err))
		case i.baselineNumber == s.PendingRules:
			i.recordBaselineNotified(answer.Unreached)
		}
	})
}

// recordBaselineNotified records that all services were notified except those in missed.
func (i *installation) recordBaselineNotified(missed protocol.Unreached) {
	s := &i.state.baselineState
	s.PendingRules, s.BaselineUnnotified = 0, s.BaselineUnnotified.after(missed, i.now())
	if len(missed.Services) > 0 {
		i.setProblem(problemBaseline, s.BaselineUnnotified.text("not notified of a changed baseline"))
	} else {
		i.clearProblem(problemBaseline)
	}
}

// nextBaselineAttempt is the time of the next attempt for the services that could not be notified; zero while a notification runs.
func (i *installation) nextBaselineAttempt() time.Time {
	if i.baselineRunning || i.blocksNewWork() {
		return time.Time{}
	}
	return i.state.BaselineUnnotified.Next
}

// usesExternalRules is true for the first publication of an application: the rules of the installation decide about it.
func (a *application) usesExternalRules(row *verb.Row) bool {
	return row.Name == protocol.Publish && a.newest().Number == 0
}

// loadRules reads these rules. Without them nothing is published: a store that does not answer could not record a publication either. A
// caller of an update waits for a slow store outside the workflow task.
func (a *application) loadRules(ctx workflow.Context, _ bool) error {
	now, err := a.readRules(ctx, true)
	if err != nil {
		return err
	}
	a.installationRules = &now
	return nil
}

// authorizeFirstPublication refuses a caller who may not publish a new application.
func (a *application) authorizeFirstPublication(ctx workflow.Context, r verb.Request, who entities.Who) error {
	row := verb.Find(a.verbs, protocol.Publish)
	if !a.usesExternalRules(row) {
		return nil
	}
	if a.installationRules == nil { // a signal that the previous run received
		if err := a.loadRules(ctx, false); err != nil {
			return err
		}
	}
	if err := a.authorize(row, r, who); err != nil {
		return asRefusal(fmt.Errorf("%w; %s was never published, so the rules of the installation apply", err, a.name))
	}
	return nil
}
