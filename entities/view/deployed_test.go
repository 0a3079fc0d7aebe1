package view_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/view"
)

// The result of a plan in a service is that of the releases of the plan, or of those that replaced them.
func TestDeployed_E10_E13(t *testing.T) {
	t.Parallel()
	type release struct {
		id, full    string
		incarnation int64
		phase       maestro.Phase
	}
	config := protocol.DeployedQuestion{Channel: "prod", Incarnation: 3, Since: 2}
	byHand := protocol.DeployedQuestion{Channel: "prod", Release: "2"}
	for name, c := range map[string]struct {
		releases []release
		question protocol.DeployedQuestion
		want     string
	}{
		"nothing was released":                   {nil, config, "done nothing changes"},
		"no release since the last plan":         {[]release{{"1", "v1", 1, maestro.Failed}}, config, "done nothing changes"},
		"it succeeded":                           {[]release{{"1", "v1-i3", 3, maestro.Succeeded}}, config, "done v1-i3"},
		"it is on its way":                       {[]release{{"1", "v1-i3", 3, maestro.InProgress}}, config, "running v1-i3"},
		"it failed":                              {[]release{{"1", "v1-i3", 3, maestro.RolledBack}}, config, "failed v1-i3 rolled back: why"},
		"an older release does not count":        {[]release{{"1", "v1-i2", 2, maestro.Succeeded}, {"2", "v1-i3", 3, maestro.InProgress}}, config, "running v1-i3"},
		"a newer release does not count":         {[]release{{"1", "v1-i3", 3, maestro.InProgress}, {"2", "v1-i4", 4, maestro.Failed}}, config, "running v1-i3"},
		"an older plan was cancelled":            {[]release{{"1", "v1-i2", 2, maestro.Cancelled}}, config, "failed v1-i2 cancelled: why"},
		"skipped, and its replacement succeeded": {[]release{{"1", "v1-i3", 3, maestro.Skipped}, {"2", "v2", 4, maestro.Succeeded}}, config, "done v2"},
		"skipped, and its replacement failed":    {[]release{{"1", "v1-i3", 3, maestro.Skipped}, {"2", "v2", 4, maestro.Failed}}, config, "failed v2 failed: why"},
		"by hand, after another release":         {[]release{{"1", "v1", 3, maestro.Succeeded}, {"2", "v2", 3, maestro.InProgress}}, byHand, "running v2"},
		"by hand, skipped by a later release":    {[]release{{"2", "v2", 3, maestro.Skipped}, {"3", "v3", 3, maestro.Succeeded}}, byHand, "done v3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := state.New("home", "web")
			s.Spec = &entities.Spec{Channels: []entities.ChannelSpec{{Name: "prod"}}}
			for _, r := range c.releases {
				s.Releases = append(s.Releases, &state.Release{
					ID: r.id, Version: r.full, FullVersion: r.full, Incarnation: r.incarnation,
					Phases: map[string]*state.PhaseState{"prod": {Phase: r.phase, Since: time.Unix(0, 0), Reason: "why"}},
				})
			}
			d := view.Deployed(s, &decide.Decision{}, c.question)
			require.Equal(t, c.want, d.State+" "+d.Text)
		})
	}
}

// While the store does not answer, the changes of a new configuration are pending. A release that cannot be rendered is not.
func TestNotDeployedYet_E10(t *testing.T) {
	t.Parallel()
	s := state.New("home", "web")
	s.Spec = &entities.Spec{Incarnation: 3, Channels: []entities.ChannelSpec{{Name: "prod", Instances: []entities.InstanceSpec{{Name: entities.OnlyInstance, Template: "new"}}}}}
	s.Releases = []*state.Release{{
		ID: "1", Version: "v1", FullVersion: "v1", Incarnation: 1, Templates: map[entities.InstanceID]string{{Channel: "prod", Name: entities.OnlyInstance}: "old"},
		Phases: map[string]*state.PhaseState{"prod": {Phase: maestro.Succeeded}},
	}}
	deployed := func() string {
		d := view.Deployed(s, &decide.Decision{}, protocol.DeployedQuestion{Channel: "prod", Incarnation: 3, Since: 2})
		return d.State + " " + d.Text
	}
	require.Equal(t, "running its release is being prepared", deployed())
	s.Problem, s.TransientProblem = "the store does not answer", state.ProblemStore
	require.Equal(t, "running its release is being prepared: the store does not answer", deployed())
	s.RenderFailure = "incarnation 3 is not released: no value"
	require.Equal(t, "failed incarnation 3 is not released: no value", deployed())
	s.Problem, s.TransientProblem = "", ""
	require.Equal(t, "failed incarnation 3 is not released: no value", deployed())
	s.Problem, s.RenderFailure = "incarnation 3 is not released", "" // as another version had it
	require.Equal(t, "failed incarnation 3 is not released", deployed())
}

// A service that has taken over what a plan deploys, and has yet to render its first release, or one of another version, has not deployed
// it.
func TestUnrenderedFirstReleaseIsNotDeployed_E10(t *testing.T) {
	t.Parallel()
	id := entities.InstanceID{Channel: "prod", Name: entities.OnlyInstance}
	channels := []entities.ChannelSpec{{Name: "prod", Instances: []entities.InstanceSpec{{Name: id.Name, Template: "t"}}}}
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for name, spec := range map[string]entities.Spec{
		"the first":       {Incarnation: 3, InitialVersion: "v1", Channels: channels},
		"another version": {Incarnation: 3, Version: "v2", Channels: channels},
	} {
		s := state.New("home", "web")
		if spec.Version != "" {
			s.Releases = []*state.Release{{
				ID: "1", Version: "v1", FullVersion: "v1", Incarnation: 1, Templates: map[entities.InstanceID]string{id: "t"},
				Phases: map[string]*state.PhaseState{"prod": {Phase: maestro.Succeeded}},
			}}
		}
		deployed := func() string {
			d := view.Deployed(s, &decide.Decision{}, protocol.DeployedQuestion{Channel: "prod", Incarnation: 3, Since: 2})
			return d.State + " " + d.Text
		}
		require.NotNil(t, s.ApplySpec(&spec, "digest", now), name)
		require.Equal(t, "running its release is being prepared", deployed(), name)
		s.RenderingIncarnation = 0
		require.Equal(t, "done nothing changes", deployed(), name)
		require.Nil(t, s.ApplySpec(&entities.Spec{Incarnation: 4}, "other", now), name)
		require.Zero(t, s.RenderingIncarnation, name)
	}
}
