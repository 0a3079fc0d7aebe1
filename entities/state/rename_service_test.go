package state

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// titled is a spec of the service web with another name.
func titled(name string) *entities.Spec {
	spec := calling("production", "")
	spec.Service, spec.ServiceID, spec.Name = "web", "shop.web", name
	return spec
}

// A renamed service stays the same: its trail records the name, and people get commands with the new name. The rest of it keeps that name
// after it is not declared any more.
func TestAServiceIsCalledOtherwise(t *testing.T) {
	s := remembered("production")
	require.Empty(t, s.Retitled(calling("production", "")))
	spec := titled("frontend")
	require.Equal(t, "frontend", s.Retitled(spec))
	s.TakeNames(spec, entities.Who{Name: "dave"}, dawn)
	require.Nil(t, s.TakeSpec(spec, "two", dawn), "nothing is released")
	require.Equal(t, "frontend", s.Title())
	last := s.Audit[len(s.Audit)-1]
	require.Equal(t, "web is called frontend from incarnation 2 on by dave", last.Text+" by "+last.Who.Name)
	require.Equal(t, "converge resume shop/frontend", s.ResumeWith(entities.Pause{}))

	s.TakeSpec(&entities.Spec{Application: "shop", Service: "web"}, "", dawn)
	require.Equal(t, []string{"frontend", "shop.web"}, []string{s.Title(), s.Spec.ServiceID}, "the remaining spec")
	require.Empty(t, s.Retitled(&entities.Spec{Application: "shop", Service: "web"}))
	require.Equal(t, "web", s.Retitled(titled("")), "and back")
	s.TakeSpec(titled(""), "three", dawn)
	require.Equal(t, "web", s.Title())
}

// Any release in progress, in any channel, blocks the new name.
func TestAServiceKeepsItsNameForARelease(t *testing.T) {
	s := remembered("production")
	s.Releases[0].Phases["production"].Phase = maestro.Pending
	require.Equal(t, "web is renamed to frontend once none of its releases is in progress: v1 is pending in production", s.OnTheWay(nil, "frontend"))
	s.Await(Awaiting{Incarnation: 2, Title: "frontend", Publish: json.RawMessage(`{}`)}, dawn)
	_, arrived := s.Arrived()
	require.False(t, arrived)
	s.Releases[0].Phases["production"].Phase = maestro.Succeeded
	_, arrived = s.Arrived()
	require.True(t, arrived)
}
