package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// addRolloutSteps makes production a fleet of four: a release goes to one instance first, and to the others ten minutes later.
func addRolloutSteps(p *serviceTest) {
	c := &p.spec.Channels[1]
	c.Instances = nil
	for _, name := range []string{"eu", "us", "jp", "au"} {
		c.Instances = append(c.Instances, entities.InstanceSpec{Name: name, Runtime: "edge", Template: "t"})
	}
	c.SetRollout(entities.Rollout{Steps: []entities.RolloutStep{{Instances: &entities.Amount{Number: 1}}, {Pause: 10 * time.Minute}}})
}

// A run that ends in the pause between two steps hands the pause on: the next run wakes at its end, and takes the next step then (D23,
// D24).
func TestNextRolloutStepIsTakenInNextRun_D23_D24(t *testing.T) {
	p := newServiceTest(t)
	addRolloutSteps(p)
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.atStatus(minute, func(s protocol.Status) {
		require.Contains(t, s.Channels[1].Reasons[1].Text, "step 2 of 2: 1 of 4 at v1; next 3 at ")
	})
	next := p.run(firstInput, 3*minute)
	require.ElementsMatch(t, []string{"apply v1 to staging", "apply v1 to prod/eu"}, p.startedActivities("keep"))

	later := newServiceTest(t)
	addRolloutSteps(later)
	later.startAfter(p)
	later.atStatus(minute, func(s protocol.Status) { require.Contains(t, s.Channels[1].Reasons[0].Text, "1 at v1") })
	later.atStatus(8*time.Minute, func(s protocol.Status) { require.Equal(t, "staging CONVERGED v1, prod CONVERGED v1", statusOf(s)) })
	later.run(next, minute)
	require.ElementsMatch(t, []string{"apply v1 to prod/us", "apply v1 to prod/jp", "apply v1 to prod/au"}, later.startedActivities("keep"))
}
