package state

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// titled is a spec of the service web under another name.
func titled(name string) *entities.Spec {
	spec := calling("production", "")
	spec.Service, spec.ServiceID, spec.Name = "web", "shop.web", name
	return spec
}

// A service that is called otherwise is the same: its trail says so, and people are told commands with the new name. What is left of
// it once it is not declared any more keeps that name, too.
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
	require.Equal(t, []string{"frontend", "shop.web"}, []string{s.Title(), s.Spec.ServiceID}, "what is left of it")
	require.Empty(t, s.Retitled(&entities.Spec{Application: "shop", Service: "web"}))
	require.Equal(t, "web", s.Retitled(titled("")), "and back")
	s.TakeSpec(titled(""), "three", dawn)
	require.Equal(t, "web", s.Title())
}

// Any release that is on its way keeps the name, wherever it is.
func TestAServiceKeepsItsNameForARelease(t *testing.T) {
	s := remembered("production")
	s.Releases[0].Phases["production"].Phase = maestro.Pending
	require.Equal(t, "web is called frontend once no release of it is on its way: v1 is pending in production", s.OnTheWay(nil, "frontend"))
	s.Await(Awaiting{Incarnation: 2, Title: "frontend", Publish: json.RawMessage(`{}`)}, dawn)
	_, arrived := s.Arrived()
	require.False(t, arrived)
	s.Releases[0].Phases["production"].Phase = maestro.Succeeded
	_, arrived = s.Arrived()
	require.True(t, arrived)
}
