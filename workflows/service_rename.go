package workflows

import (
	"encoding/json"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// rename changes the names of channels and of the service to those of a spec, before the spec is taken over. It waits while a release to a
// renamed channel is in progress, and is refused if two channels would get the same name.
func (s *service) rename(spec *entities.Spec, p protocol.ServicePublish) (waits bool, err error) {
	names, title, wrong := s.state.Renames(spec), s.state.Retitled(spec), s.state.CheckSpec(spec)
	if len(names) == 0 && title == "" && wrong == nil {
		return false, nil
	}
	if wrong != nil {
		return false, refused(wrong)
	}
	if s.state.OnTheWay(names, title) != "" {
		raw, err := json.Marshal(p)
		s.state.Await(state.Awaiting{Incarnation: p.Incarnation, Names: names, Title: title, Publish: raw}, s.now())
		return true, err
	}
	s.state.TakeNames(spec, entities.Who{Name: p.By, Proven: p.Proven, Subject: p.Subject}, s.now())
	s.state.RenameRuns(names, spec)
	for _, key := range entities.SortedKeys(s.watches) { // their readings would be under the old name
		s.watches[key].cancel()
		delete(s.watches, key)
	}
	return false, nil
}

// lookAgain processes an incarnation that waited, once no release is in progress.
func (s *service) lookAgain() {
	if raw, arrived := s.state.Arrived(); arrived {
		s.write(protocol.Publish, raw)
	}
}
