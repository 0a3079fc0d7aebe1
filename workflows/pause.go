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
	// PauseUnnotified are the services that could not be notified.
	PauseUnnotified unreached `json:"unheard,omitzero"`
}

// pauses pauses the services of an application or a runtime, and announces that to them with one activity at a time. A change during an
// announcement waits until the activity has stopped: in the wrong order, services would stay paused.
type pauses struct {
	*shell
	pauseState      *pauseState
	scope           string
	request         func() protocol.AnnouncePause // with its audience
	resumeHint      string                        // other things that may be paused, for error messages
	activityRunning bool
	announcedPause  *entities.Pause // the pause that is being announced
	stopActivity    workflow.CancelFunc
}

// pause pauses all services.
func (p *pauses) pause(r verb.Request, who entities.Who) (state.Effect, error) {
	if old := p.pauseState.Pause; old != nil {
		return nil, fmt.Errorf("%s is %s already, by %s", p.name, old.StateText(), old.By)
	}
	return func() string {
		p.pauseState.Pause, p.pauseState.Announcing = &entities.Pause{Scope: p.scope, By: who.Name, Reason: r.Reason, At: p.now(), Except: r.Except}, true
		except := ""
		if len(r.Except) > 0 {
			except = " except for " + strings.Join(r.Except, ", ")
		}
		p.recordAudit(entities.EventPause, &who, p.name+" paused"+except, r.Reason)
		return p.name + " is paused" + except + "; applies in flight will finish"
	}, nil
}

// resume ends the pause.
func (p *pauses) resume(r verb.Request, who entities.Who) (state.Effect, error) {
	if p.pauseState.Pause == nil {
		return nil, fmt.Errorf("%s is not paused%s", p.name, p.resumeHint)
	}
	if p.pauseState.Pause.Drain != nil {
		return nil, fmt.Errorf("%s is drained by %s: its services return with restore", p.name, p.pauseState.Pause.By)
	}
	return func() string {
		p.pauseState.Ended = p.pauseState.Pause.At
		p.pauseState.Pause, p.pauseState.Announcing = nil, true
		p.recordAudit(entities.EventPause, &who, p.name+" resumed", r.Reason)
		return p.name + " is resumed"
	}, nil
}

// problemAnnouncement is the kind of the problem that a pause cannot be announced.
const problemAnnouncement = "announcement"

// announce starts announcing the pause or its end, unless that is in progress. The end of a run stops it; the next run starts it again.
func (p *pauses) announce() {
	switch {
	case p.activityRunning && (p.blocksNewWork() || p.announcedPause != p.pauseState.Pause):
		p.stopActivity()
		return
	case p.activityRunning || p.blocksNewWork() || !p.pauseState.Announcing && !p.pauseState.PauseUnnotified.due(p.now()):
		return
	}
	r, what := p.announceRequest()
	if !p.spillPermits(&r) {
		return
	}
	ctx, stop := workflow.WithCancel(p.workCtx)
	ctx = withLongActivity(ctx, what+p.name)
	p.activityRunning, p.announcedPause, p.stopActivity = true, p.pauseState.Pause, stop
	future := workflow.ExecuteActivity(ctx, protocol.ActivityPause, r)
	p.trackOperation(func(ctx workflow.Context) {
		var answer protocol.AnnounceAnswer
		err := future.Get(ctx, &answer)
		p.activityRunning = false
		switch {
		case temporal.IsCanceledError(err):
		case err != nil: // its worker was gone for over an hour: start again
			p.setProblem(problemAnnouncement, "services are not notified of a pause yet: "+rootCause(err))
		case p.announcedPause == p.pauseState.Pause:
			p.recordAnnounced(answer.Unreached)
		}
	})
}

// announceRequest returns the announcement, and a description of it.
func (p *pauses) announceRequest() (r protocol.AnnouncePause, what string) {
	r, what = p.request(), "announce the pause of "
	r.Scope, r.Pause = p.scope, p.pauseState.Pause
	if r.Pause == nil {
		r.Ended, what = p.pauseState.Ended, "announce the end of the pause of "
	}
	if !p.pauseState.Announcing && p.pauseState.PauseUnnotified.More == 0 {
		r.Only = p.pauseState.PauseUnnotified.Services
	}
	return r, what
}

// spillPermits moves the permits of a drain to the store if they are too large for a payload. It is false while the store does not accept them.
func (p *pauses) spillPermits(r *protocol.AnnouncePause) bool {
	if r.Pause == nil || r.Pause.Drain == nil {
		return true
	}
	pause, drain := *r.Pause, *r.Pause.Drain
	if len(entities.Fitting(drain.Permits, maxInlinePermits)) == len(drain.Permits) {
		return true
	}
	if p.outages.isOpen(depStore) {
		return false
	}
	packed, err := protocol.Pack(drain.Permits)
	if err == nil {
		err = p.callStore(p.ctx, protocol.ActivitySpill, protocol.SpillRequest{Packed: packed}, &r.PermitsDigest)
	}
	if err != nil {
		p.backOff(depStore, err)
		return false
	}
	drain.Permits, pause.Drain, r.Pause = nil, &drain, &pause
	return true
}

// maxInlinePermits is the size in bytes up to which permits are sent inline.
const maxInlinePermits = 24 << 10

// recordAnnounced records that all services were notified except those in missed.
func (p *pauses) recordAnnounced(missed protocol.Unreached) {
	p.pauseState.Announcing = false
	p.pauseState.PauseUnnotified = p.pauseState.PauseUnnotified.after(missed, p.now())
	if len(missed.Services) > 0 {
		p.setProblem(problemAnnouncement, p.pauseState.PauseUnnotified.text("not notified of a pause or its end"))
	} else {
		p.clearProblem(problemAnnouncement)
	}
}

// nextAnnouncement is the time of the next attempt for the services that could not be notified; zero while an announcement runs.
func (p *pauses) nextAnnouncement() time.Time {
	if p.activityRunning || p.blocksNewWork() {
		return time.Time{}
	}
	return p.pauseState.PauseUnnotified.Next
}

// dateTime is the format of times in the details of the Temporal UI, in UTC.
const dateTime = time.DateTime + " MST"

// pauseText describes a pause for the Temporal UI.
func (p *pauseState) pauseText() string {
	return fmt.Sprintf("**%s by %s** since %s%s", p.Pause.StateText(), explain.Plain(p.Pause.By), p.Pause.At.UTC().Format(dateTime), reasonText(p.Pause.Reason))
}
