package state

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
)

// A report-only channel repairs nothing and lets nothing enter, and its instances count as only reported until a target is set again.
func TestReportOnlyChannel_A25(t *testing.T) {
	s := populatedState("production")
	spec := *s.Spec
	spec.Channels = append([]entities.ChannelSpec(nil), spec.Channels...)
	spec.Channels[0].Drift = entities.DriftEnforce
	spec.Channels[0].SetReportOnly()
	s.ApplySpec(&spec, "two", dawn)
	require.True(t, s.IsReportOnly("production"))

	require.Equal(t, entities.DriftObserve, spec.Channels[0].Drift, "an older version repairs nothing")
	last := spec.Channels[0].Conditions[len(spec.Channels[0].Conditions)-1]
	require.Equal(t, entities.ConditionKind("report"), last.Kind, "and admits no release")
	require.True(t, spec.Channels[0].Repairs(), "this version knows the policy that would apply")
	require.False(t, (&entities.ChannelSpec{Drift: entities.DriftObserve, Report: entities.DriftObserve}).Repairs())

	i := s.Instance(entities.Only("production"))
	i.Delivery.Converged, i.Delivery.Rollback, i.Delivery.Failure, s.Pins = false, nil, "", nil
	enforced := spec
	enforced.Channels = append([]entities.ChannelSpec(nil), spec.Channels...)
	enforced.Channels[0].Report = ""
	s.ApplySpec(&enforced, "three", dawn)
	require.True(t, i.Delivery.ReportedOnly)
	s.setTarget(i, *i.Delivery.Target, dawn)
	require.False(t, i.Delivery.ReportedOnly)
}
