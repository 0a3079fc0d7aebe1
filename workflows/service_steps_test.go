package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// inSteps makes production a fleet of four: a release goes to one instance first, and to the others ten minutes later.
func inSteps(p *play) {
	c := &p.spec.Channels[1]
	c.Instances = nil
	for _, name := range []string{"eu", "us", "jp", "au"} {
		c.Instances = append(c.Instances, entities.InstanceSpec{Name: name, Runtime: "edge", Template: "t"})
	}
	c.RollOut(entities.Rollout{Steps: []entities.RolloutStep{{Instances: &entities.Amount{Number: 1}}, {Pause: 10 * time.Minute}}})
}

// A run that ends in the pause between two steps hands the pause on: the next run wakes at its end, and takes the next step then (D23,
// D24).
func TestServiceTakesTheNextStepInAnotherRun_D23_D24(t *testing.T) {
	p := newPlay(t)
	inSteps(p)
	p.publishes(0)
	p.sends(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.sees(minute, func(s protocol.Status) {
		require.Contains(t, s.Channels[1].Reasons[1].Text, "step 2 of 2: 1 of 4 at v1; next 3 at ")
	})
	next := p.acts(first, 3*minute)
	require.ElementsMatch(t, []string{"apply v1 to staging", "apply v1 to prod/eu"}, p.work("keep"))

	later := newPlay(t)
	inSteps(later)
	later.follows(p)
	later.sees(minute, func(s protocol.Status) { require.Contains(t, s.Channels[1].Reasons[0].Text, "1 at v1") })
	later.sees(8*time.Minute, func(s protocol.Status) { require.Equal(t, "staging CONVERGED v1, prod CONVERGED v1", statusOf(s)) })
	later.acts(next, minute)
	require.ElementsMatch(t, []string{"apply v1 to prod/us", "apply v1 to prod/jp", "apply v1 to prod/au"}, later.work("keep"))
}
