package workflows

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// note keeps an audit line; nobody in particular is Converge itself.
func (s *shell) note(kind string, who *entities.Who, text, reason string) {
	s.desk.Note(entities.AuditLine{At: s.now(), Kind: kind, Who: who, Text: clip(text), Reason: clip(reason)})
}

// keepTrail writes audit lines to the store once enough of them wait. Nothing waits for it.
func (s *shell) keepTrail() {
	few := s.of.flushAt() == 0 || len(s.desk.Audit) < s.of.flushAt()
	if s.storing || len(s.desk.Audit) == 0 || few || s.outages.open(theTrail) {
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

// storeTrail writes what there is before a run ends. What the store does not take stays in state.
func (s *shell) storeTrail() {
	if len(s.desk.Audit) > 0 && !s.storing && s.of.flushAt() > 0 {
		_ = s.storeLines(s.ctx) // carried along, and tried again by the next run
	}
}

func (s *shell) storeLines(ctx workflow.Context) error {
	lines := slices.Clone(s.desk.Audit)
	err := s.fromStore(ctx, protocol.ActivityHistory, protocol.HistoryRequest{
		Application: s.application, Service: s.service, Lines: lines,
	}, nil)
	if err != nil {
		return err
	}
	s.desk.AuditStored(lines[len(lines)-1].N)
	return nil
}
