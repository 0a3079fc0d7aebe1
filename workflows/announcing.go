package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// onSent records that a line was sent to a notification, or the error because of which it never will be.
type onSent func(to string, line entities.AuditEntry, err error, now time.Time)

// notifyAll sends the lines to each webhook one by one, each until it is delivered. A webhook that does not answer does not delay the
// others. Underway holds the webhooks with a send in progress.
func (s *shell) notifyAll(outbox *state.Outbox, all []entities.Notification, underway map[string]bool, done onSent) {
	for _, n := range all {
		if line, ok := outbox.NextAnnouncement(n); ok && !underway[n.Name] {
			s.notifyOne(n, line, underway, done)
		}
	}
}

// serviceTitle is the display name of the service; it is empty if the workflow has no service.
func (s *shell) serviceTitle() string {
	if s.title == nil {
		return s.service
	}
	return s.title()
}

func (s *shell) notifyOne(to entities.Notification, line entities.AuditEntry, underway map[string]bool, done onSent) {
	underway[to.Name] = true
	ctx := workflow.WithActivityOptions(s.workCtx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 10 * time.Minute},
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
		done(to.Name, line, err, workflow.Now(ctx))
	})
}
