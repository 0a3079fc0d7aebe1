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

// How far a service is with an incarnation follows from the newest of its releases that has entered a channel; the waiting one is that of
// the configuration.
func TestConfigured_D23(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	release := func(id, full string, incarnation int64, staging, prod maestro.Phase) *state.Release {
		return &state.Release{ID: id, Version: "v7", FullVersion: full, Incarnation: incarnation, Phases: map[string]*state.PhaseState{
			"staging": {Phase: staging, Since: at}, "prod": {Phase: prod, Since: at.Add(time.Hour)},
		}}
	}
	s := &state.State{Application: "shop", Service: "web", SpecDigest: "d", Spec: &entities.Spec{
		Incarnation: 12, Channels: []entities.ChannelSpec{{Name: "staging"}, {Name: "prod"}},
	}}
	d := &decide.Decision{Channels: []decide.ChannelDecision{{Channel: "staging"}, {Channel: "prod"}}}
	configured := func(releases ...*state.Release) protocol.Configured {
		s.Releases = releases
		c := view.Configured(s, d, 12)
		require.Equal(t, "service/shop/web", c.Service)
		require.Equal(t, "d", c.Spec)
		c.Service, c.Spec = "", ""
		return c
	}
	first := release("r1", "v7", 11, maestro.Succeeded, maestro.Succeeded)
	require.Equal(t, protocol.Configured{}, configured(first))
	require.Equal(t, protocol.Configured{Release: "r2", Waiting: true}, configured(first, release("r2", "v7-i12", 12, maestro.Pending, maestro.Pending)))
	flags := release("r3", "flags.x577f1208", 12, maestro.Succeeded, maestro.InProgress)
	flags.Aspect = "flags"
	require.Equal(t, protocol.Configured{Release: "r2", Waiting: true}, configured(first, release("r2", "v7-i12", 12, maestro.Pending, maestro.Pending), flags), "values contain no configuration")
	s.Pauses = []entities.Pause{{Channel: "staging", By: "carol"}}
	s.Spec.Channels[0].Instances = []entities.InstanceSpec{{}}
	require.Equal(t, protocol.Configured{Release: "r2", Waiting: true}, configured(first, release("r2", "v7-i12", 12, maestro.Pending, maestro.Pending)), "it can enter prod")
	d.Channels[1].Next = release("r2", "v7-i12", 12, maestro.Pending, maestro.Pending)
	d.Channels[1].Gates = []decide.Judgement{{Kind: decide.KindChannelStable, Verdict: entities.Wait, Reason: "it has not succeeded in staging"}}
	require.Equal(t, protocol.Configured{Release: "r2", Waiting: true, HoldReason: "it has not succeeded in staging"}, configured(first, d.Channels[1].Next))
	s.Spec.Channels[0].Instances = []entities.InstanceSpec{{Name: "eu", Runtime: "eu"}, {Name: "us", Runtime: "us"}}
	s.Pauses = []entities.Pause{{Scope: entities.ScopeRuntime + "eu", By: "carol"}}
	require.Empty(t, configured(d.Channels[1].Next).HoldReason, "it can enter in us")
	s.Pauses = append(s.Pauses, entities.Pause{Scope: entities.ScopeRuntime + "us", By: "carol"})
	require.NotEmpty(t, configured(d.Channels[1].Next).HoldReason)
	s.Pauses, d.Channels[1].Next = nil, nil

	require.Equal(t, protocol.Configured{Release: "r2", Entered: true}, configured(release("r2", "v7-i12", 12, maestro.InProgress, maestro.Pending)))
	require.Equal(t, protocol.Configured{Release: "r2", Entered: true, Succeeded: true, Since: at}, configured(release("r2", "v7-i12", 12, maestro.Succeeded, maestro.InProgress)))
	failed := release("r2", "v7-i12", 12, maestro.Succeeded, maestro.RolledBack)
	require.Equal(t, protocol.Configured{Release: "r2", Entered: true, Succeeded: true, Failed: true, Since: at.Add(time.Hour)}, configured(failed))
	fixed := release("r3", "v8", 12, maestro.Succeeded, maestro.Pending)
	fixed.Version = "v8"
	require.Equal(t, protocol.Configured{Release: "r2", Entered: true, Succeeded: true, Since: at}, configured(failed, fixed))
	require.Equal(t, protocol.Configured{Release: "r2"}, configured(release("r2", "v7-i12", 12, maestro.Skipped, maestro.Cancelled)))

	waiting, newest := release("r2", "v7-i12", 12, maestro.Pending, maestro.Pending), release("r3", "v7-i13", 13, maestro.Pending, maestro.Pending)
	require.Equal(t, protocol.Configured{Release: "r2", Waiting: true, HoldReason: "incarnation 13 replaces it"}, configured(waiting, newest))
	waiting.Strategy = maestro.Train
	require.Equal(t, protocol.Configured{Release: "r2", Waiting: true}, configured(waiting, newest), "each in order")

	s.Spec.Channels[0].Instances[0].Template = "changed"
	require.True(t, configured(first).Opening)
	s.WaitingConfig = 12
	require.False(t, configured(first).Opening, "it waits for the next release")
}
