package workflows

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// Application is the workflow of one application. It numbers incarnations and notifies services of them. It also pauses all services, or
// pins them to an incarnation.
//
// Invariant: numbers only grow, and an incarnation never changes (D5). Every service whose spec differs from the last one it was notified
// of is notified, however often a worker dies in between. One resumable activity does this: it compares the manifest that all services know
// with the one that they should know.
func Application(ctx workflow.Context, in protocol.ApplicationInput) error {
	a := &application{state: &applicationState{}}
	a.shell = &shell{
		ctx: ctx, entity: a, name: in.Application, application: in.Application,
		fullState: a.state, mailbox: &a.state.Mailbox, verbs: verb.Application(),
		cancelAlternatives: []string{"to stop changes, converge pause " + in.Application},
		answerHandlers:     map[string]answerHandler{protocol.Publish: a.publish, protocol.Release: a.propose},
		outcomeHandlers:    map[string]outcomeHandler{protocol.Release: a.awaitDecision},
	}
	a.onAudit, a.webhooksInFlight = a.queueNotification, map[string]*sending{}
	a.pauses = pauses{
		shell: a.shell, pauseState: &a.state.pauseState, scope: entities.ScopeApplication, resumeHint: "; a paused service or channel has a pause of its own",
		request: func() protocol.AnnouncePause {
			return protocol.AnnouncePause{Application: a.name, Manifest: a.state.Notified.Manifest}
		},
	}
	if err := workflow.SetQueryHandler(ctx, protocol.QueryStatus, inParts(&a.large, "the status of application "+in.Application, a.status, cutApplication)); err != nil {
		return err
	}
	return a.runLoop(in.CarriedState, in.StartMode)
}

// applicationState is the state of an Application workflow. It holds a bounded tail of the incarnations; the store has all of them by
// number.
type applicationState struct {
	Store        string                 `json:"store,omitempty"`
	Origin       protocol.Origin        `json:"origin,omitzero"`
	Manifest     string                 `json:"manifest,omitempty"` // of the newest incarnation
	Notified     notice                 `json:"notified,omitzero"`  // known to all services
	Incarnations []protocol.Incarnation `json:"incarnations,omitempty"`
	// NotifiedPeople is the digest of the identity and the grants that all services know.
	NotifiedPeople string `json:"notifiedPeople,omitempty"`
	// Unreached are the services that could not be notified of what Notified says.
	Unreached unreached `json:"unreached,omitzero"`
	// Notices is the order of the newest notice that was sent or is being sent to services.
	Notices entities.NoticeOrder `json:"notices,omitzero"`
	// Recorded is the highest incarnation that the store has under its number.
	Recorded int64                    `json:"recorded,omitempty"`
	Pin      *protocol.ApplicationPin `json:"pin,omitempty"`
	// Names also holds services that are no longer declared: a service that is declared again is the same service.
	Names protocol.ServiceNames `json:"names,omitempty"`
	// Identity and Grants are those of the newest incarnation: who may do what with the whole application.
	Identity *entities.Identity `json:"identity,omitempty"`
	Grants   []entities.Grant   `json:"grants,omitempty"`
	// Notifications are those of the newest incarnation. They receive the actions of people on the whole application.
	Notifications []entities.Notification `json:"notifications,omitempty"`
	// Joints are the joint releases that are not carried out everywhere yet, and the last finished ones, oldest first.
	Joints []*joint `json:"joints,omitempty"`
	state.Outbox
	pauseState
	managedState
	state.Mailbox
}

// notice identifies the incarnation that services are notified of.
type notice struct {
	Manifest string `json:"manifest"`
	Number   int64  `json:"number"`
	Pinned   bool   `json:"pinned,omitempty"`
	Rules    string `json:"rules,omitempty"` // manifest of the newest incarnation, if that is another one
}

type application struct {
	entityDefaults
	*shell
	pauses
	state         *applicationState
	notifying     bool
	currentNotice notice // the notice that is being sent
	stopNotifying workflow.CancelFunc
	unmanaging    unmanageWork
	deciding      bool // a joint release is being decided or carried out
	// webhooksInFlight holds what is being sent, by notification.
	webhooksInFlight map[string]*sending
	// installationRules are the rules of the installation. The first publication is judged by them.
	installationRules *protocol.Rules
}

// queueNotification queues a line for the notifications.
func (a *application) queueNotification(line entities.AuditEntry) {
	a.state.Announce(a.state.Notifications, line)
}

// sendNotifications sends the queued lines to the notifications.
func (a *application) sendNotifications() {
	if len(a.state.Announcements) == 0 || a.blocksNewWork() {
		return
	}
	a.state.PruneSent(a.state.Notifications)
	a.notifyAll(&a.state.Outbox, a.state.Notifications, a.webhooksInFlight, func(o sent) {
		if o.sentAgain {
			a.state.MarkNotTaken(o.to, o.cause())
		} else {
			a.state.MarkSent(a.state.Notifications, o.to, o.line.N)
		}
		a.showUndelivered()
		if o.err != nil && !o.sentAgain {
			a.setProblem(problemWebhook, o.text())
		}
	})
	a.showUndelivered()
}

