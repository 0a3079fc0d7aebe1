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
		ctx: ctx, of: a, name: in.Application, application: in.Application,
		whole: a.state, desk: &a.state.Desk, verbs: verb.Application(),
		stops:    []string{"to stop changes, converge pause " + in.Application},
		answers:  map[string]answering{protocol.Publish: a.publish, protocol.Release: a.propose},
		outcomes: map[string]following{protocol.Release: a.decided},
	}
	a.noted, a.announcing = a.tell, map[string]bool{}
	a.pauses = pauses{
		shell: a.shell, of: &a.state.pauseState, scope: entities.ScopeApplication, hint: "; a paused service or channel has a pause of its own",
		request: func() protocol.AnnouncePause {
			return protocol.AnnouncePause{Application: a.name, Manifest: a.state.Notified.Manifest}
		},
	}
	if err := workflow.SetQueryHandler(ctx, protocol.QueryStatus, inParts(&a.large, "the status of application "+in.Application, a.status, cutApplication)); err != nil {
		return err
	}
	return a.live(in.Carried, in.Beginning)
}

// applicationState is the state of an Application workflow. It holds a bounded tail of the incarnations; the store has all of them by
// number.
type applicationState struct {
	Store        string                 `json:"store,omitempty"`
	Origin       protocol.Origin        `json:"origin,omitzero"`
	Manifest     string                 `json:"manifest,omitempty"` // of the newest incarnation
	Notified     notice                 `json:"notified,omitzero"`  // known to all services
	Incarnations []protocol.Incarnation `json:"incarnations,omitempty"`
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
	state.Desk
}

// notice identifies the incarnation that services are notified of.
type notice struct {
	Manifest string `json:"manifest"`
	Number   int64  `json:"number"`
	Pinned   bool   `json:"pinned,omitempty"`
}

type application struct {
	plain
	*shell
	pauses
	state     *applicationState
	notifying bool
	present   notice // the notice that is being sent
	stop      workflow.CancelFunc
	down      managing
	deciding  bool // a joint release is being decided or carried out
	// announcing holds the notifications with a send in progress.
	announcing map[string]bool
	// founding are the rules of the installation. The first publication is judged by them.
	founding *protocol.Rules
}

// tell queues a line for the notifications.
func (a *application) tell(line entities.AuditLine) { a.state.Announce(a.state.Notifications, line) }

// notifyPeople sends the queued lines to the notifications.
func (a *application) notifyPeople() {
	if len(a.state.Announcements) == 0 || a.drains() {
		return
	}
	a.state.ForgetSent(a.state.Notifications)
	a.announceAll(&a.state.Outbox, a.state.Notifications, a.announcing, func(to string, line entities.AuditLine, err error, _ time.Time) {
		a.state.Sent(a.state.Notifications, to, line.N)
		if err != nil {
			a.trouble("webhook", to+" was not notified of \""+line.Text+"\": "+rootCause(err))
		}
	})
}

// flushAt is 1: people act on whole applications seldom.
func (a *application) flushAt() int { return 1 }

