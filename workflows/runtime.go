package workflows

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/lease"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// Runtime is the workflow of one runtime (C10, A16). It limits how many applies run there in parallel, over all services, and holds the
// pause of the runtime.
//
// Invariant: at most Limit leases are held, unless a person granted more or the limit was lowered since. A requested lease is granted in
// order, or ends with its holder.
func Runtime(ctx workflow.Context, in protocol.RuntimeInput) error {
	r := &runtime{runtime: in.Runtime, state: &runtimeState{}}
	r.shell = &shell{
		ctx: ctx, entity: r, name: "runtime " + in.Runtime,
		application: protocol.RuntimeTrails, service: in.Runtime,
		fullState: r.state, mailbox: &r.state.Mailbox, verbs: verb.Runtime(),
		answerHandlers:     map[string]answerHandler{protocol.Drain: r.handleDrain},
		cancelAlternatives: []string{"to stop applies there, converge runtime pause " + in.Runtime},
	}
	r.pauses = pauses{
		shell: r.shell, pauseState: &r.state.pauseState, scope: entities.ScopeRuntime + in.Runtime,
		request: func() protocol.AnnouncePause { return protocol.AnnouncePause{Runtime: in.Runtime} },
	}
	if err := workflow.SetQueryHandler(ctx, protocol.QueryStatus, inParts(&r.large, r.name, r.status, cutRuntime)); err != nil {
		return err
	}
	return r.runLoop(in.CarriedState, in.StartMode)
}

// runtimeState is the state of a Runtime workflow; bounded.
type runtimeState struct {
	lease.Ledger
	pauseState
	knownRules
	recentAudit
	state.Mailbox
}

// runtime is one run of a Runtime workflow.
type runtime struct {
	entityDefaults
	*shell
	pauses
	runtime         string
	state           *runtimeState
	shownDetails    string
	signalsInFlight int
}

// usesExternalRules is always true: a runtime belongs to no application that could define who may do what.
func (r *runtime) usesExternalRules(*verb.Row) bool { return true }

func (r *runtime) rules() (*entities.Identity, []entities.Grant, bool) { return r.state.rules() }

func (r *runtime) setRules(rules protocol.Rules) { r.state.setRules(rules) }

func (r *runtime) loadRules(ctx workflow.Context, urgent bool) error {
	return r.loadKnownRules(ctx, &r.state.knownRules, urgent)
}

// channels is the scope that a grant must cover: this runtime, in the place of a channel.
func (r *runtime) channels(*verb.Row, verb.Request) ([]string, error) {
	return []string{entities.ScopeRuntime + r.runtime}, nil
}

// auditBufferSize is the same as for a service.
func (r *runtime) auditBufferSize() int { return state.AuditFlushSize }

func (r *runtime) nextRun(c protocol.CarriedState) (string, any) {
	return protocol.RuntimeWorkflow, protocol.RuntimeInput{Runtime: r.runtime, CarriedState: c}
}

// reconcile grants leases, queries holders that are overdue, and announces a pause.
func (r *runtime) reconcile() {
	r.state.addNew(&r.state.Mailbox)
	r.announce()
	r.continueDrain()
	if !r.blocksNewWork() {
		now := r.now()
		for _, h := range r.state.Grant(now, r.sendable(r.state.Grantable())) {
			r.signalHolder(h, protocol.SignalGranted)
		}
		for _, h := range r.state.TakeOverdue(now, r.sendable(r.state.QueriesDue(now))) {
			if h.Undelivered {
				r.signalHolder(h, protocol.SignalGranted)
			} else {
				r.signalHolder(h, protocol.SignalHeld)
			}
		}
		// An existing timer is kept: it fires once per apply duration, which costs less than a new timer for each lease. Leases that are
		// due already wait for signals in flight.
		if due := earliest(earliest(r.state.NextQuery(), r.outages.nextRetry()), r.nextAnnouncement()); due.After(now) {
			r.wakeAt(due, func(time.Time) string { return "a lease is overdue" })
		}
	}
	r.show()
}

