package workflows

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// accepted covers every action: a target or a result is a line of the audit trail or the journal, or a message in the inbox. A refusal
// counts too: without it, a refused request after the last checkpoint would be judged again.
func (s *service) accepted() string {
	st := s.state
	refused := int64(0)
	if n := len(st.Refused); n > 0 {
		refused = st.Refused[n-1].At.UnixNano()
	}
	return fmt.Sprintf("%d/%d/%d/%d/%s/%d.%d/%d", st.AuditCount, st.JournalCount, st.LastRelease, len(st.Inbox), st.SpecDigest, st.Published.Newest, st.Published.Count, refused)
}

func (s *service) fillCheckpoint(*protocol.Checkpoint) {}

func (s *service) resetWork() {
	s.observations, s.checkRuns, s.webhooksInFlight = map[string]*observation{}, map[string]*checkRun{}, map[string]*sending{}
	clear(s.freshReadings)
}

func (s *service) onFirstRun(floor int64) { s.state.MinSequence = max(s.state.MinSequence, floor) }

func (s *service) adoptedState(c protocol.AdoptAnswer, text string) {
	now := s.now()
	s.state.Store = cmp.Or(c.Store, s.state.Store)
	s.applyPauses(c.Pauses, c.Ended)
	s.state.RecordInterruption(now, now.Add(lostApplyGrace))
	s.state.AppendJournal(now, "", text)
	s.recordAudit(entities.EventRestart, nil, text, "")
}

// queueNewestConfiguration makes the service read its newest configuration and the rules of the installation before it decides anything.
// Those of the checkpoint may be older: the service was unmanaged, or was started by someone who does not say what was published meanwhile
// (G2). An update waits for it as for any earlier signal.
func (s *service) queueNewestConfiguration(c protocol.AdoptAnswer) {
	if c.Notified && s.state.Spec != nil {
		s.enqueue(protocol.Publish, json.RawMessage(newestNotice))
		s.untriedSignals++
	}
}

// newestNotice is the payload of a publication that names none: the service reads the newest.
const newestNotice = `{}`

// applyPauses applies the pauses of a wider scope that are in force, because one may have begun while no run could receive it. It also ends
// the pauses that the store records as ended. A pause that the store does not have is kept: it may have been announced before it could be
// stored.
func (s *service) applyPauses(inForce []protocol.ScopePause, ended []protocol.PauseEnded) {
	for _, e := range ended {
		for _, p := range s.state.Pauses {
			if p.Scope == e.Scope && !p.At.After(e.Began) {
				s.state.SetPause(e.Scope, nil, s.now())
			}
		}
	}
	for _, p := range inForce {
		if name, isRuntime := strings.CutPrefix(p.Scope, entities.ScopeRuntime); !isRuntime || s.usesRuntime(name) {
			s.setPause(p)
		}
	}
}
