package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/preview"
	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
)

func TestPlanFlags(t *testing.T) {
	c := newConsole(t, nil)
	dir := t.TempDir()
	got, err := parseFlags(t, c.Factory, newCmdPlan, "shop/web", "v9", "-p", "a=1", "-p", "staging:b=2", "--full", "--exit-code", "--store", "/s")
	require.NoError(t, err)
	require.Equal(t, &planOptions{f: c.Factory, service: web, version: "v9", params: []string{"a=1", "staging:b=2"}, full: true, exitCode: true, store: "/s"}, got)
	got, err = parseFlags(t, c.Factory, newCmdPlan, dir)
	require.NoError(t, err)
	require.Equal(t, &planOptions{f: c.Factory, dir: dir}, got)
	got, err = parseFlags(t, c.Factory, newCmdPlan)
	require.NoError(t, err)
	require.Equal(t, &planOptions{f: c.Factory, dir: "."}, got)

	run, err := parseFlags(t, c.Factory, newCmdRunPlan, "home", "--channel", "live", "--changed", "a,b", "--if-fails", "a", "--format", "svg")
	require.NoError(t, err)
	graph := planGraph{application: "home", channel: "live", changed: []string{"a", "b"}, ifFails: "a"}
	require.Equal(t, &runPlanOptions{f: c.Factory, graph: graph, format: "svg"}, run)
	_, err = parseFlags(t, c.Factory, newCmdRunPlan, "home", "--format", "jpeg")
	require.EqualError(t, err, `--format "jpeg": expected one of text, json, yaml, dot, mermaid, svg`)

	for line, want := range map[string]string{
		"shop/web":      "shop/web is not a directory; to plan a release of a service, name a version: converge plan shop/web VERSION",
		"Shop!":         "Shop! is not a directory; usage: converge plan [DIR] or converge plan SVC VERSION",
		dir + " -p a=1": "-p applies to a release only: converge plan SVC VERSION -p name=value",
		"a b c":         "usage: converge plan [DIR] | SVC VERSION; for example: converge plan shop/web v9",
	} {
		_, err := parseFlags(t, c.Factory, newCmdPlan, strings.Fields(line)...)
		require.EqualError(t, err, want)
	}
}

// A mistake that release reports is also reported by plan, before anything is rendered.
func TestPlanMistakes(t *testing.T) {
	api := &fakeAPI{statuses: map[string][]any{"service/shop/web": {webStatus("staging CONVERGED v8 v8 succeeded")}}}
	for line, want := range map[string]string{
		"plan shop/wbe v9":                "! converge: no service shop/wbe; did you mean shop/web?\n",
		"plan shop/web v9 -p x":           "! converge: -p x: expected name=value or CHANNEL:name=value\n",
		"plan shop/web v9 --output table": "! converge: --output \"table\": expected text, json or yaml\n",
	} {
		code, output := newConsole(t, api).run(t, line)
		require.Equal(t, want, output)
		require.Equal(t, outcome.Error, code)
	}
	broken := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(broken, "converge.yaml"), []byte("kind: Application\nname: shop\n"), 0o600))
	code, output := newConsole(t, nil).run(t, "plan "+broken)
	require.Contains(t, output, "! converge.yaml:1:1: ")
	require.Contains(t, output, "; nothing planned\n")
	require.Equal(t, outcome.Error, code)
}

func item(channel string, changes ...protocol.PreviewChange) protocol.ItemPreview {
	return protocol.ItemPreview{Service: "web", Channel: channel, Changes: changes}
}

func object(action, object string, fields ...string) protocol.PreviewChange {
	kind, name, _ := strings.Cut(object, "/")
	c := protocol.PreviewChange{Action: action, Type: kind, Name: name}
	for _, f := range fields {
		w := strings.SplitN(f, "|", 3)
		c.Fields = append(c.Fields, protocol.PreviewField{Path: w[0], Old: w[1], New: w[2]})
	}
	return c
}

const (
	objectVersion = `metadata.annotations[converge/version]|"v8"|"v9"`
	podVersion    = `spec.template.metadata.annotations[converge/version]|"v8"|"v9"` // on templates whose pods are not replaced
	podTemplate   = `spec.template.metadata.annotations[converge/template]|"0a"|"0b"`
)

