package workflows

import (
	"encoding/json"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// rename has channels, and the service itself, be called as a spec calls them, before it is taken over. It waits while a release
// is on its way to one of them, and is refused where two channels would be one by that.
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
	for _, key := range entities.SortedKeys(s.watches) { // what they see would be of another name
		s.watches[key].cancel()
		delete(s.watches, key)
	}
	return false, nil
}

// lookAgain takes up an incarnation that waited, once nothing is on its way any more.
func (s *service) lookAgain() {
	if raw, arrived := s.state.Arrived(); arrived {
		s.write(protocol.Publish, raw)
	}
}
