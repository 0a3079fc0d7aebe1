package state

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// channelSpec is a spec with one channel of that name, with its key.
func channelSpec(name, key string) *entities.Spec {
	return &entities.Spec{
		Application: "shop", Service: "web", Incarnation: 2, Runtimes: map[string]*entities.RuntimeSpec{"rt": {}},
		Channels: []entities.ChannelSpec{{
			Name: name, Key: key, Instances: []entities.InstanceSpec{{Name: entities.OnlyInstance, Runtime: "rt", Template: "t"}},
			Conditions: []entities.Condition{{ID: "approval/" + name, Kind: entities.ManualApproval, Topic: name}},
		}},
	}
}

// populatedState is a state with every kind of data of a channel.
func populatedState(channel string) *State {
	id := entities.Only(channel)
	s := New("shop", "web")
	s.ApplySpec(channelSpec(channel, ""), "one", dawn)
	there := entities.Target{FullVersion: "v1", Payload: "p1"}
	i := s.Instance(id)
	i.Delivery.Target, i.Delivery.LastGood, i.Delivery.Converged, i.Delivery.Sequence = &there, &there, true, 7
	i.Approval.Given = &entities.Approval{Topic: ApplyTopic + channel, Version: "v1"}
	s.Pins = []Pin{{Channel: channel, Version: "v1", Targets: map[string]entities.Target{entities.OnlyInstance: there}}}
	s.Pauses = []entities.Pause{{Channel: channel, By: "bob"}, {Scope: entities.ScopeApplication, By: "eve"}}
	s.Releases = []*Release{{
		ID: "1", Version: "v1", FullVersion: "v1", Payloads: map[entities.InstanceID]string{id: "p1"}, Templates: map[entities.InstanceID]string{id: "t"},
		Phases:    map[string]*PhaseState{channel: {Phase: maestro.RolledBack, Revoked: true}},
		Approvals: []entities.Approval{{Topic: channel, Who: entities.Who{Name: "alice"}, Withdrawn: map[string]string{channel: "it failed", "other": "too"}}},
		Bypasses:  []entities.Bypass{{Channel: channel, Condition: "approval/" + channel, Who: entities.Who{Name: "carol"}}},
		Present:   map[entities.InstanceID]entities.Target{id: there},
		Runtimes:  map[entities.InstanceID]string{id: "rt"},
		Extensions: map[string]*ExtensionState{
			"post-approval/migrate@" + channel: {Done: true, ExtensionProgress: entities.ExtensionProgress{Channel: channel}},
		},
	}}
	return s
}

// All state of a channel moves to its new name, and nothing is released for that. A rename back restores the earlier state.
func TestChannelRename(t *testing.T) {
	s := populatedState("production")
	spec := channelSpec("prod", "production")
	require.Equal(t, map[string]string{"production": "prod"}, s.RenamedChannels(spec))
	require.NoError(t, s.CheckChannelKeys(spec))
	require.Empty(t, s.RenameBlocker(s.RenamedChannels(spec), ""))
	s.ApplyNames(spec, entities.Who{Name: "dave"}, dawn)
	require.Nil(t, s.ApplySpec(spec, "two", dawn), "nothing is released")

	require.Equal(t, entities.Only("production"), s.Key(entities.Only("prod")))
	require.Equal(t, entities.Only("prod"), s.IDByKey(entities.Only("production")))
	require.Equal(t, map[string]string{"prod": "production"}, s.Keys())
	require.Equal(t, "production is called prod from incarnation 2 on", s.Audit[len(s.Audit)-1].Text)
	require.Equal(t, "dave", s.Audit[len(s.Audit)-1].Who.Name)
	raw, err := json.Marshal(struct {
		A, B, C, D, E any
	}{s.Instances, s.Pins, s.Pauses, s.Releases, s.Channels})
	require.NoError(t, err)
	want := populatedState("prod")
	want.Channels["prod"].Key = "production"
	wantRaw, err := json.Marshal(struct {
		A, B, C, D, E any
	}{want.Instances, want.Pins, want.Pauses, want.Releases, want.Channels})
	require.NoError(t, err)
	var a, b any
	require.NoError(t, json.Unmarshal(raw, &a))
	require.NoError(t, json.Unmarshal(wantRaw, &b))
	release := func(v any) map[string]any { return v.(map[string]any)["D"].([]any)[0].(map[string]any) }
	delete(release(a), "extensions") // which keeps the name of its run
	delete(release(b), "extensions")
	require.Equal(t, b, a)

	back := channelSpec("production", "")
	s.ApplyNames(back, entities.Who{}, dawn)
	require.Nil(t, s.ApplySpec(back, "three", dawn))
	require.Equal(t, int64(7), s.Instance(entities.Only("production")).Delivery.Sequence)
}

// The result of an extension in a channel counts under its new name. A result does not move if the configuration names it otherwise, or
// while it is running.
func TestExtensionsDoNotRunAgainAfterARename_A21(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*State, *entities.Spec)
		want   string
	}{
		"done": {func(*State, *entities.Spec) {}, "post-approval/migrate@prod"},
		"running": {func(s *State, _ *entities.Spec) {
			s.Releases[0].Extensions["post-approval/migrate@production"].Running = true
		}, "post-approval/migrate@production"},
		"of a group": {func(_ *State, spec *entities.Spec) { spec.Channels[0].Extensions[0].Key = "production" }, "post-approval/migrate@production"},
	} {
		s, spec := populatedState("production"), channelSpec("prod", "production")
		spec.Channels[0].Extensions = []entities.Extension{{Name: "migrate", Stage: "post-approval", Key: "prod"}}
		c.change(s, spec)
		names := s.RenamedChannels(spec)
		s.ApplyNames(spec, entities.Who{Name: "dave"}, dawn)
		s.RenameRuns(names, spec)
		require.Equal(t, []string{c.want}, entities.SortedKeys(s.Releases[0].Extensions), name)
	}
}

// A release in progress blocks a new name of its channel, and two channels never have the same key.
func TestRefusedRenames(t *testing.T) {
	s := populatedState("production")
	s.Releases[0].Phases["production"].Phase = maestro.Pending
	names := s.RenamedChannels(channelSpec("prod", "production"))
	require.Equal(t, "production is renamed to prod once no release is in progress there: v1 is pending", s.RenameBlocker(names, ""))

	s = populatedState("production")
	both := channelSpec("prod", "production")
	both.Channels = append(both.Channels, channelSpec("production", "").Channels...)
	require.ErrorContains(t, s.CheckChannelKeys(both), "have the same identity")

	s = populatedState("production")
	i := s.Instance(entities.Only("prod")) // objects of an earlier channel remain
	i.Delivery.Target = &entities.Target{FullVersion: "v0"}
	s.Channel("prod")
	require.EqualError(t, s.CheckChannelKeys(channelSpec("prod", "production")),
		"production cannot be renamed to prod: an earlier release channel with that name still has objects; choose another name")
}
