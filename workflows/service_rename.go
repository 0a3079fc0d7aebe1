package workflows

import (
	"encoding/json"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/loosen"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// rename changes the names of channels and of the service to those of a spec, before the spec is taken over. It waits while a release to a
// renamed channel is in progress, and is refused if two channels would get the same name. The rules of the spec apply meanwhile (G2).
func (s *service) rename(spec *entities.Spec, p protocol.ServicePublish) (waits bool, err error) {
	names, title, invalid := s.state.RenamedChannels(spec), s.state.NewTitle(spec), s.state.CheckChannelKeys(spec)
	if len(names) == 0 && title == "" && invalid == nil {
		return false, nil
	}
	if invalid != nil {
		return false, asRefusal(invalid)
	}
	if s.state.RenameBlocker(names, title) != "" {
		raw, err := json.Marshal(p)
		s.state.ApplyRules(loosen.UnderRules(s.state.Spec, spec, p.Incarnation, loosen.Definitions{}), s.now())
		s.state.DeferIncarnation(state.PendingIncarnation{Incarnation: p.Incarnation, Names: names, Title: title, Publish: raw}, s.now())
		return true, err
	}
	s.state.ApplyNames(spec, entities.Who{Name: p.By, Proven: p.Proven, Subject: p.Subject}, s.now())
	s.state.RenameRuns(names, spec)
	for _, key := range entities.SortedKeys(s.observations) { // their readings would be under the old name
		s.observations[key].cancel()
		delete(s.observations, key)
	}
	return false, nil
}

// resumeAwaiting processes an incarnation that waited, once no release is in progress.
func (s *service) resumeAwaiting() {
	if raw, arrived := s.state.TakeDeferred(); arrived {
		s.enqueue(protocol.Publish, raw)
	}
}
