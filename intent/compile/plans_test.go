package compile_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/intenttest"
)

// planned compiles the services of a home, and builds the plan of everything.
func planned(t *testing.T) (*compile.Compiled, *plan.Work, *plan.Plan) {
	t.Helper()
	loaded, err := compile.Load("testdata/plans")
	require.NoError(t, err)
	compiled, err := compile.Compile(loaded)
	require.NoError(t, err)
	inc, err := incarnation.Parse(compiled.Incarnation.Bytes()) // as it is read from the store
	require.NoError(t, err)
	require.Nil(t, inc.Work("staging"))
	work := inc.Work("production")
	require.NotNil(t, work)
	p, err := work.Plan(plan.Scope{All: true})
	require.NoError(t, err)
	return compiled, work, p
}

// What services say of each other becomes the plan of a channel, with either spelling; a runtime that takes one apply at a time is a
// target on which one thing runs at a time.
func TestPlanOfServices_E8_E15(t *testing.T) {
	t.Parallel()
	_, work, p := planned(t)
	require.Equal(t, `DEPLOY jellyfin@cluster
DEPLOY prowlarr@media
DEPLOY sonarr@media
DEPLOY traefik@edge
DNS
CALLBACK                  after DEPLOY sonarr@media
SYNC traefik@edge         needs DEPLOY traefik@edge, CALLBACK
RECONCILE sonarr@media    needs DEPLOY sonarr@media, SYNC traefik@edge
RECONCILE prowlarr@media  needs DEPLOY prowlarr@media, SYNC traefik@edge, RECONCILE sonarr@media
`, p.Text(nil))
	require.Equal(t, []string{"edge", "media"}, p.Serial)
	require.Equal(t, 8, work.Limit)
	require.False(t, work.Eager)
}

// Each piece of work but DEPLOY has commands, with what an extension has, and gets who it is for as JSON.
func TestCommandsOfPlan_E15(t *testing.T) {
	t.Parallel()
	compiled, work, p := planned(t)
	definitions := map[string]entities.ExtensionDefinition{}
	for _, d := range compiled.PlanDefinitions() {
		definitions[entities.DigestOf(d)] = d
	}
	argv := func(runs ...entities.Extension) (all []string) {
		for _, run := range runs {
			all = append(all, definitions[run.Definition].Command.Argv...)
		}
		return all
	}
	require.Equal(t, []string{"./bin/infrastructure", "./bin/prepare"}, argv(work.Before...))
	require.Equal(t, []string{"./bin/finalize", "production"}, argv(work.After...))
	runs := map[string][]string{}
	inputs := map[string]string{}
	for n := range p.Nodes {
		node := &p.Nodes[n]
		for _, c := range work.CommandsOf(node) {
			runs[node.String()] = append(runs[node.String()], argv(c.Run)...)
		}
		data, err := json.Marshal(work.Input(node))
		require.NoError(t, err)
		inputs[node.String()] = string(data)
	}
	require.Equal(t, map[string][]string{
		"CALLBACK": {"./bin/capture-key", "${{ version }}"}, "DNS": {"./bin/dns"}, "SYNC traefik@edge": {"./bin/traefik-sync"},
		"RECONCILE sonarr@media": {"./bin/register", "sonarr"}, "RECONCILE prowlarr@media": {"./bin/register", "prowlarr", "./bin/tags"},
	}, runs)
	require.JSONEq(t, `{"schema": "converge.plan/v1", "application": "home", "channel": "production", "kind": "DNS", "services": [
		{"service": "jellyfin", "names": ["tv.example.org"], "targets": [{"name": "cluster"}]},
		{"service": "sonarr", "names": ["sonarr.example.org"], "targets": [{"name": "media", "address": "192.0.2.7", "serial": true}]}]}`, inputs["DNS"])
	require.JSONEq(t, `{"schema": "converge.plan/v1", "application": "home", "channel": "production", "kind": "SYNC", "service": "traefik",
		"target": "edge", "address": "192.0.2.8", "fragments": [
		{"service": "prowlarr", "aggregator": "traefik", "content": "prowlarr: as it is, ${{ nothing }} is filled in\n"},
		{"service": "sonarr", "aggregator": "traefik", "content": "sonarr: sonarr.example.org"}]}`, inputs["SYNC traefik@edge"])
	at := slices.IndexFunc(work.Commands, func(c plan.Command) bool { return c.Run.Name == "register" && c.Service == "sonarr" })
	run := work.Commands[at].Run
	require.Equal(t, 2*time.Minute, run.Timeout)
	require.Equal(t, 3, run.MaxAttempts)
	require.Equal(t, "production", run.Key)
}

