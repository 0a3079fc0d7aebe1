package workflows

import (
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// maxIncarnations is how many of the newest incarnations an Application keeps in its state.
const maxIncarnations = 50

func (a *application) judge(row *verb.Row, r verb.Request, who entities.Who) (state.Effect, error) {
	switch row.Name {
	case protocol.Publish:
		return nil, a.checkPublication(r.Publish)
	case protocol.Release:
		return nil, a.checkJoint(r)
	case protocol.Pause:
		return a.pause(r, who)
	case protocol.Resume:
		return a.resume(r, who)
	case protocol.Pin:
		return a.pin(r, who)
	case protocol.Unpin:
		return a.unpin(r, who)
	case protocol.Unmanage:
		return a.unmanage(r, who)
	case protocol.Manage:
		return a.manage(r, who)
	}
	return nil, fmt.Errorf("no such verb %q", row.Name)
}

// checkPublication validates a publication against the newest incarnation.
func (a *application) checkPublication(p protocol.PublishRequest) error {
	newest := a.newest()
	switch {
	case p.After != 0 && p.After != newest.Number:
		return fmt.Errorf("compiled against incarnation %d, but %d is newest; see: converge config diff %s %d %d",
			p.After, newest.Number, a.name, p.After, newest.Number)
	case newest.Number != 0 && p.Origin.Path != a.state.Origin.Path && !p.TakeOver:
		return fmt.Errorf("%s comes from %s, not from %s; to move it here: --take-over", a.name, a.state.Origin.Path, p.Origin.Path)
	case newest.Number != 0 && p.Store != a.state.Store && !p.TakeOver:
		return fmt.Errorf("%s is kept in the store %s, not in %s; to move it: --take-over", a.name, a.state.Store, p.Store)
	}
	return nil
}

// publish makes an incarnation the newest. Content equal to the newest gets no new number; older content that is published again does (D5).
// The newest is the one with the highest number.
//
// The rules in force until now decide whether it is allowed. The rules in force afterwards are those that the store has.
func (a *application) publish(ctx workflow.Context, r verb.Request, who entities.Who) (any, error) {
	p := r.Publish
	if err := a.checkPublication(p); err != nil {
		return nil, asRefusal(err)
	}
	first := a.newest().Number == 0
	moves := !first && (p.Origin.Path != a.state.Origin.Path || p.Store != a.state.Store)
	if err := a.authorizePublication(ctx, r, who, moves); err != nil {
		return nil, err
	}
	confirmed, err := a.confirm(ctx, p)
	if err == nil {
		err = a.checkRenamed(confirmed)
	}
	if err == nil {
		err = a.startMissing(p.Missing, confirmed.Services, who)
	}
	if err != nil {
		return nil, err
	}
	answer := protocol.PublishAnswer{Incarnation: a.newest().Number, Hash: p.Hash, Unchanged: p.Manifest == a.state.Manifest && len(p.Runtimes) == 0}
	if p.Hash != a.newest().Hash {
		answer.Incarnation, answer.Unchanged = max(a.newest().Number, confirmed.HighestIncarnation)+1, false
		a.state.Incarnations = entities.KeepLast(append(a.state.Incarnations, protocol.Incarnation{
			Number: answer.Incarnation, Hash: p.Hash, Manifest: p.Manifest, Services: confirmed.Services,
			At: a.now(), By: who.Name, Proven: who.Proven, Subject: who.Subject, Origin: p.Origin, Causes: p.Causes, Commits: p.Commits,
		}), maxIncarnations)
	}
	a.state.Recorded = min(a.state.Recorded, confirmed.HighestIncarnation) // the store may have been restored to an earlier state
	a.state.Manifest, a.state.Store, a.state.Origin = p.Manifest, p.Store, p.Origin
	a.state.Identity, a.state.Grants = confirmed.Identity, confirmed.Grants
	a.recordNames(confirmed)
	a.state.Notifications = confirmed.Notifications
	if !answer.Unchanged {
		text := strings.TrimSpace(fmt.Sprintf("incarnation %d from %s", answer.Incarnation, sourceText(p.Origin)))
		a.recordAudit(entities.EventPublish, &who, text+a.placementNote(first, moves)+runtimesNote(p.Runtimes), r.Reason)
	}
	if a.state.Pin != nil {
		answer.Pinned = a.state.Pin.Incarnation.Number
	}
	return answer, nil
}

// authorizePublication refuses a caller who may not publish a new application, or move an existing one.
func (a *application) authorizePublication(ctx workflow.Context, r verb.Request, who entities.Who, moves bool) error {
	if moves {
		return a.authorizeTakeOver(who)
	}
	return a.authorizeFirstPublication(ctx, r, who)
}

// placementNote describes whether the application is new or was moved.
func (a *application) placementNote(first, moves bool) string {
	switch {
	case moves:
		return ", taken over"
	case first && a.installationRules != nil && a.installationRules.Number > 0:
		return fmt.Sprintf(", a new application under rules %d", a.installationRules.Number)
	}
	return ""
}

// runtimesNote describes changes of runtimes, which are no part of an incarnation.
func runtimesNote(changes []string) (text string) {
	for _, change := range changes {
		text += "; " + change
	}
	return text
}

// startMissing starts the services again whose workflows the publication lists as gone.
func (a *application) startMissing(missing []string, services int, who entities.Who) error {
	if len(missing) > services {
		return asRefusal(fmt.Errorf(`"missing" names %d services, and there are %d`, len(missing), services))
	}
	for _, service := range missing {
		a.queueStart(service, "its workflow was gone when "+who.Name+" applied its configuration again")
	}
	return nil
}

// authorizeTakeOver refuses a caller who may not move the application to another directory or store.
func (a *application) authorizeTakeOver(who entities.Who) error {
	if err := entities.Authorize(a.state.Grants, protocol.TakeOver, nil, who); err != nil {
		return asRefusal(err)
	}
	if who.Proven || !a.state.Identity.RestrictedByGrant(a.state.Grants, protocol.TakeOver) {
		return nil
	}
	return asRefusal(errors.New("to take over the application needs proof of identity, since only certain callers may"))
}

// confirm reads from the store what the publication contains: the identity and grants among others.
func (a *application) confirm(ctx workflow.Context, p protocol.PublishRequest) (*protocol.ConfirmAnswer, error) {
	var answer protocol.ConfirmAnswer
	err := a.callStore(ctx, protocol.ActivityConfirm, protocol.ConfirmRequest{Application: a.name, Hash: p.Hash, Manifest: p.Manifest}, &answer)
	if err != nil {
		return nil, err
	}
	return &answer, nil
}

// sourceText describes the source of a configuration, for display.
func sourceText(o protocol.Origin) string {
	text := o.Path
	if o.Commit != "" {
		text += "@" + verb.Clip(o.Hex(), 12)
	}
	if o.Dirty {
		text += " (with uncommitted changes)"
	}
	return text
}

// pinnable returns the incarnation that a pin names.
func (a *application) pinnable(r verb.Request) (protocol.Incarnation, error) {
	wanted := a.incarnation(r.Incarnation)
	switch {
	case r.Incarnation < 1:
		return wanted, errors.New(`"incarnation" is missing; expected the number of one: ` + a.pinnableText())
	case wanted.Number == 0:
		return wanted, fmt.Errorf("no incarnation %d of %s: %s", r.Incarnation, a.name, a.pinnableText())
	}
	return wanted, nil
}

// pin keeps services at an incarnation regardless of later publications (D15).
func (a *application) pin(r verb.Request, who entities.Who) (state.Effect, error) {
	wanted, err := a.pinnable(r)
	switch {
	case err != nil:
		return nil, err
	case a.state.Pin != nil && a.state.Pin.Incarnation.Number == wanted.Number:
		return nil, fmt.Errorf("%s is pinned to incarnation %d already, by %s", a.name, wanted.Number, a.state.Pin.Who.Name)
	}
	return func() string {
		a.state.Pin = &protocol.ApplicationPin{Incarnation: wanted, Who: who, Reason: r.Reason, At: a.now()}
		message := fmt.Sprintf("%s pinned to incarnation %d", a.name, wanted.Number)
		a.recordAudit(entities.EventPin, &who, message, r.Reason)
		if newest := a.newest().Number; newest != wanted.Number {
			message += fmt.Sprintf("; %d and later incarnations wait until it is unpinned", newest)
		}
		return message
	}, nil
}

func (a *application) unpin(r verb.Request, who entities.Who) (state.Effect, error) {
	if a.state.Pin == nil {
		return nil, fmt.Errorf("%s is not pinned", a.name)
	}
	return func() string {
		a.state.Pin = nil
		a.recordAudit(entities.EventPin, &who, a.name+" unpinned", r.Reason)
		return fmt.Sprintf("%s moves to incarnation %d", a.name, a.newest().Number)
	}, nil
}

// pinnableText lists the incarnations that can be pinned, for error messages.
func (a *application) pinnableText() string {
	all := a.state.Incarnations
	switch n := len(all); {
	case n == 0:
		return "nothing was published yet"
	case n == 1:
		return fmt.Sprintf("there is %d", all[0].Number)
	default:
		return fmt.Sprintf("there are %d to %d", all[0].Number, all[n-1].Number)
	}
}

func (a *application) newest() protocol.Incarnation {
	if n := len(a.state.Incarnations); n > 0 {
		return a.state.Incarnations[n-1]
	}
	return protocol.Incarnation{}
}

// incarnation returns one of the newest incarnations, or the pinned one, by its number.
func (a *application) incarnation(number int64) protocol.Incarnation {
	for _, i := range a.state.Incarnations {
		if i.Number == number {
			return i
		}
	}
	if pin := a.state.Pin; pin != nil && pin.Incarnation.Number == number {
		return pin.Incarnation
	}
	return protocol.Incarnation{}
}