// showUndelivered shows the first notification that takes no events.
func (a *application) showUndelivered() {
	if all := a.state.Undelivered(a.state.Notifications); len(all) > 0 {
		a.setProblem(problemWebhook, all[0].Text())
		return
	}
	a.clearProblem(problemWebhook)
}

// auditBufferSize is 1: people act on whole applications seldom.
func (a *application) auditBufferSize() int { return 1 }

// rules are those of the newest incarnation. Before the first one they are the part of the installation's rules that concerns applications.
func (a *application) rules() (*entities.Identity, []entities.Grant, bool) {
	if a.installationRules != nil && a.newest().Number == 0 {
		identity, grants := a.installationRules.FirstPublication(a.name, protocol.Publish)
		return identity, grants, true
	}
	return a.state.Identity, a.state.Grants, true
}

func (a *application) checkNames(r verb.Request) error {
	if r.Verb == protocol.Pin {
		_, err := a.pinnable(r)
		return err
	}
	return nil
}

func (a *application) nextRun(c protocol.CarriedState) (string, any) {
	return protocol.ApplicationWorkflow, protocol.ApplicationInput{Application: a.name, CarriedState: c}
}

// reconcile starts all work that is due, such as notifying services.
func (a *application) reconcile() {
	a.endUnmanaged()
	a.notify()
	a.announce()
	a.sendNotifications()
	a.startDecision()
	retryAt := earliest(earliest(a.nextAnnouncement(), a.nextEndAttempt()), a.nextJointAttempt())
	if !a.notifying {
		retryAt = earliest(retryAt, a.state.Unreached.Next)
	}
	a.wakeAt(retryAt, func(time.Time) string { return "retry" })
	workflow.SetCurrentDetails(a.ctx, a.details())
}

func (a *application) status() (protocol.ApplicationStatus, error) {
	s := a.state
	return protocol.ApplicationStatus{
		Schema: "converge.application/v1", Application: a.name, Newest: a.newest().Number, Store: s.Store, Origin: s.Origin,
		Manifest: s.Manifest, NotifiedOf: s.Notified.Manifest, Notified: s.Notified.Number, Incarnations: s.Incarnations,
		Refused: s.Refused, Pin: s.Pin, Pause: s.Pause, Announcing: s.Announcing, Problem: s.Problem,
		Unmanaged: s.Unmanaged, Names: s.Names, Releases: s.joints(), Readers: entities.Readers(s.Grants),
	}, nil
}

// details is the text for an application in the Temporal UI.
func (a *application) details() string {
	newest := a.newest()
	if newest.Number == 0 {
		return "nothing published yet"
	}
	text := fmt.Sprintf("**incarnation %d** by %s, %d services, from %s", newest.Number, explain.Plain(newest.By), newest.Services, explain.Plain(newest.Origin.Path))
	if a.state.Pause != nil {
		text += "\n\n" + a.state.pauseText()
	}
	text += a.state.unmanagedText()
	if p := a.state.Pin; p != nil {
		text += fmt.Sprintf("\n\n**pinned to incarnation %d** by %s since %s", p.Incarnation.Number, explain.Plain(p.Who.Name), p.At.UTC().Format(dateTime)) + reasonText(p.Reason)
		if newest.Number != p.Incarnation.Number {
			text += fmt.Sprintf("; incarnation %d waits", newest.Number)
		}
	}
	if a.wantedNotice().Number != a.state.Notified.Number {
		text += fmt.Sprintf("\n\nnotifying services (all know incarnation %d)", a.state.Notified.Number)
	}
	if a.state.Problem != "" {
		text += "\n\n" + explain.Plain(a.state.Problem)
	}
	return text
}

func reasonText(reason string) string { return entities.Because(explain.Plain(reason)) }

// wantedNotice is the notice that services should know: the pinned incarnation, or else the newest (D15).
func (a *application) wantedNotice() notice {
	newest := a.newest()
	switch pin := a.state.Pin; {
	case pin == nil:
		return notice{Manifest: a.state.Manifest, Number: newest.Number}
	case pin.Incarnation.Number == newest.Number: // its rules may have changed under the same number
		return notice{Manifest: a.state.Manifest, Number: newest.Number, Pinned: true}
	default:
		return notice{Manifest: pin.Incarnation.Manifest, Number: pin.Incarnation.Number, Pinned: true, Rules: a.state.Manifest}
	}
}

// problemNotification is the kind of the problem that services cannot be notified of an incarnation.
const problemNotification = "notification"