// maxSending is how many signals are in flight at most, so that no workflow task sends thousands.
const maxSending = 100

// sendable is how many of the wanted signals can be sent now; the others are sent when some have arrived.
func (r *runtime) sendable(wanted int) int {
	return min(wanted, max(maxSending-r.signalsInFlight, 0))
}

// signalHolder notifies a holder of its lease. A holder that no longer exists loses all its leases.
func (r *runtime) signalHolder(h entities.Lease, name string) {
	future := workflow.SignalExternalWorkflow(r.ctx, h.Holder, "", name, protocol.LeaseSignal{ID: h.ID, Runtime: r.runtime})
	r.signalsInFlight++
	r.trackOperation(func(ctx workflow.Context) {
		err := future.Get(ctx, nil)
		r.signalsInFlight--
		var notFound *temporal.UnknownExternalWorkflowExecutionError
		switch {
		case errors.As(err, &notFound):
			for _, lost := range r.state.EndAll(h.Holder) {
				r.recordAudit(auditLease, nil, "lease of "+lost.Name()+" ended", h.Holder+" no longer exists")
			}
		case name == protocol.SignalGranted:
			r.state.Delivered(h.ID, err == nil, workflow.Now(ctx))
		}
	})
}

func (r *runtime) status() (protocol.RuntimeStatus, error) {
	s := r.state
	return protocol.RuntimeStatus{
		Schema: "converge.runtime/v1", Runtime: r.runtime, Limit: s.Limit, Pause: s.Pause, Announcing: s.Announcing,
		Held: s.Held, Waiting: s.Waiting, Refused: s.Refused, Audit: s.Recent, Problem: s.Problem,
	}, nil
}

// show updates the text in the Temporal UI.
func (r *runtime) show() {
	if text := r.state.details(); text != r.shownDetails {
		workflow.SetCurrentDetails(r.ctx, text)
		r.shownDetails = text
	}
}

// maxRows bounds the table of the Temporal UI.
const maxRows = 20

