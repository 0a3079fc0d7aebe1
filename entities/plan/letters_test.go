package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/plan"
)

// Letters give the state of each node and what blocks it; a held node uses no capacity.
func TestLetters_E8_E10(t *testing.T) {
	t.Parallel()
	p, err := plan.Build([]plan.Service{
		{Name: "cache", Targets: []string{"host"}}, {Name: "db", Targets: []string{"host"}}, {Name: "web", Targets: []string{"host"}, Requires: []string{"db"}},
	}, plan.Scope{All: true})
	require.NoError(t, err)
	p.Serial = []string{"host"}
	states := p.ReadLetters(".fb")
	require.Equal(t, []plan.Progress{{}, {State: plan.Failed}, {State: plan.Blocked, Cause: 1}}, states)
	require.Equal(t, ".fb", plan.Letters(states))
	for _, s := range []plan.State{plan.Waiting, plan.Running, plan.Held, plan.Done, plan.Failed, plan.Blocked, plan.Superseded} {
		require.Equal(t, s, plan.StateOfLetter(s.Letter()))
	}
	require.Empty(t, p.Walker(p.ReadLetters("r..")).Step(plan.Capacity{Commands: -1}).Begin)
	step := p.Walker(p.ReadLetters("h..")).Step(plan.Capacity{Limit: 1, Commands: -1})
	require.Equal(t, []int{1}, step.Begin)
	require.False(t, p.Walker(p.ReadLetters("hfb")).Step(plan.Capacity{Limit: 1, Commands: -1}).Over)
	require.Equal(t, "hfb", p.Walker(p.ReadLetters("hfb")).Letters())
}

// A service is changed if the work differs in the service, in its commands, or in its fragments for others.
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
	changed := work()
	changed.Fragments[0].Content = "two"
	require.Equal(t, []string{"web"}, changed.Changed(work()))
	changed = work()
	changed.Commands[0].Run.Definition = "another"
	changed.Services[0].DNS = true
	changed.Services = append(changed.Services, plan.Service{Name: "api"})
	require.Equal(t, []string{"api", "traefik", "web"}, changed.Changed(work()))
	name, found := work().ServiceByKey("site")
	require.True(t, found)
	require.Equal(t, "web", name)
	require.Equal(t, "site", work().KeyOf("web"))
}
