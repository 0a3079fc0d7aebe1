package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// sent is the outcome of sending a line to a notification. With an error it was not taken; it is sent again if that may help.
type sent struct {
	to        string
	line      entities.AuditEntry
	err       error
	sentAgain bool
	at        time.Time
}

// notifyAll sends the lines to each webhook one by one, each until it is delivered. A webhook that does not answer does not delay the
// others. Underway holds the webhooks with a send in progress.
func (s *shell) notifyAll(outbox *state.Outbox, all []entities.Notification, underway map[string]bool, done func(sent)) {
	for _, n := range all {
		if line, ok := outbox.NextAnnouncement(n); ok && !underway[n.Name] {
			_, refused := outbox.NotTaken[n.Name]
			s.notifyOne(n, line, announceRetry(refused), underway, done)
		}
	}
}

// announceRetry is how a line is sent again. After about a minute without success people are told. From then on the server repeats it without
// the workflow, until it is delivered.
func announceRetry(refused bool) *temporal.RetryPolicy {
	if refused {
		return &temporal.RetryPolicy{InitialInterval: time.Minute, BackoffCoefficient: 2, MaximumInterval: 10 * time.Minute}
	}
	return &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute, MaximumAttempts: 7}
}

// problemWebhook is the kind of the problem that a notification is not delivered.
const problemWebhook = "webhook"

// causeText is the cause of an error for the end of a text; "" without one.
func causeText(err error) string {
	if err == nil {
		return ""
	}
	return entities.Because(rootCause(err))
}

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

func (s *shell) notifyOne(to entities.Notification, line entities.AuditEntry, retry *temporal.RetryPolicy, underway map[string]bool, done func(sent)) {
	underway[to.Name] = true
	ctx := workflow.WithActivityOptions(s.workCtx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute,
		RetryPolicy:         retry,
		Summary:             summary("announce to " + to.Name + ": " + line.Text),
	})
	request := protocol.AnnounceRequest{Application: s.application, Service: s.serviceTitle(), Entry: line, Notifications: []entities.Notification{to}}
	if s.incarnationsOf != nil {
		request.Incarnation, request.Since = s.incarnationsOf(line)
	}
	future := workflow.ExecuteActivity(ctx, protocol.ActivityAnnounce, request)
	workflow.Go(s.ctx, func(ctx workflow.Context) {
		err := future.Get(ctx, nil)
		if temporal.IsCanceledError(err) {
			return // stopped; the next run announces the line again
		}
		underway[to.Name], s.woken = false, true
		done(sent{to.Name, line, err, isRetryable(err), workflow.Now(ctx)})
	})
}
