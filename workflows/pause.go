package workflows

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// pauseState is what an application and a runtime remember of their pause (A16).
type pauseState struct {
	Pause *entities.Pause `json:"pause,omitempty"`
	// Ended is when the last pause that has ended had begun.
	Ended time.Time `json:"ended,omitzero"`
	// Announcing: services are still to be notified that it began or ended.
	Announcing bool `json:"announcing,omitempty"`
	// Unheard could not be notified of what all others know of it.
	Unheard unreached `json:"unheard,omitzero"`
}

// pauses holds the services of an application or a runtime, and announces that to them, by one activity at a
// time. A change that comes meanwhile waits until that one was stopped: announced in the wrong order, services would
// stay paused.
type pauses struct {
	*shell
	of      *pauseState
	scope   string
	request func() protocol.AnnouncePause // to whom
	hint    string                        // what else may be paused
	running bool
	present *entities.Pause // that is being announced
	stop    workflow.CancelFunc
}

// pause is what the verb of that name does, to all at once.
func (p *pauses) pause(r verb.Request, who entities.Who) (state.Effect, error) {
	if old := p.of.Pause; old != nil {
		return nil, fmt.Errorf("%s is %s already, by %s", p.name, old.Held(), old.By)
	}
	return func() string {
		p.of.Pause, p.of.Announcing = &entities.Pause{Scope: p.scope, By: who.Name, Reason: r.Reason, At: p.now(), Except: r.Except}, true
		p.note(entities.EventPause, &who, p.name+" paused", r.Reason)
		text := p.name + " is paused"
		if len(r.Except) > 0 {
			text += " but for " + strings.Join(r.Except, ", ")
		}
		return text + "; an apply in flight is left to finish"
	}, nil
}

// resume ends the pause.
func (p *pauses) resume(r verb.Request, who entities.Who) (state.Effect, error) {
	if p.of.Pause == nil {
		return nil, fmt.Errorf("%s is not paused%s", p.name, p.hint)
	}
	if p.of.Pause.Drain != nil {
		return nil, fmt.Errorf("%s is drained by %s: what has left comes back with turnup", p.name, p.of.Pause.By)
	}
	return func() string {
		p.of.Ended = p.of.Pause.At
		p.of.Pause, p.of.Announcing = nil, true
		p.note(entities.EventPause, &who, p.name+" resumed", r.Reason)
		return p.name + " goes on"
	}, nil
}

// announcement is the kind of trouble that a pause cannot be announced.
const announcement = "announcement"

// announce starts announcing the pause or its end, unless that is under way. A run that ends stops it: the next one
// begins it anew.
func (p *pauses) announce() {
	switch {
	case p.running && (p.drains() || p.present != p.of.Pause):
		p.stop()
		return
	case p.running || p.drains() || !p.of.Announcing && !p.of.Unheard.due(p.now()):
		return
	}
	r, what := p.toAnnounce()
	if !p.fits(&r) {
		return
	}
	ctx, stop := workflow.WithCancel(p.work)
	ctx = enduring(ctx, what+p.name)
	p.running, p.present, p.stop = true, p.of.Pause, stop
	future := workflow.ExecuteActivity(ctx, protocol.ActivityPause, r)
	p.await(func(ctx workflow.Context) {
		var answer protocol.AnnounceAnswer
		err := future.Get(ctx, &answer)
		p.running = false
		switch {
		case temporal.IsCanceledError(err):
		case err != nil: // its worker went away for over an hour: begin again
			p.trouble(announcement, "services are not notified of a pause yet: "+rootCause(err))
		case p.present == p.of.Pause:
			p.announced(answer.Unreached)
		}
	})
}

// toAnnounce is what services are told, and what that is for people.
func (p *pauses) toAnnounce() (r protocol.AnnouncePause, what string) {
	r, what = p.request(), "announce the pause of "
	r.Scope, r.Pause = p.scope, p.of.Pause
	if r.Pause == nil {
		r.Ended, what = p.of.Ended, "announce the end of the pause of "
	}
	if !p.of.Announcing && p.of.Unheard.More == 0 {
		r.Only = p.of.Unheard.Services
	}
	return r, what
}

// fits leaves the turns of a drain to the store, where they are too many for a payload. While the store does not take them, it is false.
func (p *pauses) fits(r *protocol.AnnouncePause) bool {
	if r.Pause == nil || r.Pause.Drain == nil {
		return true
	}
	pause, drain := *r.Pause, *r.Pause.Drain
	if len(entities.Fitting(drain.Turns, mostTurns)) == len(drain.Turns) {
		return true
	}
	if p.outages.open(theStore) {
		return false
	}
	packed, err := protocol.Pack(drain.Turns)
	if err == nil {
		err = p.fromStore(p.ctx, protocol.ActivitySpill, protocol.SpillRequest{Packed: packed}, &r.Turns)
	}
	if err != nil {
		p.backOff(theStore, err)
		return false
	}
	drain.Turns, pause.Drain, r.Pause = nil, &drain, &pause
	return true
}

// mostTurns is how many bytes of them go as they are.
const mostTurns = 24 << 10

// announced takes in that all services have heard, but for some.
func (p *pauses) announced(missed protocol.Unreached) {
	p.of.Announcing = false
	p.of.Unheard = p.of.Unheard.after(missed, p.now())
	if len(missed.Services) > 0 {
		p.trouble(announcement, p.of.Unheard.text("not notified of a pause or its end"))
	} else {
		p.clear(announcement)
	}
}

// tellsAgain is when services are told again that could not be; zero while some are being told.
func (p *pauses) tellsAgain() time.Time {
	if p.running || p.drains() {
		return time.Time{}
	}
	return p.of.Unheard.Next
}

// dateTime is how the Temporal UI's details write a moment: it is UTC.
const dateTime = time.DateTime + " MST"

// since is a pause in words, for the Temporal UI.
func (p *pauseState) since() string {
	return fmt.Sprintf("**%s by %s** since %s%s", p.Pause.Held(), explain.Plain(p.Pause.By), p.Pause.At.UTC().Format(dateTime), because(p.Pause.Reason))
}
