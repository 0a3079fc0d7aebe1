package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// announce sends to every webhook one line after another, for as long as it takes: one that does not answer
// keeps no other from its lines. A run may end with one under way: the next run sends it again (at least
// once).
func (s *service) announce() {
	if len(s.state.Announcements) == 0 || s.ending() {
		return
	}
	s.state.ForgetAnnounced() // nobody may ask for some of it any more
	if s.state.Spec == nil {
		return
	}
	for _, n := range s.state.Spec.Notifications {
		if line, ok := s.state.NextAnnouncement(n); ok && !s.announcing[n.Name] {
			s.announceTo(n, line)
		}
	}
}

func (s *service) announceTo(to entities.Notification, line entities.AuditLine) {
	s.announcing[to.Name] = true
	ctx := workflow.WithActivityOptions(s.ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 10 * time.Minute},
		Summary:             summary("announce to " + to.Name + ": " + line.Text),
	})
	future := workflow.ExecuteActivity(ctx, protocol.ActivityAnnounce, protocol.AnnounceRequest{
		Application: s.application, Service: s.service, Line: line, Notifications: []entities.Notification{to},
	})
	workflow.Go(s.ctx, func(ctx workflow.Context) {
		err := future.Get(ctx, nil)
		s.announcing[to.Name], s.woken = false, true
		s.state.AnnouncedTo(to.Name, line.N)
		if err != nil { // no later try would change that
			s.state.Record(workflow.Now(ctx), line.Channel, clip(to.Name+" was not notified of \""+line.Text+"\": "+rootCause(err)))
		}
	})
}