// A plan with every possible output for a channel.
func planOfV9() *preview.Plan {
	conflicting := object("update", "Service/web")
	conflicting.Conflicts = []string{"port 80 owned by kubectl-edit"}
	refused := object("refuse", "Ingress/web")
	refused.Message = "admission webhook \"policy\" denied\n\x1b[31mthe request"
	many := object("update", "Deployment/web", objectVersion, podVersion, `spec.replicas|2|3`,
		`spec.template.spec.containers[name=web].image|"web:v7"|"web:v9"`,
		`spec.template.spec.containers[name=web].env[name=A].value|"a b"|"c"`,
		`spec.template.spec.containers[name=web].env[name=B].value|""|`,
		`spec.template.spec.containers[name=log].image||"log:v1"`, `spec.strategy.type|"A"|"B"`,
		`metadata.labels[app.kubernetes.io/name]|"x"|"y"`, `spec.paused|true|false`)
	many.More = 3
	long := object("update", "ConfigMap/web", `data[a.conf]|"`+strings.Repeat("x", 80)+`"|"line\nline"`)
	elsewhere := object("prune", "Job/old")
	elsewhere.Namespace = "jobs"
	channels := []preview.Channel{
		{Runtime: "eks", Present: "v8", Version: "v9", ItemPreview: item(
			"staging", object("update", "Deployment/web", objectVersion, podVersion, `spec.template.spec.containers[name=web].image|"web:v8"|"web:v9"`))},
		{Runtime: "eks", Present: "v8", Version: "v9", ItemPreview: item("canary", object("update", "Deployment/web", objectVersion, podVersion), many, long, conflicting, refused)},
		{Runtime: "eks", Version: "v9", ItemPreview: item("new", object("create", "Deployment/web"), object("recreate", "Job/migrate", `spec.a|1|2`, `spec.b|1|2`), elsewhere, object("orphan", "Secret/old"))},
		{Runtime: "eks", Present: "v9", Version: "v9", ItemPreview: item("same")},
		{Runtime: "edge", Present: "v8", Version: "v9", ItemPreview: item("edge"), Sent: []protocol.PreviewField{{Path: "version", Old: `"v8"`, New: `"v9"`}, {Path: "env.A", Old: `"a"`, New: `"b"`}}},
		{Runtime: "far", Present: "v8", Version: "v9", ItemPreview: item("far")},
	}
	channels[2].Omitted = 1
	channels[4].Code, channels[4].Message = protocol.PreviewNoPlanner, "runtime edge (custom) cannot preview changes"
	channels[5].Code, channels[5].Message = protocol.PreviewNoWorker, "no worker polls runtime/far"
	return &preview.Plan{
		Schema: preview.Schema, Application: "shop", Incarnation: 42,
		Services: []preview.Service{{Service: "web", Version: "v9", Incarnation: 42, Channels: channels}},
		Totals:   protocol.PreviewTotals{Changed: 8, Removed: 1, Orphaned: 1, Conflicts: 1, Refused: 1}, Unseen: 1, Failed: 1,
	}
}

func TestPlanText(t *testing.T) {
	want := `shop/web v9, incarnation 42 (not released)
 staging  1 change
  ~ Deployment/web  image web:v8 → web:v9
 canary   5 changes
  ~ Deployment/web  version v8 → v9
  ~ Deployment/web  11 fields
      replicas 2 → 3
      containers[name=web].image web:v7 → web:v9
      env[name=A].value "a b" → c
      env[name=B].value "" → (none)
      containers[name=log].image (none) → log:v1
      and 6 more fields
  ~ ConfigMap/web   data[a.conf] ` + strings.Repeat("x", 59) + `… → "line\nline"
  ! Service/web     port 80 owned by kubectl-edit: CONFLICT
  ! Ingress/web     admission webhook "policy" denied [31mthe request
 new      5 changes
  +   Deployment/web
  -/+ Job/migrate      a 1 → 2; b 1 → 2
  -   Job/old in jobs
  o   Secret/old       no longer declared, left in place
  and 1 object more, too many to list
 same     no change
 edge     would be applied; runtime edge (custom) cannot preview changes
  ~ version v8 → v9
  ~ env.A a → b
 far      cannot be planned: no worker polls runtime/far [no-worker]
8 objects change, 1 removed, 1 left in place, 1 conflict, 1 refused, 1 channel applied without a preview, 1 channel could not be planned
`
	text := planText{plan: planOfV9()}
	require.Equal(t, want, text.String())

	full := planText{plan: planOfV9(), full: true}
	require.Contains(t, full.String(), `      spec.template.spec.containers[name=web].env[name=A].value "a b" → c
      spec.template.spec.containers[name=web].env[name=B].value "" → (none)
      spec.template.spec.containers[name=log].image (none) → log:v1
      spec.strategy.type A → B
      metadata.labels[app.kubernetes.io/name] x → y
      spec.paused true → false
      and 3 more fields
`)
	require.NotContains(t, full.String(), "x…", "whole values")
	coloured := planText{plan: planOfV9(), screen: show.Screen{TTY: true, Colour: true}}
	require.Contains(t, coloured.String(), "  \x1b[33m~\x1b[0m Deployment/web  image web:v8 → web:v9\n")
	require.Contains(t, coloured.String(), "owned by kubectl-edit: \x1b[31mCONFLICT\x1b[0m\n")
}

