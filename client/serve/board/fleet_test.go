package board

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// A fleet is shown whole, in the order of its steps, by pages; a status selects.
func TestPageOfAFleet(t *testing.T) {
	spec := entities.ChannelSpec{Name: "production", Rollout: &entities.Rollout{Steps: []entities.RolloutStep{{Instances: &entities.Amount{Percent: 10}}}}}
	for n := range 250 {
		spec.Instances = append(spec.Instances, entities.InstanceSpec{Name: fmt.Sprintf("i%03d", n), Runtime: "eks"})
	}
	s := state.New("shop", "web")
	s.Spec = &entities.Spec{Application: "shop", Service: "web", Channels: []entities.ChannelSpec{spec}, Runtimes: map[string]*entities.RuntimeSpec{"eks": {Observable: true}}}
	i := shop()
	i.states = map[string]*state.State{"service/shop/web": s}
	get := served(t, i)

	status, html, _ := get("/services/shop/web/fleet/production")
	require.Equal(t, http.StatusOK, status, html)
	for _, text := range []string{"of 250 instances", "Rollout: 10%.", "i000", "i099", `href="?from=100"`, "errors: PASS"} {
		require.Contains(t, html, text)
	}
	require.NotContains(t, html, "i100")
	require.NotContains(t, html, "<script>alert")
	_, html, _ = get("/services/shop/web/fleet/production?from=200")
	require.Contains(t, html, "i249")
	require.NotContains(t, html, "More instances")
	_, html, _ = get("/services/shop/web/fleet/production?status=FAILED&from=x")
	require.Contains(t, html, "No instance has this status now")
	for path, want := range map[string]string{
		"/services/shop/web/fleet/staging":  "shop/web has no fleet in a release channel staging.",
		"/services/shop/none/fleet/staging": "no service shop/none",
	} {
		status, html, _ = get(path)
		require.Equal(t, http.StatusNotFound, status)
		require.Contains(t, html, want)
	}
}

// A sheet says what the answer to an act would be, and which versions it would bring, without changing anything.
func TestWhatAnActWouldDo(t *testing.T) {
	fresh := func() state.State {
		s := state.New("shop", "web")
		s.Spec = &entities.Spec{
			Application: "shop", Service: "web", Channels: []entities.ChannelSpec{{Name: "production", Instances: []entities.InstanceSpec{{Name: entities.OnlyInstance}}}},
			Grants: []entities.Grant{{Verbs: []string{"pin"}, To: []string{"bob"}}},
		}
		return *s
	}
	n := connection.ServiceName{Application: "shop", Service: "web"}
	for _, c := range []struct {
		verb    string
		fields  []string
		who     string // signed in; "": no one
		answer  string
		refused string
	}{
		{protocol.Pause, []string{"channel", "production"}, "", "shop/web production is paused", ""},
		{protocol.Pause, []string{"channel", "nowhere"}, "", "", "nowhere"},
		{protocol.Resume, []string{"channel", "production"}, "", "shop/web production is not paused", ""},
		{protocol.Pin, []string{"channel", "production", "version", "v1"}, "carol", "", "carol may not pin in production; allowed: bob"},
		{protocol.Release, []string{"version", "v2"}, "", "", ""}, // it reads the store
	} {
		given := map[string][]string{}
		for k := 0; k < len(c.fields); k += 2 {
			given[c.fields[k]] = []string{c.fields[k+1]}
		}
		s := sheet{Verb: c.verb, Service: n}
		if c.who != "" {
			s.Known, s.who = true, entities.Who{Name: c.who, Proven: true}
		}
		got := s.try(verb.Find(verb.Service(), c.verb), fresh(), given, now)
		require.Equal(t, c.answer, got.Answer, c.verb)
		require.Contains(t, got.Refused, c.refused, c.verb)
		require.Equal(t, c.refused == "", got.Refused == "", "%s: %s", c.verb, got.Refused)
	}
	require.Equal(t, trial{}, (&sheet{}).try(verb.Find(verb.Service(), protocol.Pause), state.State{}, nil, now), "without a configuration nothing is known")

	back := trial{Targets: map[string]string{"eu": "v1", "us": "v1", "staging": "v2"}}
	require.Equal(t, []string{"v1", "v2"}, (&sheet{Verb: protocol.Rollback}).versionsAfter(back, ""))
	require.Equal(t, []string{"v3"}, (&sheet{Verb: protocol.Bypass}).versionsAfter(trial{}, "v3"))
	require.Empty(t, (&sheet{Verb: protocol.Pause}).versionsAfter(back, ""))
}
