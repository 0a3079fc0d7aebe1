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

// What became of a plan's part in a service is what became of the releases that the plan is of, or of what came in their place.
func TestDeployed_E10_E13(t *testing.T) {
	t.Parallel()
	type release struct {
		id, full    string
		incarnation int64
		phase       maestro.Phase
	}
	config := protocol.DeployedQuestion{Channel: "prod", Incarnation: 3, Since: 2}
	byHand := protocol.DeployedQuestion{Channel: "prod", Release: "2"}
	for name, c := range map[string]struct {
		releases []release
		question protocol.DeployedQuestion
		want     string
	}{
		"nothing was released":                         {nil, config, "done nothing changes"},
		"nothing since the last plan":                  {[]release{{"1", "v1", 1, maestro.Failed}}, config, "done nothing changes"},
		"it succeeded":                                 {[]release{{"1", "v1-i3", 3, maestro.Succeeded}}, config, "done v1-i3"},
		"it is on its way":                             {[]release{{"1", "v1-i3", 3, maestro.InProgress}}, config, "running v1-i3"},
		"it failed":                                    {[]release{{"1", "v1-i3", 3, maestro.RolledBack}}, config, "failed v1-i3 rolled back: why"},
		"an older one says nothing of it":              {[]release{{"1", "v1-i2", 2, maestro.Succeeded}, {"2", "v1-i3", 3, maestro.InProgress}}, config, "running v1-i3"},
		"a newer one says nothing of it":               {[]release{{"1", "v1-i3", 3, maestro.InProgress}, {"2", "v1-i4", 4, maestro.Failed}}, config, "running v1-i3"},
		"what an older plan left undone":               {[]release{{"1", "v1-i2", 2, maestro.Cancelled}}, config, "failed v1-i2 cancelled: why"},
		"skipped, and what came instead succeeded":     {[]release{{"1", "v1-i3", 3, maestro.Skipped}, {"2", "v2", 4, maestro.Succeeded}}, config, "done v2"},
		"skipped, and what came instead failed":        {[]release{{"1", "v1-i3", 3, maestro.Skipped}, {"2", "v2", 4, maestro.Failed}}, config, "failed v2 failed: why"},
		"by hand, whatever was before":                 {[]release{{"1", "v1", 3, maestro.Succeeded}, {"2", "v2", 3, maestro.InProgress}}, byHand, "running v2"},
		"by hand, skipped by one that came afterwards": {[]release{{"2", "v2", 3, maestro.Skipped}, {"3", "v3", 3, maestro.Succeeded}}, byHand, "done v3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := state.New("home", "web")
			s.Spec = &entities.Spec{Channels: []entities.ChannelSpec{{Name: "prod"}}}
			for _, r := range c.releases {
				s.Releases = append(s.Releases, &state.Release{
					ID: r.id, Version: r.full, FullVersion: r.full, Incarnation: r.incarnation,
					Phases: map[string]*state.PhaseState{"prod": {Phase: r.phase, Since: time.Unix(0, 0), Reason: "why"}},
				})
			}
			d := view.Deployed(s, &decide.Decision{}, c.question)
			require.Equal(t, c.want, d.State+" "+d.Text)
		})
	}
}
