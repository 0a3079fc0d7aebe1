package state

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
)

func handoverSpec(readOnly bool) *entities.Spec {
	spec := &entities.Spec{
		Application: "shop", Service: "web", Runtimes: map[string]*entities.RuntimeSpec{"eks": {Kind: entities.RuntimeKubernetes, ReadOnly: readOnly}},
		Channels: []entities.ChannelSpec{{Name: "production", Instances: []entities.InstanceSpec{{Name: entities.OnlyInstance, Runtime: "eks"}}}},
	}
	spec.Channels[0].SetReportOnly()
	return spec
}

// An adoption lasts over publications that still declare the channel report-only, and ends with that declaration, where nothing may be
// written, and with a return.
func TestAdoptionLasts_A25(t *testing.T) {
	now, alice := time.Unix(1000, 0), entities.Who{Name: "alice"}
	begun := func() *State {
		s := &State{Application: "shop", Service: "web"}
		s.ApplySpec(handoverSpec(false), "one", now)
		require.True(t, s.IsReportOnly("production"))
		effect, err := s.Adopt("", alice, "it works", now)
		require.NoError(t, err)
		require.Equal(t, "shop/web is adopted in production: Converge applies there once the gates pass", effect())
		require.False(t, s.IsReportOnly("production"))
		require.Equal(t, entities.DriftEnforce, s.Spec.Channels[0].Drift)
		require.Empty(t, s.Spec.Channels[0].Conditions)
		return s
	}
	s := begun()
	s.ApplySpec(handoverSpec(false), "two", now)
	require.False(t, s.IsReportOnly("production"))
	s.ApplyRules(handoverSpec(false), now)
	require.False(t, s.IsReportOnly("production"))
	_, err := s.Adopt("production", alice, "", now)
	require.ErrorContains(t, err, "is not report-only: Converge applies there already")

	effect, err := s.Return("", alice, "after the migration", now)
	require.NoError(t, err)
	require.Equal(t, "shop/web is returned in production: Converge only reports there; the history shows when its objects are given up", effect())
	require.True(t, s.IsReportOnly("production"))
	s.ApplySpec(handoverSpec(false), "three", now)
	require.True(t, s.IsReportOnly("production"))
	_, err = s.Return("production", alice, "", now)
	require.ErrorContains(t, err, "was not adopted: to stop applying there, declare enforcement: report")

	s = begun()
	s.ApplySpec(handoverSpec(true), "read", now)
	require.True(t, s.IsReportOnly("production"))
	_, err = s.Adopt("production", alice, "", now)
	require.ErrorContains(t, err, "runtime eks of production has access: read")

	s = begun()
	enforced := handoverSpec(false)
	enforced.Channels[0].Enforce()
	s.ApplySpec(enforced, "enforced", now)
	require.Nil(t, s.Channels["production"].Adopted)
	s.ApplySpec(handoverSpec(false), "report again", now)
	require.True(t, s.IsReportOnly("production"))
}

// A return that failed can be repeated, one that is under way holds an adoption, and one that is done does neither.
func TestReturnIsRepeatedUntilItIsDone_A25(t *testing.T) {
	now, alice := time.Unix(1000, 0), entities.Who{Name: "alice"}
	s := &State{Application: "shop", Service: "web"}
	s.ApplySpec(handoverSpec(false), "one", now)
	instance := s.InstancesIn("production")[0]
	instance.Delivery.Target = &entities.Target{FullVersion: "v1"}
	do := func(effect Effect, err error) {
		t.Helper()
		require.NoError(t, err)
		effect()
	}
	do(s.Adopt("", alice, "", now))
	do(s.Return("", alice, "", now))
	_, err := s.Adopt("", alice, "", now)
	require.ErrorContains(t, err, "is being returned, by alice")
	s.RecordSteer(instance.ID, *instance.Steer, nil, "forbidden", now)
	require.Contains(t, s.Journal[len(s.Journal)-1].Text, "return of v1 failed: forbidden; to try again: converge return shop/web production")

	now = now.Add(time.Minute)
	do(s.Return("production", alice, "", now))
	require.True(t, s.IsReportOnly("production"))
	require.Len(t, s.Spec.Channels[0].Conditions, 1, "it is marked once")
	s.RecordSteer(instance.ID, *instance.Steer, []string{"1 object given up"}, "", now)
	_, err = s.Return("production", alice, "", now)
	require.ErrorContains(t, err, "was not adopted")
	do(s.Adopt("production", alice, "", now))
	require.False(t, s.IsReportOnly("production"))
}
