package plan_test

import (
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/plan"
)

var update = flag.Bool("update", false, "update the golden files")

// parse reads a service from each line: its name and targets, and then its settings. A line that begins with
// "changed" is the scope, and one with "fails", "limit" or "together", targets on which nodes overlap, says how the plan is walked.
func parse(t *testing.T, text string) (services []plan.Service, scope plan.Scope, fails []string, limit int, parallel []string) {
	t.Helper()
	scope.All = true
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "changed":
			scope.All, scope.Changed = false, words[1:]
			continue
		case "eager":
			scope.Eager = true
			continue
		case "fails":
			fails = append(fails, strings.Join(words[1:], " "))
			continue
		case "together":
			parallel = words[1:]
			continue
		case "limit":
			_, err := fmt.Sscan(words[1], &limit)
			require.NoError(t, err)
			continue
		}
		name, targets, _ := strings.Cut(words[0], "@")
		s := plan.Service{Name: name, Targets: strings.Split(targets, ",")}
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			values := strings.Split(value, ",")
			switch key {
			case "requires":
				s.Requires = values
			case "callback":
				s.SetupCallback = true
			case "dir":
				s.Aggregator = plan.Sync
			case "redeploy":
				s.Aggregator = plan.Redeploy
			case "feeds":
				s.Feeds = values
			case "reconciles":
				s.Reconciles = true
				if value != "" {
					s.ReconcilesAfter = values
				}
			case "integrates":
				s.Integrations = values
			case "dns":
				s.DNS = true
			default:
				t.Fatalf("unknown word %q about a service", word)
			}
		}
		services = append(services, s)
	}
	return services, scope, fails, limit, parallel
}

// serial returns the targets of services, without those on which nodes overlap.
func serial(services []plan.Service, parallel []string) (targets []string) {
	for _, s := range services {
		for _, target := range s.Targets {
			if !slices.Contains(parallel, target) {
				targets = append(targets, target)
			}
		}
	}
	slices.Sort(targets)
	return slices.Compact(targets)
}

