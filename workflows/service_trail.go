package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// keepTrail writes audit lines to the store once enough of them wait, so that an ordinary release
// costs no history for them; all of them before the workflow ends. Nothing waits for it.
func (s *service) keepTrail() {
	few := len(s.state.Audit) < entities.FlushAudit && !s.state.Gone()
	if s.storing || len(s.state.Audit) == 0 || few || s.outages.open(theTrail) {
		return
	}
	s.storing = true
	s.await(func(ctx workflow.Context) {
		err := s.storeLines(ctx)
		s.storing = false
		if err != nil {
			s.backOff(theTrail, err)
			return
		}
		s.outages[theTrail] = outage{}
	})
}

// storeTrail writes what there is. What the store does not take stays in state.
func (s *service) storeTrail() {
	if len(s.state.Audit) > 0 && !s.storing {
		_ = s.storeLines(s.ctx) // carried along, and tried again by the next run
	}
}

func (s *service) storeLines(ctx workflow.Context) error {
	lines := slices.Clone(s.state.Audit)
	err := s.fromStore(ctx, protocol.ActivityHistory, protocol.HistoryRequest{
		Application: s.state.Application, Service: s.state.Service, Lines: lines,
	}, nil)
	if err != nil {
		return err
	}
	s.state.AuditStored(lines[len(lines)-1].N)
	return nil
}

// history answers the lines that the store does not have yet.
func (s *service) history() (protocol.HistoryAnswer, error) {
	stored := s.state.AuditLines
	if len(s.state.Audit) > 0 {
		stored = s.state.Audit[0].N - 1
	}
	return protocol.HistoryAnswer{
		Schema: protocol.HistorySchema, Application: s.state.Application, Service: s.state.Service,
		Stored: stored, Lines: append([]entities.AuditLine{}, s.state.Audit...),
	}, nil
}

// announce tells every webhook of one line after another, for as long as it takes: one that is away
// keeps no other from hearing. A run may end with one under way: the next run tells it again (at least
// once).
func (s *service) announce() {
	if len(s.state.Announcements) == 0 || s.ending() {
		return
	}
	s.state.ForgetHeard() // nobody may ask for some of it any more
	if s.state.Spec == nil {
		return
	}
	for _, n := range s.state.Spec.Notifications {
		if line, ok := s.state.Unheard(n); ok && !s.telling[n.Name] {
			s.tell(line, n)
		}
	}
}

func (s *service) tell(line entities.AuditLine, to entities.Notification) {
	if s.telling == nil {
		s.telling = map[string]bool{}
	}
	s.telling[to.Name] = true
	ctx := workflow.WithActivityOptions(s.ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 10 * time.Minute},
		Summary:             clip("announce to "+to.Name+": "+line.Text, maxSummary),
	})
	future := workflow.ExecuteActivity(ctx, protocol.ActivityAnnounce, protocol.AnnounceRequest{
		Application: s.state.Application, Service: s.state.Service, Line: line, Notifications: []entities.Notification{to},
	})
	workflow.Go(s.ctx, func(ctx workflow.Context) {
		err := future.Get(ctx, nil)
		s.telling[to.Name], s.woken = false, true
		s.state.HeardOf(to.Name, line.N)
		if err != nil { // no later try would change that
			s.state.Record(workflow.Now(ctx), line.Channel, clip(to.Name+" was not told of \""+line.Text+"\": "+rootCause(err), maxRefusal))
		}
	})
}

// lastWords is how long a service that was taken down waits for its last announcements to arrive.
const lastWords = 10 * time.Minute

// lastWordBy is when that is over; zero as long as anything is left of the service.
func (s *service) lastWordBy() time.Time {
	if !s.state.Gone() {
		s.goneAt = time.Time{}
		return time.Time{}
	}
	if s.goneAt.IsZero() {
		s.goneAt = workflow.Now(s.ctx)
	}
	if at := s.goneAt.Add(lastWords); workflow.Now(s.ctx).Before(at) {
		return at
	}
	return time.Time{}
}

// mayLeave: everything is taken down and written down, nobody is to be told of anything, and nothing
// has come that would bring the service back: the workflow ends (A24).
func (s *service) mayLeave() bool {
	if !s.state.Gone() || !s.atRest() || len(s.state.Audit) > 0 {
		return false
	}
	if len(s.state.Announcements) > 0 && !s.lastWordBy().IsZero() {
		return false
	}
	s.collect()
	return !s.woken && !slices.ContainsFunc(s.state.Inbox, func(m entities.Message) bool {
		return m.Verb == protocol.Publish || m.Verb == verbLease
	})
}
