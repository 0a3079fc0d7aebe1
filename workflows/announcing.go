package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// announced records that a line was sent to a notification, or the error because of which it never will be.
type announced func(to string, line entities.AuditLine, err error, now time.Time)

// announceAll sends the lines to each webhook one by one, each until it is delivered. A webhook that does not answer does not delay the
// others. Underway holds the webhooks with a send in progress.
func (s *shell) announceAll(outbox *state.Outbox, all []entities.Notification, underway map[string]bool, done announced) {
	for _, n := range all {
		if line, ok := outbox.NextAnnouncement(n); ok && !underway[n.Name] {
			s.announceTo(n, line, underway, done)
		}
	}
}

// titled is the display name of the service; it is empty if the workflow has no service.
func (s *shell) titled() string {
	if s.title == nil {
		return s.service
	}
	return s.title()
}

func (s *shell) announceTo(to entities.Notification, line entities.AuditLine, underway map[string]bool, done announced) {
	underway[to.Name] = true
	ctx := workflow.WithActivityOptions(s.work, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 10 * time.Minute},
		Summary:             summary("announce to " + to.Name + ": " + line.Text),
	})
	request := protocol.AnnounceRequest{Application: s.application, Service: s.titled(), Line: line, Notifications: []entities.Notification{to}}
	if s.enters != nil {
		request.Incarnation, request.Since = s.enters(line)
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
