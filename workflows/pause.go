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

// pauseState is the part of the state of an application or a runtime about its pause (A16).
type pauseState struct {
	Pause *entities.Pause `json:"pause,omitempty"`
	// Ended is the start time of the last pause that has ended.
	Ended time.Time `json:"ended,omitzero"`
	// Announcing is set while services must still be notified of the start or end.
	Announcing bool `json:"announcing,omitempty"`
	// Unheard are the services that could not be notified.
	Unheard unreached `json:"unheard,omitzero"`
}

// pauses pauses the services of an application or a runtime, and announces that to them with one activity at a time. A change during an
// announcement waits until the activity has stopped: in the wrong order, services would stay paused.
type pauses struct {
	*shell
	of      *pauseState
	scope   string
	request func() protocol.AnnouncePause // with its audience
	hint    string                        // other things that may be paused, for error messages
	running bool
	present *entities.Pause // the pause that is being announced
	stop    workflow.CancelFunc
}

// pause pauses all services.
func (p *pauses) pause(r verb.Request, who entities.Who) (state.Effect, error) {
	if old := p.of.Pause; old != nil {
		return nil, fmt.Errorf("%s is %s already, by %s", p.name, old.Held(), old.By)
	}
	return func() string {
		p.of.Pause, p.of.Announcing = &entities.Pause{Scope: p.scope, By: who.Name, Reason: r.Reason, At: p.now(), Except: r.Except}, true
		p.note(entities.EventPause, &who, p.name+" paused", r.Reason)
		text := p.name + " is paused"
		if len(r.Except) > 0 {
			text += " except for " + strings.Join(r.Except, ", ")
		}
		return text + "; applies in flight will finish"
	}, nil
}

// resume ends the pause.
func (p *pauses) resume(r verb.Request, who entities.Who) (state.Effect, error) {
	if p.of.Pause == nil {
		return nil, fmt.Errorf("%s is not paused%s", p.name, p.hint)
	}
	if p.of.Pause.Drain != nil {
		return nil, fmt.Errorf("%s is drained by %s: its services return with turnup", p.name, p.of.Pause.By)
	}
	return func() string {
		p.of.Ended = p.of.Pause.At
		p.of.Pause, p.of.Announcing = nil, true
		p.note(entities.EventPause, &who, p.name+" resumed", r.Reason)
		return p.name + " is resumed"
	}, nil
}

// announcement is the kind of trouble in which a pause cannot be announced.
const announcement = "announcement"

// announce starts announcing the pause or its end, unless that is in progress. The end of a run stops it; the next run starts it again.
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
		case err != nil: // its worker was gone for over an hour: start again
			p.trouble(announcement, "services are not notified of a pause yet: "+rootCause(err))
		case p.present == p.of.Pause:
			p.announced(answer.Unreached)
		}
	})
}

// toAnnounce returns the announcement, and a description of it.
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

// fits moves the turns of a drain to the store if they are too large for a payload. It is false while the store does not accept them.
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

// mostTurns is the size in bytes up to which turns are sent inline.
const mostTurns = 24 << 10

// announced records that all services were notified except those in missed.
func (p *pauses) announced(missed protocol.Unreached) {
	p.of.Announcing = false
	p.of.Unheard = p.of.Unheard.after(missed, p.now())
	if len(missed.Services) > 0 {
		p.trouble(announcement, p.of.Unheard.text("not notified of a pause or its end"))
	} else {
		p.clear(announcement)
	}
}

// tellsAgain is the time of the next attempt for the services that could not be notified; zero while an announcement runs.
func (p *pauses) tellsAgain() time.Time {
	if p.running || p.drains() {
		return time.Time{}
	}
	return p.of.Unheard.Next
}

// dateTime is the format of times in the details of the Temporal UI, in UTC.
const dateTime = time.DateTime + " MST"

// since describes a pause for the Temporal UI.
func (p *pauseState) since() string {
	return fmt.Sprintf("**%s by %s** since %s%s", p.Pause.Held(), explain.Plain(p.Pause.By), p.Pause.At.UTC().Format(dateTime), because(p.Pause.Reason))
}