// rules are those of the newest incarnation. Before the first one they are the part of the installation's rules that concerns applications.
func (a *application) rules() (*entities.Identity, []entities.Grant, bool) {
	if a.founding != nil && a.newest().Number == 0 {
		identity, grants := a.founding.Begins(a.name, protocol.Publish)
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

func (a *application) next(c protocol.Carried) (string, any) {
	return protocol.ApplicationWorkflow, protocol.ApplicationInput{Application: a.name, Carried: c}
}

// turn starts all work that is due, such as notifying services.
func (a *application) turn() {
	a.end()
	a.notify()
	a.announce()
	a.notifyPeople()
	a.decide()
	again := earliest(earliest(a.tellsAgain(), a.endsAgain()), a.decidesAgain())
	if !a.notifying {
		again = earliest(again, a.state.Unreached.Next)
	}
	a.wakeAt(again, func(time.Time) string { return "retry" })
	workflow.SetCurrentDetails(a.ctx, a.details())
}

func (a *application) status() (protocol.ApplicationStatus, error) {
	s := a.state
	return protocol.ApplicationStatus{
		Schema: "converge.application/v1", Application: a.name, Newest: a.newest().Number, Store: s.Store, Origin: s.Origin,
		Manifest: s.Manifest, NotifiedOf: s.Notified.Manifest, Notified: s.Notified.Number, Incarnations: s.Incarnations,
		Refused: s.Refused, Pin: s.Pin, Pause: s.Pause, Announcing: s.Announcing, Problem: s.Problem,
		Unmanaged: s.Unmanaged, Names: s.Names, Releases: s.joints(),
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
		text += "\n\n" + a.state.since()
	}
	text += a.state.unmanagedText()
	if p := a.state.Pin; p != nil {
		text += fmt.Sprintf("\n\n**pinned to incarnation %d** by %s since %s", p.Incarnation.Number, explain.Plain(p.Who.Name), p.At.UTC().Format(dateTime)) + because(p.Reason)
		if newest.Number != p.Incarnation.Number {
			text += fmt.Sprintf("; incarnation %d waits", newest.Number)
		}
	}
	if a.wanted().Number != a.state.Notified.Number {
		text += fmt.Sprintf("\n\nnotifying services (all know incarnation %d)", a.state.Notified.Number)
	}
	if a.state.Problem != "" {
		text += "\n\n" + explain.Plain(a.state.Problem)
	}
	return text
}

func because(reason string) string { return entities.Because(explain.Plain(reason)) }

// wanted is the notice that services should know: the pinned incarnation, or else the newest (D15).
func (a *application) wanted() notice {
	newest := a.newest()
	switch pin := a.state.Pin; {
	case pin == nil:
		return notice{Manifest: a.state.Manifest, Number: newest.Number}
	case pin.Incarnation.Number == newest.Number: // its rules may have changed under the same number
		return notice{Manifest: a.state.Manifest, Number: newest.Number, Pinned: true}
	default:
		return notice{Manifest: pin.Incarnation.Manifest, Number: pin.Incarnation.Number, Pinned: true}
	}
}

// notification is the kind of trouble in which services cannot be notified of an incarnation.
const notification = "notification"

// notify starts notifying the services of the changes, one notice at a time. A newer notice stops the current one, which may never complete
// (its manifest may be in a store that no worker reads). No service is missed, because the next activity starts from the manifest that all
// services are known to know. An incarnation of which no service is notified, because another one is pinned, is still recorded (D5).
func (a *application) notify() {
	wanted := a.wanted()
	if a.notifying && wanted != a.present {
		a.stop() // the next turn starts it again
	}
	known := wanted == a.state.Notified && a.state.Recorded >= a.newest().Number && len(a.state.Again) == 0
	if a.notifying || a.down.running || known && !a.state.Unreached.due(a.now()) {
		return
	}
	request := a.notification(wanted)
	ctx, stop := workflow.WithCancel(a.work)
	a.notifying, a.present, a.stop = true, wanted, stop
	recorded := a.newest().Number
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Hour, HeartbeatTimeout: margin,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
		Summary:     fmt.Sprintf("notify services of incarnation %d", wanted.Number),
	})
	future := workflow.ExecuteActivity(ctx, protocol.ActivityNotify, request.Fitting())
	a.await(func(ctx workflow.Context) {
		var answer protocol.NotifyAnswer
		err := future.Get(ctx, &answer)
		a.notifying = false
		switch {
		case temporal.IsCanceledError(err):
		case err != nil: // its worker was gone for over an hour: start again
			a.trouble(notification, "services are not notified yet: "+rootCause(err))
		case answer.Overtaken != (entities.NoticeOrder{}): // send everything again, with a later order
			a.state.Notices = answer.Overtaken
		default:
			a.state.Notified, a.state.Recorded = wanted, max(a.state.Recorded, recorded)
			a.passedOver(answer.Unreached, request.From)
			a.state.begun(request.Again)
		}
	})
}

// notification builds the request that notifies services, with the next order.
func (a *application) notification(wanted notice) protocol.NotifyRequest {
	a.state.Notices = a.state.Notices.After(a.newest().Number, a.now())
	request := protocol.NotifyRequest{
		Application: a.name, From: a.state.Notified.Manifest, To: wanted.Manifest, Newest: a.incarnation(wanted.Number), Store: a.state.Store,
		Pinned: wanted.Pinned, Order: a.state.Notices, At: a.now(), Also: a.state.Unreached.Services,
		Unmanaged: entities.SortedKeys(a.state.Unmanaged), Again: maps.Clone(a.state.Again),
	}
	if a.state.Unreached.More > 0 {
		request.From = a.state.Unreached.Since
	}
	for _, i := range a.state.Incarnations {
		if i.Number > a.state.Recorded && i.Number != wanted.Number {
			request.Passed = append(request.Passed, i)
		}
	}
	return request
}

// accepted is a digest of the whole state, which changes seldom.
func (a *application) accepted() string {
	st := *a.state
	st.Checkpoint, st.Heard = state.Checkpoint{}, nil
	return entities.DigestOf(st)
}

// mark adds to a checkpoint the manifest that services were notified of, or the one of the first notification in progress.
func (a *application) mark(c *protocol.Checkpoint) {
	c.Manifest = a.state.Notified.Manifest
	if c.Manifest == "" {
		c.Manifest = a.wanted().Manifest
	}
	c.Unmanaged = a.state.reasons()
}

func (a *application) dropped() {
	a.notifying, a.running, a.down.running, a.deciding, a.announcing = false, false, false, false, map[string]bool{}
}

// adoptedState restores from a checkpoint. Services are notified again, starting from the manifest that all of them were known to know.
func (a *application) adoptedState(c protocol.AdoptAnswer, why *protocol.Restart) {
	a.state.Store = cmp.Or(c.Store, a.state.Store)
	a.state.Announcing = a.state.Announcing || a.state.Pause != nil
	a.state.Ending = len(a.state.Unmanaged) > 0
	a.note(entities.EventRestart, nil, a.name+" continues from its checkpoint: "+restarted(why), "")
}

// passedOver records the services that could not be notified of the changes since manifest from.
func (a *application) passedOver(missed protocol.Unreached, from string) {
	a.state.Unreached = a.state.Unreached.after(missed, a.now())
	if len(missed.Services) > 0 {
		a.state.Unreached.Since = from
		a.trouble(notification, a.state.Unreached.text("not notified"))
	} else {
		a.clear(notification)
	}
}
