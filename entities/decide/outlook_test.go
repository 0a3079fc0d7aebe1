package decide

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// The text fits into an answer for any service.
func TestOutlookIsBounded_I1(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	long := strings.Repeat("é", 200)
	spec := &entities.Spec{Runtimes: map[string]*entities.RuntimeSpec{"edge": {}}}
	payloads := map[entities.InstanceID]string{}
	for n := range 100 {
		c := entities.ChannelSpec{Name: fmt.Sprint(n, long), Instances: []entities.InstanceSpec{{Name: entities.OnlyInstance, Runtime: "edge"}}}
		for k := range 10 {
			topic := fmt.Sprint(n, k, long)
			c.Conditions = append(c.Conditions, entities.Condition{ID: "approval/" + topic, Kind: entities.ManualApproval, Topic: topic})
		}
		spec.Channels = append(spec.Channels, c)
		payloads[c.ID(c.Instances[0])] = "p"
	}
	s := state.New("shop", "web")
	s.ApplySpec(spec, "digest", now)
	s.OpenRelease(state.NewRelease{Version: "v1", FullVersion: "v1", Payloads: payloads, By: "ci"}, now)
	lines := Outlook(s, "v1", spec.ChannelNames(), now)
	require.NotEmpty(t, lines)
	require.LessOrEqual(t, len(lines), 2*maxParts+1)
	for _, line := range lines {
		require.LessOrEqual(t, len(line), len("  ")+maxLine+len("…"))
		require.True(t, utf8.ValidString(line))
	}
	require.Equal(t, lines, Outlook(s, "v1", spec.ChannelNames(), now))
	require.Empty(t, Outlook(state.New("shop", "web"), "v1", nil, now))
}

// The instances of a fleet that a release has reached in part have several versions.
func TestOutlookOfAFleet_I1(t *testing.T) {
	s := state.New("shop", "web")
	s.Spec = &entities.Spec{Channels: []entities.ChannelSpec{{Name: "prod", Instances: []entities.InstanceSpec{{Name: "a"}, {Name: "b"}}}}}
	s.Instances = map[entities.InstanceID]*state.Instance{}
	instances := map[string]*state.Instance{}
	for name, version := range map[string]string{"a": "v2", "b": "v1"} {
		i := &state.Instance{ID: entities.InstanceID{Channel: "prod", Name: name}}
		i.Delivery.Target, i.Delivery.Converged = &entities.Target{FullVersion: version}, true
		s.Instances[i.ID], instances[name] = i, i
	}
	still := func(status entities.Status) string {
		f := outlook{s: s, d: &Decision{}}
		return f.still(&ChannelDecision{Channel: "prod", Status: status}).text
	}
	require.Equal(t, "v2, v1 stay", still(entities.StatusConverged))
	instances["a"].Delivery.Converged = false
	require.Equal(t, "v2 is being deployed", still(entities.StatusConverging))
	instances["b"].Delivery.Target.FullVersion = "v2"
	require.Equal(t, "v2 stays", still(entities.StatusConverged))
}
