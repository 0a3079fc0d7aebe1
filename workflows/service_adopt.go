package workflows

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// accepted: whatever people do, a target or an outcome is a line of the audit trail or of the journal, or waits in the inbox.
// What was refused counts too: it would be judged again, later, if it came after the last checkpoint.
func (s *service) accepted() string {
	st := s.state
	refused := int64(0)
	if n := len(st.Refused); n > 0 {
		refused = st.Refused[n-1].At.UnixNano()
	}
	return fmt.Sprintf("%d/%d/%d/%d/%s/%d.%d/%d", st.AuditLines, st.Lines, st.LastRelease, len(st.Inbox), st.SpecDigest, st.Published.Newest, st.Published.Count, refused)
}

func (s *service) mark(*protocol.Checkpoint) {}

func (s *service) dropped() {
	s.watches, s.checking, s.announcing = map[string]*watch{}, map[string]*checking{}, map[string]bool{}
	clear(s.justRead)
}

func (s *service) begins(floor int64) { s.state.Floor = max(s.state.Floor, floor) }

func (s *service) adoptedState(c protocol.AdoptAnswer, why *protocol.Restart) {
	now := s.now()
	s.state.Store = cmp.Or(c.Store, s.state.Store)
	s.hold(c.Holds, c.Ended)
	s.state.Interrupted(now, now.Add(letGo))
	text := "goes on from its checkpoint: " + restarted(why)
	s.state.Record(now, "", text)
	s.note(entities.EventRestart, nil, text, "")
	if why != nil && why.Hold {
		s.state.HoldBack("its workflow was gone three times within an hour, the last time because "+why.Why, now)
	}
}

// hold takes in pauses of something wider that are in force: one may have begun while nobody was there to be told. And it
// ends those that the store says have ended. That the store does not have one says nothing: it may have been announced before
// it could be kept there.
func (s *service) hold(inForce []protocol.ScopePause, ended []protocol.PauseEnded) {
	for _, e := range ended {
		for _, p := range s.state.Pauses {
			if p.Scope == e.Scope && !p.At.After(e.Began) {
				s.state.SetPause(e.Scope, nil, s.now())
			}
		}
	}
	for _, p := range inForce {
		if name, of := strings.CutPrefix(p.Scope, entities.ScopeRuntime); !of || s.on(name) {
			s.setPause(p)
		}
	}
}
