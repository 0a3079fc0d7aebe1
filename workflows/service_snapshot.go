package workflows

import "github.com/converge-engine/converge/entities"

// snapshot answers the state query. What waits to be carried out is left out: it may hold tokens.
func (s *service) snapshot() (*entities.State, error) {
	state := *s.state
	state.Inbox, state.Requests = nil, nil
	return &state, nil
}
