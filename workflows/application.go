package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// maxIncarnations is how many of the newest incarnations an Application remembers itself.
const maxIncarnations = 50

// Application is the life of one application: it numbers incarnations, tells services about them, and
// holds all of them where they are (a pause) or at an incarnation (a pin).
//
// Invariant: numbers only grow, an incarnation never changes (D5), and every service whose spec
// differs from what it was last told is told, however often a worker dies on the way: telling is
// one resumable activity from the manifest that all know to the one that they should.
func Application(ctx workflow.Context, in protocol.ApplicationInput) error {
	a := &application{ctx: ctx, name: in.Application, state: in.State}
	if a.state == nil {
		a.state = &protocol.ApplicationState{}
	}
	a.holds = holds{ctx: ctx, ended: a.holdEnded}
	if err := a.listen(); err != nil {
		return err
	}
	for {
		a.collect()
		a.woken = false
		a.carryOut()
		workflow.SetCurrentDetails(ctx, a.details())
		if a.ending() && a.atRest() {
			a.storeTrail()
			if a.collect(); a.atRest() {
				return workflow.NewContinueAsNewError(ctx, protocol.ApplicationWorkflow,
					protocol.ApplicationInput{Application: a.name, State: a.state})
			}
			continue
		}
		if err := workflow.Await(ctx, a.hasNews); err != nil {
			return err
		}
	}
}

type application struct {
	ctx   workflow.Context
	name  string
	state *protocol.ApplicationState
	woken bool

	telling     bool
	tellingOf   told // what is being told
	stopTelling workflow.CancelFunc
	holds       holds
	storing     bool      // audit lines are on their way to the store
	retryAt     time.Time // when the store is tried again with them
}

func (a *application) hasNews() bool {
	return a.woken || len(workflow.GetUnhandledSignalNames(a.ctx)) > 0
}

func (a *application) ending() bool { return workflow.GetInfo(a.ctx).GetContinueAsNewSuggested() }

func (a *application) atRest() bool {
	return !a.telling && !a.holds.running && !a.storing && workflow.AllHandlersFinished(a.ctx)
}

// carryOut tells services what they do not know yet, and keeps the audit trail.
func (a *application) carryOut() {
	a.tell()
	switch {
	case a.ending():
		a.holds.end()
	case a.state.Untold:
		a.holds.tell(protocol.HoldRequest{
			Application: a.name, Manifest: a.state.Told,
			HoldSignal: protocol.HoldSignal{Scope: scopeApplication, Pause: a.state.Pause},
		})
	}
	a.keepTrail()
}

// scopeApplication is the scope of a pause of the whole application.
const scopeApplication = "application"

func (a *application) status() (protocol.ApplicationStatus, error) {
	return protocol.ApplicationStatus{
		Schema: "converge.application/v1", Application: a.name, Newest: a.newest().Number, Store: a.state.Store,
		Origin: a.state.Origin, Manifest: a.state.Manifest, Told: a.state.Told, Notified: a.state.ToldNumber, Incarnations: a.state.Incarnations, Refused: a.state.Refused,
		Pin: a.state.Pin, Pause: a.state.Pause, Untold: a.state.Untold, Problem: a.state.Problem,
	}, nil
}

// details is what the Temporal UI shows of an application.
func (a *application) details() string {
	newest := a.newest()
	if newest.Number == 0 {
		return "nothing published yet"
	}
	text := fmt.Sprintf("**incarnation %d** by %s, %d services, from %s", newest.Number, newest.By, newest.Services, newest.Origin.Path)
	if p := a.state.Pause; p != nil {
		text += fmt.Sprintf("\n\n**paused by %s** since %s", p.By, p.At.UTC().Format(time.DateTime)) + because(p.Reason)
	}
	if p := a.state.Pin; p != nil {
		text += fmt.Sprintf("\n\n**pinned to incarnation %d** by %s since %s", p.Incarnation.Number, p.Who.Name, p.At.UTC().Format(time.DateTime)) + because(p.Reason)
		if newest.Number != p.Incarnation.Number {
			text += fmt.Sprintf("; incarnation %d waits", newest.Number)
		}
	}
	if a.wanted().number != a.state.ToldNumber {
		text += fmt.Sprintf("\n\ntelling services (all know incarnation %d)", a.state.ToldNumber)
	}
	if a.state.Problem != "" {
		text += "\n\n" + a.state.Problem
	}
	return text
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + inCell(reason)
}

// note keeps an audit line until the store has it; nobody in particular is Converge itself.
func (a *application) note(kind string, who *entities.Who, text, reason string) {
	a.state.AuditLines++
	a.state.Audit = keepNewest(append(a.state.Audit, entities.AuditLine{
		N: a.state.AuditLines, At: workflow.Now(a.ctx), Kind: kind, Who: who, Text: clip(text, maxRefusal), Reason: clip(reason, maxRefusal),
	}), entities.MaxAudit)
}

func keepNewest[T any](list []T, n int) []T {
	if len(list) <= n {
		return list
	}
	return append([]T(nil), list[len(list)-n:]...)
}
