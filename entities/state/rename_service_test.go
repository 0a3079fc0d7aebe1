package state

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// renamedSpec is a spec of the service web with another name.
func renamedSpec(name string) *entities.Spec {
	spec := channelSpec("production", "")
	spec.Service, spec.ServiceID, spec.Name = "web", "shop.web", name
	return spec
}

// A renamed service stays the same: its trail records the name, and people get commands with the new name. The rest of it keeps that name
// after it is not declared any more.
func TestServiceRename(t *testing.T) {
	s := populatedState("production")
	require.Empty(t, s.NewTitle(channelSpec("production", "")))
	spec := renamedSpec("frontend")
	require.Equal(t, "frontend", s.NewTitle(spec))
	s.ApplyNames(spec, entities.Who{Name: "dave"}, dawn)
	require.Nil(t, s.ApplySpec(spec, "two", dawn), "nothing is released")
	require.Equal(t, "frontend", s.Title())
	last := s.Audit[len(s.Audit)-1]
	require.Equal(t, "web is called frontend from incarnation 2 on by dave", last.Text+" by "+last.Who.Name)
	require.Equal(t, "converge resume shop/frontend", s.ResumeCommand(entities.Pause{}))

	s.ApplySpec(&entities.Spec{Application: "shop", Service: "web"}, "", dawn)
	require.Equal(t, []string{"frontend", "shop.web"}, []string{s.Title(), s.Spec.ServiceID}, "the remaining spec")
	require.Empty(t, s.NewTitle(&entities.Spec{Application: "shop", Service: "web"}))
	require.Equal(t, "web", s.NewTitle(renamedSpec("")), "and back")
	s.ApplySpec(renamedSpec(""), "three", dawn)
	require.Equal(t, "web", s.Title())
}

// Any release in progress, in any channel, blocks the new name.
func TestReleaseInProgressBlocksServiceRename(t *testing.T) {
	s := populatedState("production")
	s.Releases[0].Phases["production"].Phase = maestro.Pending
	require.Equal(t, "web is renamed to frontend once none of its releases is in progress: v1 is pending in production", s.RenameBlocker(nil, "frontend"))
	s.DeferIncarnation(PendingIncarnation{Incarnation: 2, Title: "frontend", Publish: json.RawMessage(`{}`)}, dawn)
	_, arrived := s.TakeDeferred()
	require.False(t, arrived)
	s.Releases[0].Phases["production"].Phase = maestro.Succeeded
	_, arrived = s.TakeDeferred()
	require.True(t, arrived)
}
