package state

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// The state of values that pass a release survives a rename of the channel, and keeps the runtime that it was rendered for.
func TestAside_B5(t *testing.T) {
	id, now := entities.InstanceID{Channel: "prod", Name: "eu-1"}, time.Unix(0, 0)
	version := &Release{ID: "1", Phases: map[string]*PhaseState{"prod": {Phase: maestro.InProgress, Aside: &Aside{ConvergedAt: map[entities.InstanceID]time.Time{id: now}}}}}
	values := &Release{ID: "2", Aspect: "flags", Phases: map[string]*PhaseState{"prod": {Phase: maestro.InProgress}}, RollbackTargets: map[entities.InstanceID]MergedTarget{id: {Version: "v1"}}}
	s := New("shop", "web")
	s.Spec = &entities.Spec{Aspects: []entities.Aspect{{Name: "flags"}}, Channels: []entities.ChannelSpec{{Name: "prod"}}}
	s.Releases = []*Release{version, values}
	s.fixRuntime(id, "eu")
	require.Equal(t, "eu", values.RollbackTargets[id].Runtime)

	renamed := entities.InstanceID{Channel: "production", Name: "eu-1"}
	for _, r := range s.Releases {
		r.rename("prod", "production", s.Spec)
	}
	require.Contains(t, values.RollbackTargets, renamed)
	require.Contains(t, version.Phases["production"].Aside.ConvergedAt, renamed)
}
