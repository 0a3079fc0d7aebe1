package workflows

import (
	"errors"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// sending is a line on its way to a notification, as that was declared then.
type sending struct {
	url    entities.Value
	format string
	cancel workflow.CancelFunc
}

// sent is the outcome of sending a line to a notification. With an error it was not taken; it is sent again if that may help.
type sent struct {
	to        string
	line      entities.AuditEntry
	err       error
	sentAgain bool
	at        time.Time
}

// cause is why it was not taken, without the notification's name; "" if it was.
func (o sent) cause() string {
	if o.err == nil {
		return ""
	}
	return clip(strings.TrimPrefix(rootCause(o.err), "notification "+o.to+": "))
}

// text says that it was not taken, and why.
func (o sent) text() string {
	return clip(o.to + " is not notified of \"" + o.line.Text + "\": " + o.cause())
}

// notifyAll sends the lines to each webhook one by one, each until it is delivered. A webhook that does not answer does not delay the
// others. Underway holds what is being sent. A line on its way to a notification that is declared differently now, or no longer, is stopped.
func (s *shell) notifyAll(outbox *state.Outbox, all []entities.Notification, underway map[string]*sending, done func(sent)) {
	for _, name := range entities.SortedKeys(underway) {
		now := underway[name]
		if !slices.ContainsFunc(all, func(n entities.Notification) bool {
			return n.Name == name && n.URL == now.url && n.Format == now.format
		}) {
			now.cancel()
			delete(underway, name)
			delete(outbox.NotTaken, name)
		}
	}
	for _, n := range all {
		if line, ok := outbox.NextAnnouncement(n); ok && underway[n.Name] == nil {
			_, refused := outbox.NotTaken[n.Name]
			s.notifyOne(n, line, announceRetry(refused), underway, done)
		}
	}
}

// announceRetry is how a line is sent again. After about a minute without success the status says so. From then on the server repeats it
// without the workflow, until it is delivered.
func announceRetry(refused bool) *temporal.RetryPolicy {
	if refused {
		return &temporal.RetryPolicy{InitialInterval: time.Minute, BackoffCoefficient: 2, MaximumInterval: 10 * time.Minute}
	}
	return &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute, MaximumAttempts: 7}
}

// problemWebhook is the kind of the problem that a notification is not delivered.
const problemWebhook = "webhook"

// isRetryable reports whether another attempt may help after an error.
func isRetryable(err error) bool {
	var failed *temporal.ApplicationError
	return err != nil && !(errors.As(err, &failed) && failed.NonRetryable())
}

// serviceTitle is the display name of the service; it is empty if the workflow has no service.
func (s *shell) serviceTitle() string {
	if s.title == nil {
		return s.service
	}
	return s.title()
}

func (s *shell) notifyOne(to entities.Notification, line entities.AuditEntry, retry *temporal.RetryPolicy, underway map[string]*sending, done func(sent)) {
	ctx, cancel := workflow.WithCancel(s.workCtx)
	own := &sending{to.URL, to.Format, cancel}
	underway[to.Name] = own
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute,
		RetryPolicy:         retry,
		Summary:             summary("announce to " + to.Name + ": " + line.Text),
	})
	request := protocol.AnnounceRequest{Application: s.application, Service: s.serviceTitle(), Entry: line, Notifications: []entities.Notification{to}}
	if s.incarnationsOf != nil {
		request.Incarnation, request.Since = s.incarnationsOf(line)
	}
	if s.commandsFor != nil {
		request.Next = s.commandsFor(line)
	}
	future := workflow.ExecuteActivity(ctx, protocol.ActivityAnnounce, request)
	workflow.Go(s.ctx, func(ctx workflow.Context) {
		err := future.Get(ctx, nil)
		if temporal.IsCanceledError(err) || underway[to.Name] != own {
			return // stopped; the next run, or the notification as it is declared now, gets the line again
		}
		delete(underway, to.Name)
		s.woken = true
		done(sent{to.Name, line, err, isRetryable(err), workflow.Now(ctx)})
	})
}