// walkRounds walks a plan, round by round: all nodes that began end in the next round, failed if the story declares it.
func walkRounds(p *plan.Plan, fails []string, limit int) string {
	var b strings.Builder
	w := p.Walker(nil)
	for round := 1; ; round++ {
		step := w.Step(plan.Capacity{Limit: limit, Commands: -1})
		if step.Over {
			break
		}
		var names []string
		for _, n := range step.Begin {
			names = append(names, p.Nodes[n].String())
		}
		fmt.Fprintf(&b, "%d: %s\n", round, strings.Join(names, ", "))
		for _, n := range step.Begin {
			outcome := plan.Done
			if slices.Contains(fails, p.Nodes[n].String()) {
				outcome = plan.Failed
			}
			w.Set(n, outcome)
		}
	}
	states := progressOf(w, p)
	for n := range states {
		if states[n].State != plan.Done {
			fmt.Fprintf(&b, "%s %s", p.Nodes[n].String(), states[n].State)
			if states[n].State == plan.Blocked {
				fmt.Fprintf(&b, " by %s", p.Nodes[states[n].Cause].String())
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// The stories of testdata: services, their plan, and, if declared, how it runs.
func TestStories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		require.NoError(t, err)
		for i := range archive.Files {
			f := &archive.Files[i]
			t.Run(f.Name, func(t *testing.T) {
				input, _, _ := strings.Cut(string(f.Data), "=>\n")
				services, scope, fails, limit, parallel := parse(t, input)
				got := ""
				if p, err := plan.Build(services, scope); err != nil {
					got = err.Error() + "\n"
				} else if got = p.Text(nil); len(fails) > 0 || limit > 0 || parallel != nil {
					p.Serial = serial(services, parallel)
					got = walkRounds(p, fails, limit)
				}
				if *update {
					f.Data = []byte(input + "=>\n" + got)
					return
				}
				require.Equal(t, string(f.Data), input+"=>\n"+got)
			})
		}
		if *update {
			require.NoError(t, os.WriteFile(file, txtar.Format(archive), 0o600))
		}
	}
}

// The picture is the same for the same plan: layers from left to right, the longest path in bold, failed and blocked nodes in
// their colours.
func TestSVG_E16(t *testing.T) {
	t.Parallel()
	services := []plan.Service{
		{Name: "postgres", Targets: []string{"media"}},
		{Name: "sonarr", Targets: []string{"media"}, Requires: []string{"postgres"}, SetupCallback: true, Reconciles: true, DNS: true},
		{Name: "radarr", Targets: []string{"media"}, Requires: []string{"postgres"}, Reconciles: true},
		{Name: "prowlarr", Targets: []string{"media"}, Reconciles: true, ReconcilesAfter: []string{"sonarr", "radarr"}},
		{Name: "traefik", Targets: []string{"edge"}, Aggregator: plan.Sync},
		{Name: "authelia", Targets: []string{"edge"}, Aggregator: plan.Redeploy},
	}
	p, err := plan.Build(services, plan.Scope{All: true})
	require.NoError(t, err)
	states, ok := p.IfFails("sonarr")
	require.True(t, ok)
	got := p.SVG(states)
	require.NoError(t, xml.Unmarshal([]byte(got), new(struct{})))
	const golden = "testdata/plan.svg"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
	for n := range services {
		services[n].Targets = []string{`"<script>&`}
	}
	p, err = plan.Build(services, plan.Scope{All: true})
	require.NoError(t, err)
	require.NoError(t, xml.Unmarshal([]byte(p.SVG(nil)), new(struct{})))
	require.NotContains(t, p.SVG(nil), "<script>")
}

// If the deployment of a service fails, the nodes that need it are blocked, and no others (E11).
func TestIfFails_E11(t *testing.T) {
	t.Parallel()
	p, err := plan.Build([]plan.Service{
		{Name: "sonarr", Targets: []string{"media"}, Reconciles: true},
		{Name: "jellyfin", Targets: []string{"media"}},
		{Name: "prowlarr", Targets: []string{"media"}, Reconciles: true, ReconcilesAfter: []string{"sonarr"}},
		{Name: "traefik", Targets: []string{"edge"}, Aggregator: plan.Sync, DNS: true},
	}, plan.Scope{All: true})
	require.NoError(t, err)
	states, ok := p.IfFails("sonarr")
	require.True(t, ok)
	byState := map[plan.State][]string{}
	for n := range states {
		byState[states[n].State] = append(byState[states[n].State], p.Nodes[n].String())
	}
	require.Equal(t, map[plan.State][]string{
		plan.Failed: {"DEPLOY sonarr@media"}, plan.Blocked: {"RECONCILE prowlarr@media", "RECONCILE sonarr@media"},
		plan.Waiting: {"DEPLOY jellyfin@media", "DEPLOY prowlarr@media", "DEPLOY traefik@edge", "SYNC traefik@edge", "DNS"},
	}, byState)
	_, ok = p.IfFails("lidarr")
	require.False(t, ok)
}

// The pictures have every node, in the colour of its state, and every edge; a dashed edge waits for any end (E9).
func TestPictures_E9(t *testing.T) {
	t.Parallel()
	p, err := plan.Build([]plan.Service{{Name: "sonarr", Targets: []string{"media"}, SetupCallback: true}, {Name: "traefik", Targets: []string{"edge"}, Requires: []string{"sonarr"}}}, plan.Scope{All: true})
	require.NoError(t, err)
	states := []plan.Progress{{State: plan.Failed}, {State: plan.Blocked}, {}}
	require.Equal(t, `digraph plan {
  rankdir=LR
  node [shape=box, style=filled, fontname="sans-serif"]
  n0 [label="DEPLOY sonarr@media", fillcolor="#f8d7da"]
  n1 [label="DEPLOY traefik@edge", fillcolor="#e2e3e5"]
  n2 [label="CALLBACK", fillcolor="#ffffff"]
  n0 -> n1
  n0 -> n2 [style=dashed]
}
`, p.DOT(states))
	require.Equal(t, `flowchart LR
  n0["DEPLOY sonarr@media"]
  style n0 fill:#f8d7da
  n1["DEPLOY traefik@edge"]
  style n1 fill:#e2e3e5
  n2["CALLBACK"]
  style n2 fill:#ffffff
  n0 --> n1
  n0 -.-> n2
`, p.Mermaid(states))
}

// progressOf returns the states of all nodes.
func progressOf(w *plan.Walker, p *plan.Plan) (states []plan.Progress) {
	for n := range p.Nodes {
		states = append(states, w.Progress(n))
	}
	return states
}