// A channel that the application does not name has no plan, and neither has any where nobody says that services are fitted together.
func TestChannelsWithPlans_E15(t *testing.T) {
	t.Parallel()
	const runtime = `---
{apiVersion: converge/v1, kind: Runtime, name: r, custom: {apply: {command: [./apply]}}}
`
	for name, c := range map[string]struct {
		rules, service string
		planned        []string
	}{
		"no settings":            {"", "", nil},
		"a service has settings": {"", "requires: [db]\n", []string{"staging", "production"}},
		"only production":        {"plan: {releaseChannels: [production]}\n", "requires: [db]\n", []string{"production"}},
		"rules alone":            {"plan: {}\n", "", []string{"staging", "production"}},
	} {
		t.Run(name, func(t *testing.T) {
			compiled := intenttest.Text(t, "apiVersion: converge/v1\nkind: Application\nname: home\n"+c.rules+`releaseChannels:
- {name: staging, runtimes: [{name: r}]}
- {name: production, runtimes: [{name: r}]}
---
apiVersion: converge/v1
kind: Service
name: web
`+c.service+"---\n{apiVersion: converge/v1, kind: Service, name: db}\n"+runtime)
			var planned []string
			for _, channel := range compiled.Incarnation.Channels() {
				if compiled.Incarnation.Work(channel) != nil {
					planned = append(planned, channel)
				}
			}
			require.Equal(t, c.planned, planned)
		})
	}
}

// A plan that no workflow should walk, and what an incarnation should not carry, are refused.
func TestPlansAreBounded_E15(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	many.WriteString("{apiVersion: converge/v1, kind: Application, name: home, plan: {}, releaseChannels: [{name: live, runtimes: [{selector: {a: b}}]}]}\n")
	for n := range 60 {
		fmt.Fprintf(&many, "---\n{apiVersion: converge/v1, kind: Runtime, name: r%d, labels: {a: b}, custom: {apply: {command: [./apply]}}}\n", n)
		fmt.Fprintf(&many, "---\n{apiVersion: converge/v1, kind: Service, name: s%d, reconcilers: [{name: r, command: [./r]}]}\n", n)
	}
	_, err := intenttest.Load(many.String())
	require.ErrorContains(t, err, "name: the plan has up to 7202 nodes and 7200 dependencies in release channel live; expected at most 5000 and 200000 [plan-too-large]")

	var channels []string
	for n := range 30 {
		channels = append(channels, fmt.Sprintf("{name: c%d, runtimes: [{name: r}]}", n))
	}
	_, err = intenttest.Load(`{apiVersion: converge/v1, kind: Application, name: home, releaseChannels: [` + strings.Join(channels, ", ") + `]}
---
{apiVersion: converge/v1, kind: Runtime, name: r, custom: {apply: {command: [./apply]}}}
---
{apiVersion: converge/v1, kind: Service, name: edge, aggregator: {sync: {strategy: dir, command: [./sync]}}}
---
{apiVersion: converge/v1, kind: Service, name: web, feeds: [{aggregator: edge, content: ` + strings.Repeat("a", 140_000) + `}]}
`)
	require.ErrorContains(t, err, "feeds[0]: the feeds of all services in all release channels are too large; expected at most 4000000 bytes [too-large]")
}
