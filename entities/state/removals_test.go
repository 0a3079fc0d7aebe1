package state

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
)

// removalLines formats a line for each removal.
func removalLines(all []Removal) (lines []string) {
	for _, r := range all {
		line := fmt.Sprintf("%s %s on %s", r.ID, r.Target.FullVersion, r.Runtime)
		if r.KeepReason != "" {
			line += " stays: " + r.KeepReason
		}
		lines = append(lines, line)
	}
	return lines
}

// The removals of a deletion are known before: the last channel first, and why objects are kept.
func TestRemovalsAreListedBeforeADeletion_A24(t *testing.T) {
	s := New("shop", "web")
	declared := func(service bool, channels ...entities.ChannelSpec) *entities.Spec {
		spec := &entities.Spec{Application: "shop", Service: "web", Channels: channels, Remove: service, Runtimes: map[string]*entities.RuntimeSpec{
			"eks": {CanRemove: true}, "old": {CanRemove: true}, "edge": {},
		}}
		for n := range spec.Channels {
			spec.Channels[n].Instances = []entities.InstanceSpec{{Name: entities.Only("").Name, Runtime: map[string]string{"edge": "edge"}[spec.Channels[n].Name]}}
			if spec.Channels[n].Instances[0].Runtime == "" {
				spec.Channels[n].Instances[0].Runtime = "eks"
			}
		}
		return spec
	}
	staging, edge := entities.ChannelSpec{Name: "staging"}, entities.ChannelSpec{Name: "edge"}
	production, empty := entities.ChannelSpec{Name: "production", OnDelete: entities.DeleteRemoves}, entities.ChannelSpec{Name: "new"}
	s.ApplySpec(declared(false, staging, edge, production, empty), "one", dawn)
	for _, id := range s.Spec.IDs() {
		if id.Channel != "new" {
			s.Instance(id).Delivery.Target = &entities.Target{FullVersion: "v1"}
		}
	}
	live := s.Instance(s.Spec.IDs()[2])
	live.PreviousPlacements = []PreviousPlacement{{Runtime: "old", Target: entities.Target{FullVersion: "v0"}}}
	require.Equal(t, []string{
		"production v0 on old", "production v1 on eks", "edge v1 on edge stays: runtime edge cannot remove objects: they are left in place", "staging v1 on eks",
	}, removalLines(s.RemovalsOf("")))
	require.Equal(t, []string{
		"production v0 on old stays: left behind when production moved to eks; it stays", "production v1 on eks",
	}, removalLines(s.RemovalsOf("production")))
	require.Empty(t, s.UndeclaredRemovals(), "all is declared")

	second := *s
	second.Instances = map[entities.InstanceID]*Instance{}
	for id, i := range s.Instances {
		copied := *i
		second.Instances[id] = &copied
	}
	s.ApplySpec(declared(false, staging), "two", dawn)
	require.Equal(t, []string{"production v0 on old", "production v1 on eks"}, removalLines(s.UndeclaredRemovals()), "edge is left in place")
	second.ApplySpec(&entities.Spec{Application: "shop", Service: "web", Remove: true}, "two", dawn)
	require.Len(t, second.UndeclaredRemovals(), 4)
}