func (s *runtimeState) details() string {
	var b strings.Builder
	switch {
	case s.Pause != nil:
		b.WriteString(s.pauseText())
	case s.Limit == 0:
		b.WriteString("**open**: no lease was requested")
	default:
		fmt.Fprintf(&b, "**%d of %d leases held**, %d waiting", len(s.Held), s.Limit, len(s.Waiting))
	}
	if s.Announcing {
		b.WriteString("\n\nnotifying services")
	}
	if s.Problem != "" {
		b.WriteString("\n\n" + explain.Plain(s.Problem))
	}
	if len(s.Held)+len(s.Waiting) == 0 {
		return b.String()
	}
	b.WriteString("\n\n| what | | since | |\n|---|---|---|---|\n")
	for n, h := range slices.Concat(s.Held, s.Waiting) {
		if n == maxRows {
			fmt.Fprintf(&b, "\nand %d more", len(s.Held)+len(s.Waiting)-n)
			break
		}
		use, note := "applies", ""
		if n >= len(s.Held) {
			use = "waits"
		}
		switch {
		case h.UnansweredQueries > 0:
			note = fmt.Sprintf("queried %d times whether it still holds it", h.UnansweredQueries)
		case h.Rollback:
			note = "rollback"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", explain.Plain(h.Name()), use, h.Since.UTC().Format(time.TimeOnly), note)
	}
	return b.String()
}

// auditLease is the kind of audit line about a lease that ended by an action other than its holder's.
const auditLease = "lease"

func (r *runtime) judge(row *verb.Row, q verb.Request, who entities.Who) (state.Effect, error) {
	switch row.Name {
	case protocol.SignalLease:
		return r.requestLease(q.Lease)
	case protocol.SignalKeep:
		return func() string {
			r.state.Confirm(q.ID, r.now())
			return "noted"
		}, nil
	case protocol.SignalGive:
		return r.giveLease(q, who)
	case protocol.Grant:
		return r.grantLease(q, who)
	case protocol.Pause:
		return r.pauseLeases(r.pause(q, who))
	case protocol.Resume:
		return r.pauseLeases(r.resume(q, who))
	case protocol.Drain:
		return r.pauseLeases(r.drainEffect(q, who))
	case protocol.Restore:
		return r.pauseLeases(r.restoreEffect(q, who))
	}
	return nil, fmt.Errorf("no such verb %q", row.Name)
}

// pauseLeases makes the ledger follow the pause.
func (r *runtime) pauseLeases(effect state.Effect, err error) (state.Effect, error) {
	if err != nil {
		return nil, err
	}
	return func() string {
		text := effect()
		r.followPause()
		return text
	}, nil
}

func (r *runtime) requestLease(q entities.LeaseRequest) (state.Effect, error) {
	q.Description = verb.Clip(q.Description, verb.MaxName)
	if err := r.state.Check(q); err != nil {
		return nil, err
	}
	if err := r.state.CheckHolder(q); err != nil {
		return nil, err
	}
	return func() string {
		if held := r.state.Request(q, r.now()); held != nil { // its holder may not have received the signal
			if r.sendable(1) == 1 {
				r.signalHolder(*held, protocol.SignalGranted)
			} else {
				r.state.Delivered(held.ID, false, r.now())
			}
			return "held already"
		}
		return fmt.Sprintf("%d of %d leases are held, %d wait", len(r.state.Held), r.state.Limit, len(r.state.Waiting))
	}, nil
}

// giveLease ends a lease. To give back a lease that is not held is not an error. A person can revoke a lease.
func (r *runtime) giveLease(q verb.Request, who entities.Who) (state.Effect, error) {
	if q.By != "" && lease.Find(r.state.Held, q.ID) < 0 && lease.Find(r.state.Waiting, q.ID) < 0 {
		return nil, fmt.Errorf("no lease %q; held are %s", q.ID, lease.IDs(r.state.Held))
	}
	return func() string {
		ended, _ := r.state.End(q.ID)
		if q.By == "" {
			return "given back"
		}
		text := "lease of " + ended.Name() + " revoked"
		r.recordAudit(auditLease, &who, text, q.Reason)
		return text
	}, nil
}

// grantLease grants a waiting lease now, regardless of the limit.
func (r *runtime) grantLease(q verb.Request, who entities.Who) (state.Effect, error) {
	index := lease.Find(r.state.Waiting, q.ID)
	switch {
	case lease.Find(r.state.Held, q.ID) >= 0:
		return nil, fmt.Errorf("lease %q is granted already", q.ID)
	case index < 0:
		return nil, fmt.Errorf("no lease %q waits; waiting are %s", q.ID, lease.IDs(r.state.Waiting))
	case r.state.Pause != nil:
		return nil, fmt.Errorf("%s is paused by %s; nothing is granted until it is resumed", r.name, r.state.Pause.By)
	}
	return func() string {
		h := r.state.GrantAt(index, r.now())
		r.signalHolder(h, protocol.SignalGranted)
		text := h.Name() + " is granted out of order"
		r.recordAudit(auditLease, &who, text, q.Reason)
		return text
	}, nil
}

// accepted omits waiting requests: their holders request again.
func (r *runtime) accepted() string {
	st := *r.state
	st.Checkpoint, st.SeenSignals, st.Waiting = state.Checkpoint{}, nil, nil
	return entities.DigestOf(st)
}

func (r *runtime) resetWork() { r.activityRunning = false }

// adoptedState announces a pause again. Leases that were granted in the meantime are checked before others are granted.
func (r *runtime) adoptedState(_ protocol.AdoptAnswer, text string) {
	r.state.Announcing = r.state.Announcing || r.state.Pause != nil
	r.recordAudit(entities.EventRestart, nil, r.name+" "+text, "")
}
