package gates

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/simulate"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/intent/compile"
)

// What a configuration says of times, played forward from the file to the minute: a freeze over New
// Year, the nights on which clocks change, a week of soak.
func TestTimeTravel_A8_A19_A20(t *testing.T) {
	t.Parallel()
	const freeze = `{timeZone: Europe/Paris, windows: [{days: Mon-Fri, hours: "09:00-16:00"}], freezes: [{from: "2026-12-23", to: "2027-01-03", reason: New Year}]}`
	const night = `{timeZone: Europe/Paris, windows: [{hours: "02:30-05:00"}]}`
	const evening = `{timeZone: Europe/Paris, windows: [{hours: "22:00-06:00"}]}`
	for _, c := range []struct {
		name, times, soak, at string
		entered, done         string // in production, which staging holds for a minute
	}{
		{"the last hour before the freeze", freeze, "1m", "2026-12-22T15:00:00+01:00", "2026-12-22T15:01:00+01:00", "2026-12-22T15:03:00+01:00"},
		{"the window closes, and the freeze begins at night", freeze, "1m", "2026-12-22T15:59:30+01:00", "2027-01-04T09:00:00+01:00", "2027-01-04T09:02:00+01:00"},
		{"the night of New Year", freeze, "1m", "2026-12-31T23:59:30+01:00", "2027-01-04T09:00:00+01:00", "2027-01-04T09:02:00+01:00"},
		{"a week of soak", freeze, "168h", "2027-01-08T15:00:00+01:00", "2027-01-08T15:01:00+01:00", "2027-01-15T15:02:00+01:00"},
		{"a week of soak reaches into the freeze, which does not end it", freeze, "168h", "2026-12-21T10:00:00+01:00", "2026-12-21T10:01:00+01:00", "2026-12-28T10:02:00+01:00"},
		{"spring: there is no half past two", night, "1m", "2027-03-28T01:00:00+01:00", "2027-03-28T03:00:00+02:00", "2027-03-28T03:02:00+02:00"},
		{"autumn: half past two comes twice, the first counts", night, "1m", "2027-10-31T01:00:00+02:00", "2027-10-31T02:30:00+02:00", "2027-10-31T02:32:00+02:00"},
		{"spring: a soak of a day is 24 hours", evening, "24h", "2027-03-27T12:00:00+01:00", "2027-03-27T22:00:00+01:00", "2027-03-28T23:01:00+02:00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			at, err := time.Parse(time.RFC3339, c.at)
			require.NoError(t, err)
			service, evaluate := planned(t, c.times, c.soak)
			timeline, err := simulate.Run(simulate.Input{State: service, Version: "v1", At: at, Judge: evaluate})
			require.NoError(t, err)
			require.Len(t, timeline.Channels, 2)
			production := timeline.Channels[1]
			for want, have := range map[string]time.Time{c.entered: production.Entered, c.done: production.Succeeded} {
				wanted, err := time.Parse(time.RFC3339, want)
				require.NoError(t, err)
				require.WithinDuration(t, wanted, have, 30*time.Second, "%v", timeline.Table(time.UTC))
				require.False(t, have.Before(wanted), "%s is before %s", have, wanted)
			}
		})
	}
}

// planned compiles a service that enters production at such times and soaks there, and evaluates its checks as workers do.
func planned(t *testing.T, times, soak string) (*state.State, func(entities.Evaluation, time.Time) entities.CheckReading) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "converge.yaml"), []byte(`apiVersion: converge/v1
kind: Application
name: shop
releaseChannels:
- {name: staging, runtimes: [{name: local}]}
- name: production
  runtimes: [{name: local}]
  preconditions: [{releaseChannelStable: {releaseChannel: staging}}]
  protections:
  - {name: hours, allowedTimes: `+times+`}
  - {name: soak, always: {verdict: PASS}, lifecycle: [postDeployment: {for: `+soak+`}]}
---
{apiVersion: converge/v1, kind: Service, name: web, custom: {}}
---
apiVersion: converge/v1
kind: Runtime
name: local
custom: {apply: {command: [apply]}, fetch: {command: [fetch], mode: structured}}
`), 0o600))
	config, err := compile.Load(dir)
	require.NoError(t, err)
	compiled, err := compile.Compile(config)
	require.NoError(t, err)
	specs, err := compiled.Specs()
	require.NoError(t, err)
	spec := specs["web"]
	spec.Incarnation = 1
	planned := state.New("shop", "web")
	planned.Spec = &spec
	definitions := map[string]entities.CheckDefinition{}
	for _, d := range compiled.Checks("web") {
		definitions[entities.DigestOf(d)] = d
	}
	return planned, func(look entities.Evaluation, at time.Time) entities.CheckReading {
		definition := definitions[look.Definition]
		return checks.Evaluate(t.Context(), checks.Sources{}, checks.Request{Definition: definition, Evaluation: look, Now: at})
	}
}
