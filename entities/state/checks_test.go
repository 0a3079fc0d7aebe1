package state_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// A check is evaluated for an instance that gets a payload from the release, and that is present: for a drained instance, or a new one
// without a version for the values, there would be nothing to evaluate.
func TestEvaluationUsesAnInstanceWithAPayload_A16_A20_B5(t *testing.T) {
	t.Parallel()
	channel := entities.ChannelSpec{Name: "prod", Instances: []entities.InstanceSpec{{Name: "a", Runtime: "a"}, {Name: "b", Runtime: "b"}, {Name: "c", Runtime: "c"}}}
	id := func(name string) entities.InstanceID { return entities.InstanceID{Channel: "prod", Name: name} }
	check := &entities.Check{ID: "bad-versions", Kind: entities.CheckDeniedVersions, Remote: true}
	s := state.New("shop", "web")
	s.Spec = &entities.Spec{Channels: []entities.ChannelSpec{channel}}
	r := &state.Release{ID: "2", FullVersion: "flags.x577f1208", Aspect: "flags", MergedTargets: map[entities.InstanceID]state.MergedTarget{}}
	for _, name := range []string{"b", "c"} {
		i := s.Instance(id(name))
		i.Delivery.Target = &entities.Target{FullVersion: "v7", Payload: "old-" + name}
		r.MergedTargets[id(name)] = state.MergedTarget{Version: "v7", Target: entities.Target{FullVersion: "v7-flags.x577f1208", Payload: "new-" + name}}
	}
	asked := func(r *state.Release) entities.Evaluation { return s.Evaluation(&channel, check, r) }
	require.Equal(t, "v7-flags.x577f1208 new-b b", asked(r).FullVersion+" "+asked(r).Payload+" "+asked(r).Runtime, "a has nothing yet")
	require.Equal(t, "v7 old-b b", asked(nil).FullVersion+" "+asked(nil).Payload+" "+asked(nil).Runtime)
	s.Instance(id("b")).Drained = true
	require.Equal(t, "v7-flags.x577f1208 new-c c", asked(r).FullVersion+" "+asked(r).Payload+" "+asked(r).Runtime)
	require.Equal(t, "v7 old-c c", asked(nil).FullVersion+" "+asked(nil).Payload+" "+asked(nil).Runtime)
}
