package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/plan"
)

// Letters say what became of each node, and by what it is blocked; what is held takes no place.
func TestLetters_E8_E10(t *testing.T) {
	t.Parallel()
	p, err := plan.Build([]plan.Service{
		{Name: "cache", Targets: []string{"host"}}, {Name: "db", Targets: []string{"host"}}, {Name: "web", Targets: []string{"host"}, Requires: []string{"db"}},
	}, plan.Scope{All: true})
	require.NoError(t, err)
	p.Serial = []string{"host"}
	so := p.Read(".fb")
	require.Equal(t, []plan.Progress{{}, {State: plan.Failed}, {State: plan.Blocked, Cause: 1}}, so)
	require.Equal(t, ".fb", plan.Letters(so))
	for _, s := range []plan.State{plan.Waiting, plan.Running, plan.Held, plan.Done, plan.Failed, plan.Blocked, plan.Superseded} {
		require.Equal(t, s, plan.OfLetter(s.Letter()))
	}
	require.Empty(t, p.Walker(p.Read("r..")).Step(plan.Room{Commands: -1}).Begin)
	step := p.Walker(p.Read("h..")).Step(plan.Room{Limit: 1, Commands: -1})
	require.Equal(t, []int{1}, step.Begin)
	require.False(t, p.Walker(p.Read("hfb")).Step(plan.Room{Limit: 1, Commands: -1}).Over)
	require.Equal(t, "hfb", p.Walker(p.Read("hfb")).Letters())
}

// A service is changed where the work says something else of it, of what runs for it, or of what it has for others.
func TestChangedWork_E7(t *testing.T) {
	t.Parallel()
	work := func() *plan.Work {
		return &plan.Work{
			Services:  []plan.Service{{Name: "traefik"}, {Name: "web", Key: "site"}},
			Commands:  []plan.Command{{Kind: plan.Reconcile, Service: "web"}},
			Fragments: []plan.Fragment{{Service: "web", Aggregator: "traefik", Content: "one"}},
		}
	}
	require.Empty(t, work().Changed(work()))
	now := work()
	now.Fragments[0].Content = "two"
	require.Equal(t, []string{"web"}, now.Changed(work()))
	now = work()
	now.Commands[0].Run.Definition = "another"
	now.Services[0].DNS = true
	now.Services = append(now.Services, plan.Service{Name: "api"})
	require.Equal(t, []string{"api", "traefik", "web"}, now.Changed(work()))
	name, found := work().Called("site")
	require.True(t, found)
	require.Equal(t, "web", name)
	require.Equal(t, "site", work().KeyOf("web"))
}