func TestPlanTextOfADirectory(t *testing.T) {
	plan := &preview.Plan{
		Application: "shop", Incarnation: 42, Removed: []string{"old"}, Totals: protocol.PreviewTotals{Changed: 1},
		Services: []preview.Service{
			{Service: "api", Notes: []string{"no version was released yet; to deploy one: converge release shop/api VERSION"}},
			{Service: "db", Version: "v1", Incarnation: 12, Known: true},
			{Service: "web", Channels: []preview.Channel{
				{Present: "v8", Version: "v8-i43", ItemPreview: item("staging", object("update", "Deployment/web", `spec.replicas|1|2`))},
				{Version: "v8-i43", ItemPreview: item("eu")},
			}},
		},
		Rules: &incarnation.Difference{Rules: []incarnation.Change{{Path: "canary", Kind: incarnation.Added, New: "at position 2"}}},
	}
	text := planText{plan: plan}
	require.Equal(t, `shop/api, changed configuration (not published)
 no version was released yet; to deploy one: converge release shop/api VERSION
shop/db v1, incarnation 12 (released before)
shop/web, changed configuration (not published)
 staging v8 → v8-i43  1 change
  ~ Deployment/web  replicas 1 → 2
 eu → v8-i43          no change
shop/old is no longer declared: what runs is left in place, orphaned
rules (take effect at once, release nothing)
 release channels
   + canary  at position 2
1 object changes, 0 removed
`, text.String())
	nothing := planText{plan: &preview.Plan{Application: "shop", Services: []preview.Service{}}}
	require.Equal(t, "nothing would change\n", nothing.String())
	rules := planText{plan: &preview.Plan{Rules: plan.Rules}}
	require.Contains(t, rules.String(), "\nno object changes\n")
}

// Exit codes: a plan is a success, regardless of its content; an error is not.
//
// The plan of a deletion lists what is removed, what stays and why, and what could not be determined.
func TestPlanTextOfADeletion_A24(t *testing.T) {
	kept := object("keep", "PersistentVolumeClaim/data")
	kept.Message = "claims are kept unless the service sets removeClaims: true"
	refused := object("refuse", "ConfigMap/settings")
	refused.Message = "delete ConfigMap shop/settings: not today"
	live := item("production", object("remove", "Deployment/web"), refused, kept)
	live.Totals, live.Removal = protocol.PreviewTotals{Changed: 1, Removed: 1, Orphaned: 1, Refused: 1}, true
	edge := item("edge")
	edge.Removal, edge.Code, edge.Message = true, protocol.PreviewNoPlanner, "runtime edge (custom) cannot preview a removal"
	empty := item("new")
	empty.Removal = true
	service := preview.Service{Service: "web", Removal: true, Refused: "v9 is in progress in shop/web production", Notes: []string{"staging v8 stays: its channel is report-only"}, Channels: []preview.Channel{
		{Present: "v8", ItemPreview: live}, {Present: "v8", ItemPreview: edge}, {Present: "v7", ItemPreview: empty},
	}}
	plan := &preview.Plan{Application: "shop", Services: []preview.Service{service}, Removed: []string{"web"}, Totals: live.Totals, Unseen: 1}
	const body = ` staging v8 stays: its channel is report-only
 production v8  1 object removed, 1 left in place
  - Deployment/web
  ! ConfigMap/settings          delete ConfigMap shop/settings: not today
  o PersistentVolumeClaim/data  claims are kept unless the service sets removeClaims: true
 edge v8        deleted; runtime edge (custom) cannot preview a removal
 new v7         no objects
1 object removed, 1 left in place, 1 refused, 1 channel deleted without a preview
`
	text := planText{plan: plan, deletes: true}
	require.Equal(t, "shop/web, to be deleted\n currently refused: v9 is in progress in shop/web production\n"+body, text.String())
	plan.Services[0].Refused = ""
	text = planText{plan: plan}
	require.Equal(t, "shop/web, deleted as declared (not published)\n"+body, text.String(), "and not: left in place, orphaned")
}

func TestPlanExit(t *testing.T) {
	for _, row := range []struct {
		name     string
		plan     *preview.Plan
		exitCode bool
		code     int
	}{
		{"nothing", &preview.Plan{}, true, outcome.Done},
		{"changes", &preview.Plan{Removed: []string{"old"}}, false, outcome.Done},
		{"changes with --exit-code", &preview.Plan{Removed: []string{"old"}}, true, outcome.Failed},
		{"a channel that could not be planned", planOfV9(), true, outcome.Error},
	} {
		c := newConsole(t, nil)
		err := (&planOptions{f: c.Factory, exitCode: row.exitCode}).print(row.plan)
		require.Equal(t, row.code, finish(t.Context(), err, &c.err), row.name)
		require.Empty(t, c.err.String())
	}
}