// notify starts notifying the services of the changes, one notice at a time. A newer notice stops the current one, which may never complete
// (its manifest may be in a store that no worker reads). No service is missed, because the next activity starts from the manifest that all
// services are known to know. An incarnation of which no service is notified, because another one is pinned, is still recorded (D5).
func (a *application) notify() {
	wanted := a.wantedNotice()
	if a.notifying && wanted != a.currentNotice {
		a.stopNotifying() // the next reconciliation starts it again
	}
	known := wanted == a.state.Notified && a.state.Recorded >= a.newest().Number && len(a.state.PendingStarts) == 0
	if a.notifying || a.unmanaging.running || known && !a.state.Unreached.due(a.now()) {
		return
	}
	request := a.notifyRequest(wanted)
	ctx, stop := workflow.WithCancel(a.workCtx)
	a.notifying, a.currentNotice, a.stopNotifying = true, wanted, stop
	recorded, people := a.newest().Number, a.people()
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Hour, HeartbeatTimeout: margin,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
		Summary:     fmt.Sprintf("notify services of incarnation %d", wanted.Number),
	})
	future := workflow.ExecuteActivity(ctx, protocol.ActivityNotify, request.Fitting())
	a.trackOperation(func(ctx workflow.Context) {
		var answer protocol.NotifyAnswer
		err := future.Get(ctx, &answer)
		a.notifying = false
		switch {
		case temporal.IsCanceledError(err):
		case err != nil: // its worker was gone for over an hour: start again
			a.setProblem(problemNotification, "services are not notified yet: "+rootCause(err))
		case answer.SupersededBy != (entities.NoticeOrder{}): // send everything again, with a later order
			a.state.Notices = answer.SupersededBy
		default:
			a.state.NotifiedPeople = people
			a.state.Notified, a.state.Recorded = wanted, max(a.state.Recorded, recorded)
			a.recordUnreached(answer.Unreached, request.From)
			a.state.removeStarted(request.Remanaged)
		}
	})
}

// people is a digest of who may do what, and how callers prove who they are.
func (a *application) people() string { return entities.DigestOf(a.state.Identity, a.state.Grants) }

// notifyRequest builds the request that notifies services, with the next order.
func (a *application) notifyRequest(wanted notice) protocol.NotifyRequest {
	a.state.Notices = a.state.Notices.Next(a.newest().Number, a.now())
	request := protocol.NotifyRequest{
		Application: a.name, From: a.state.Notified.Manifest, To: wanted.Manifest, Newest: a.incarnation(wanted.Number), Store: a.state.Store,
		Pinned: wanted.Pinned, Order: a.state.Notices, At: a.now(), Additional: a.state.Unreached.Services,
		Unmanaged: entities.SortedKeys(a.state.Unmanaged), Remanaged: maps.Clone(a.state.PendingStarts),
	}
	if a.state.Unreached.More > 0 {
		request.From = a.state.Unreached.Since
	}
	if wanted.Rules != "" {
		newest, who := a.newest(), a.state.Pin.Who
		request.Rules, request.PinnedBy = &protocol.RulesOf{Number: newest.Number, Hash: newest.Hash, Manifest: wanted.Rules}, &who
	}
	request.RulesFrom, request.PeopleChanged = a.state.Notified.Rules, a.people() != a.state.NotifiedPeople
	for _, i := range a.state.Incarnations {
		if i.Number > a.state.Recorded && i.Number != wanted.Number {
			request.Skipped = append(request.Skipped, i)
		}
	}
	return request
}

// accepted is a digest of the whole state, which changes seldom.
func (a *application) accepted() string {
	st := *a.state
	st.Checkpoint, st.SeenSignals = state.Checkpoint{}, nil
	return entities.DigestOf(st)
}

// fillCheckpoint adds to a checkpoint the manifest that services were notified of, or the one of the first notification in progress.
func (a *application) fillCheckpoint(c *protocol.Checkpoint) {
	c.Manifest = a.state.Notified.Manifest
	if c.Manifest == "" {
		c.Manifest = a.wantedNotice().Manifest
	}
	c.Unmanaged = a.state.reasons()
}

func (a *application) resetWork() {
	a.notifying, a.activityRunning, a.unmanaging.running, a.deciding, a.webhooksInFlight = false, false, false, false, map[string]*sending{}
}

// adoptedState restores from a checkpoint. Services are notified again, starting from the manifest that all of them were known to know.
func (a *application) adoptedState(c protocol.AdoptAnswer, text string) {
	a.state.Store = cmp.Or(c.Store, a.state.Store)
	a.state.Announcing = a.state.Announcing || a.state.Pause != nil
	a.state.Ending = len(a.state.Unmanaged) > 0
	a.recordAudit(entities.EventRestart, nil, a.name+" "+text, "")
}

// recordUnreached records the services that could not be notified of the changes since manifest from.
func (a *application) recordUnreached(missed protocol.Unreached, from string) {
	a.state.Unreached = a.state.Unreached.after(missed, a.now())
	if len(missed.Services) > 0 {
		a.state.Unreached.Since = from
		a.setProblem(problemNotification, a.state.Unreached.text("not notified"))
	} else {
		a.clearProblem(problemNotification)
	}
}