func TestPlanJSON(t *testing.T) {
	c := newConsole(t, nil)
	c.format = "json"
	require.Error(t, (&planOptions{f: c.Factory}).print(planOfV9()))
	var got map[string]any
	require.NoError(t, json.Unmarshal(c.out.Bytes(), &got))
	require.Equal(t, "converge.plan/v1", got["schema"])
	channel := got["services"].([]any)[0].(map[string]any)["channels"].([]any)[0].(map[string]any)
	require.Equal(t, "staging v8 v9 eks", fmt.Sprint(channel["channel"], " ", channel["present"], " ", channel["version"], " ", channel["runtime"]))
	require.Equal(t, "update", channel["changes"].([]any)[0].(map[string]any)["action"])
}

func TestShortPaths(t *testing.T) {
	var fields []protocol.PreviewField
	for _, p := range []string{
		"spec.template.spec.containers[name=a].image", "spec.template.spec.containers[name=b].image", "spec.replicas",
		"spec.rules[0].host", "metadata.annotations[a.b/c.d]", "data", "spec.x.data", "spec.ports[port=80].port",
	} {
		fields = append(fields, protocol.PreviewField{Path: p})
	}
	require.Equal(t, []string{
		"containers[name=a].image", "containers[name=b].image", "replicas", "host", "annotations[a.b/c.d]", "data", "x.data", "ports[port=80].port",
	}, preview.ShortPaths(fields))
}

// Other changes explain why pods are replaced, or a message if there are no other changes.
func TestPlanExplainsWhyPodsAreReplaced_H1(t *testing.T) {
	text := planText{}
	inline, below := text.change(object("update", "Deployment/web", objectVersion, podTemplate, `spec.template.spec.containers[name=web].image|"web:v8"|"web:v9"`))
	require.Equal(t, "image web:v8 → web:v9", inline)
	require.Empty(t, below)
	restarted := object("update", "Deployment/web", objectVersion, podTemplate)
	restarted.Message = "its pods are restarted"
	require.False(t, onlyVersion(restarted))
	replaced := object("update", "Deployment/web", objectVersion, podTemplate, `spec.template.spec.containers[name=web].image|"web:v8"|"web:v9"`)
	replaced.Replaces = &protocol.PreviewReplacement{What: "pods", Why: "spec.template.spec.containers[name=web].image changes"}
	inline, below = text.change(replaced)
	require.Equal(t, "image web:v8 → web:v9; its pods are replaced", inline)
	require.Empty(t, below)
	replaced.Message = "it is adopted from helm"
	inline, below = text.change(replaced)
	require.Equal(t, "1 field", inline)
	require.Equal(t, []string{"it is adopted from helm", "its pods are replaced: spec.template.spec.containers[name=web].image changes", "image web:v8 → web:v9"}, below)
	configured := object("update", "Deployment/web", objectVersion, podTemplate)
	configured.Replaces = &protocol.PreviewReplacement{What: "pods", Why: "their configuration changes"}
	require.False(t, onlyVersion(configured))
	inline, below = text.change(configured)
	require.Equal(t, "its pods are replaced: their configuration changes", inline)
	require.Empty(t, below)
	inline, below = text.change(restarted)
	require.Equal(t, "its pods are restarted", inline)
	require.Empty(t, below)
}

// Objects whose only change is the version are folded: several of them are one line.
func TestPlanFoldsVersionOnlyObjects(t *testing.T) {
	carrier := func(name string) protocol.PreviewChange {
		return protocol.PreviewChange{Action: "update", Type: "ConfigMap", Name: name, Fields: []protocol.PreviewField{
			{Path: "metadata.annotations[converge/version]", Old: `"v1"`, New: `"v2"`},
		}}
	}
	distinct := carrier("web")
	distinct.Fields = append(distinct.Fields, protocol.PreviewField{Path: "data[a]", Old: `"1"`, New: `"2"`})
	rest, carriers := foldVersionOnly([]protocol.PreviewChange{carrier("a"), distinct, carrier("b")})
	require.Equal(t, []protocol.PreviewChange{distinct}, rest)
	require.Equal(t, 2, carriers)
	one := []protocol.PreviewChange{carrier("a"), distinct}
	rest, carriers = foldVersionOnly(one)
	require.Equal(t, one, rest, "a single object is as short as its summary")
	require.Zero(t, carriers)
}
