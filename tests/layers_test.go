package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The import rules of the layout, checked on everything that a package reaches, so that no detour passes. The folders
// and what they may import are described in docs/architecture.md.

const ourModule = "github.com/converge-engine/converge"

// goPackage is what the rules need of `go list -json`. Deps holds all that a package reaches, Imports only its own.
type goPackage struct {
	ImportPath, Dir, Name  string
	Standard               bool
	GoFiles, Imports, Deps []string
}

// packageSet is a build, by import path.
type packageSet map[string]goPackage

// layer is a folder and the rule for the packages in it. A folder that ends in "/." is the package in it alone, without
// what lies below.
type layer struct {
	folder string
	// ours are the other folders of the module that it may reach.
	ours []string
	// check refuses or allows the imports from outside the module; nil allows all.
	check func(p goPackage, all packageSet) []string
}

// layers are in the order in which they may build on each other. Each must have at least one package.
var layers = []layer{
	{folder: "entities", check: onlyStandardLibrary},
	// Inside entities, by what may be touched: values, what is remembered, what is decided from it, and what joins the two.
	{folder: "entities/."},
	{folder: "entities/maestro"},
	{folder: "entities/selection", ours: []string{"entities/."}},
	{folder: "entities/order"},
	{folder: "entities/plan", ours: []string{"entities/."}},
	{folder: "entities/stats"},
	{folder: "entities/spelling"},
	{folder: "entities/trail", ours: []string{"entities/."}},
	{folder: "entities/protocol", ours: []string{"entities/."}},
	{folder: "entities/drain", ours: []string{"entities/.", "entities/protocol"}},
	{folder: "entities/configured", ours: []string{"entities/.", "entities/selection", "entities/protocol"}},
	{folder: "entities/loosen", ours: []string{"entities/.", "entities/order"}},
	{folder: "entities/lease", ours: []string{"entities/."}},
	{folder: "entities/state", ours: []string{"entities/.", "entities/order", "entities/maestro"}},
	{folder: "entities/decide", ours: []string{"entities/.", "entities/order", "entities/maestro", "entities/selection", "entities/state"}},
	{folder: "entities/loop", ours: []string{"entities/.", "entities/order", "entities/maestro", "entities/selection", "entities/state", "entities/decide"}},
	{folder: "entities/verb", ours: []string{"entities/.", "entities/order", "entities/maestro", "entities/selection", "entities/state", "entities/decide", "entities/protocol", "entities/lease"}},
	{folder: "entities/view", ours: []string{"entities/.", "entities/order", "entities/plan", "entities/maestro", "entities/selection", "entities/state", "entities/decide", "entities/protocol", "entities/lease"}},
	{folder: "entities/explain", ours: []string{"entities/.", "entities/protocol"}},
	{folder: "entities/outcome", ours: []string{"entities/.", "entities/order", "entities/maestro", "entities/selection", "entities/state", "entities/decide", "entities/protocol"}},
	{folder: "entities/chart", ours: []string{"entities/."}},
	{folder: "entities/timeline", ours: []string{"entities/.", "entities/chart", "entities/explain", "entities/protocol"}},
	{folder: "entities/simulate", ours: []string{"entities/.", "entities/order", "entities/chart", "entities/plan", "entities/maestro", "entities/selection", "entities/state", "entities/decide", "entities/loop"}},
	{folder: "intent", ours: []string{"entities/.", "entities/order", "entities/plan", "entities/stats", "entities/trail", "entities/protocol", "entities/spelling"}},
	{folder: "runtimes", ours: []string{"entities/.", "intent/expression"}, check: noTemporal},
	{folder: "activities", ours: []string{"entities/.", "entities/protocol", "entities/order", "entities/maestro", "entities/selection", "entities/drain", "entities/configured", "entities/loosen", "entities/explain", "entities/plan", "entities/stats", "entities/trail", "entities/spelling", "intent", "runtimes"}, check: noCompiling},
	{folder: "workflows", ours: []string{"entities"}, check: onlyTemporalSDK},
	{folder: "worker", ours: []string{"entities", "intent", "runtimes", "activities", "workflows"}, check: noCompiling},
	// It previews with the code of the activity Prepare, and so reaches what that reaches, but no workflow and no worker.
	{folder: "client", ours: []string{"entities", "intent", "runtimes", "activities", "worker/deployment"}},
	// It acts by command lines alone, which its caller carries out.
	{folder: "client/acceptance", ours: []string{"entities"}, check: noServer},
	// It reads files and clusters and writes a configuration; people compile and publish that as any other, so it reaches neither
	// compile nor the store, and no Temporal.
	{folder: "client/importer", ours: []string{"entities/.", "entities/protocol", "entities/spelling", "intent/config", "intent/bundle", "intent/charts", "intent/sops", "intent/sources", "intent/internal", "runtimes"}, check: noServer},
	{folder: "cmd/converge", ours: []string{"entities", "intent", "runtimes", "activities", "workflows", "worker", "client", "cmd/internal"}, check: noRendering},
	// A program that renders has it compiled in; whoever only orders it has not.
	{folder: "intent/render", ours: []string{"entities", "intent/config", "intent/bundle", "intent/charts", "intent/sops", "intent/sources", "intent/internal"}},
	// Inside intent: from what people write to what is kept. Reading knows no incarnation, and neither an incarnation
	// nor the store knows what one was compiled from.
	{folder: "intent/config", ours: []string{"entities", "intent/internal/strict"}},
	{folder: "intent/bundle", ours: []string{"entities", "intent/config", "intent/internal"}},
	{folder: "intent/sops", ours: []string{"entities/spelling", "intent/internal"}},
	{folder: "intent/charts"},
	{folder: "intent/sources", ours: []string{"entities", "intent/config", "intent/bundle", "intent/charts", "intent/sops", "intent/internal"}},
	{folder: "intent/incarnation", ours: []string{"entities", "intent/config", "intent/internal"}},
	{folder: "intent/compile", ours: []string{"entities", "intent/config", "intent/bundle", "intent/charts", "intent/sops", "intent/sources", "intent/incarnation", "intent/expression", "intent/internal"}},
	{folder: "intent/expression", ours: []string{"entities/."}},
	{folder: "intent/codec", ours: []string{"intent/internal"}},
	{folder: "intent/store", ours: []string{"entities", "intent/config", "intent/bundle", "intent/incarnation", "intent/internal"}},
}

// serverModules are linked by one package of ours, which only the programs in serverPrograms reach.
var serverModules = []string{"go.temporal.io/server", "github.com/temporalio/ui-server/v2", "modernc.org/sqlite"}

const serverPackage = "worker/embedded"

var serverPrograms = []string{"cmd/converge-dev", "tests", "examples/authorizer", serverPackage}

func TestLayers(t *testing.T) {
	t.Parallel()
	for _, violation := range checkLayers(listPackages(t)) {
		t.Error(violation)
	}
}

func listPackages(t *testing.T) packageSet {
	t.Helper()
	var stderr bytes.Buffer
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Dir,Name,Standard,GoFiles,Imports,Deps", "./...")
	list.Dir, list.Stderr = "..", &stderr
	output, err := list.Output()
	require.NoError(t, err, stderr.String())
	all := packageSet{}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all[p.ImportPath] = p
	}
}

// checkLayers returns a sorted line for each import that the rules refuse.
func checkLayers(all packageSet) []string {
	var violations []string
	for _, layer := range layers {
		found := 0
		for _, p := range all {
			if within(p.ImportPath, layer.folder) {
				found++
				violations = append(violations, layer.violations(p, all)...)
			}
		}
		if found == 0 {
			violations = append(violations, fmt.Sprintf("%s: there is no package in it, so its rules hold nothing", layer.folder))
		}
	}
	for _, p := range all {
		if in(p.ImportPath, ourModule) {
			violations = append(violations, serverViolations(p)...)
		}
	}
	slices.Sort(violations)
	return violations
}

func (l layer) violations(p goPackage, all packageSet) []string {
	if in(p.ImportPath, ours(serverPackage)) {
		return nil // in worker, with rules of its own
	}
	var violations []string
	for _, dep := range p.Deps {
		if in(dep, ourModule) && !within(dep, l.folder) && !slices.ContainsFunc(l.ours, func(folder string) bool { return within(dep, folder) }) {
			violations = append(violations, fmt.Sprintf("%s must not reach %s: %s may build on %s only",
				short(p.ImportPath), short(dep), l.folder, strings.ReplaceAll(strings.Join(append([]string{"itself"}, l.ours...), ", "), "/.", " alone")))
		}
	}
	if l.check != nil {
		for _, reason := range l.check(p, all) {
			violations = append(violations, short(p.ImportPath)+" must not reach "+reason)
		}
	}
	return violations
}

func onlyStandardLibrary(p goPackage, all packageSet) []string {
	return refused(p.Deps, "entities import the standard library alone", func(dep string) bool {
		return !all[dep].Standard && !in(dep, ourModule)
	})
}

func noTemporal(p goPackage, _ packageSet) []string {
	return refused(p.Deps, "a runtime knows nothing of Temporal", func(dep string) bool { return in(dep, "go.temporal.io") })
}

func noServer(p goPackage, _ packageSet) []string {
	return refused(p.Deps, "it needs no server", func(dep string) bool { return in(dep, "go.temporal.io") })
}

// noCompiling keeps Helm and kustomize out of workers, which read what was compiled.
func noCompiling(p goPackage, _ packageSet) []string {
	return refused(p.Deps, "a worker reads what was compiled", func(dep string) bool {
		return in(dep, ours("intent/compile")) || in(dep, ours("intent/sources"))
	})
}

// noRendering keeps what few commands need out of the command line: the engines of Helm and Kustomize, and the clients of every kind of
// Kubernetes, which Helm brings too. They would be a quarter of it.
func noRendering(p goPackage, _ packageSet) []string {
	return refused(p.Deps, "converge-render has it", func(dep string) bool {
		return in(dep, ours("intent/render")) || in(dep, "helm.sh/helm/v4/pkg/engine") || in(dep, "sigs.k8s.io/kustomize/api/krusty") || in(dep, "k8s.io/client-go/kubernetes")
	})
}

// onlyTemporalSDK allows the SDK, its API types and what they bring along, so that a workflow links nothing that could
// talk to a cloud or a cluster.
func onlyTemporalSDK(p goPackage, all packageSet) []string {
	brought := map[string]bool{}
	for _, dep := range p.Deps {
		if in(dep, "go.temporal.io/sdk") || in(dep, "go.temporal.io/api") {
			brought[dep] = true
			for _, behind := range all[dep].Deps {
				brought[behind] = true
			}
		}
	}
	return refused(p.Deps, "workflows import the Temporal SDK and the standard library alone", func(dep string) bool {
		return !brought[dep] && !all[dep].Standard && !in(dep, ourModule)
	})
}

func refused(deps []string, why string, is func(string) bool) []string {
	var reasons []string
	for _, dep := range deps {
		if is(dep) {
			reasons = append(reasons, dep+": "+why)
		}
	}
	return reasons
}

// serverViolations keep the Temporal server in its place: linked by one package, reached by one program and the tests.
func serverViolations(p goPackage) []string {
	mayReach := slices.ContainsFunc(serverPrograms, func(folder string) bool { return in(p.ImportPath, ours(folder)) })
	mayImport := in(p.ImportPath, ours(serverPackage)) || in(p.ImportPath, ours("tests")) || in(p.ImportPath, ours("examples/authorizer"))
	imports, why := p.Imports, "only "+serverPackage+" imports it"
	if !mayReach {
		imports, why = p.Deps, "only cmd/converge-dev and tests link the server"
	} else if mayImport {
		return nil
	}
	var violations []string
	for _, dep := range imports {
		if slices.ContainsFunc(serverModules, func(module string) bool { return in(dep, module) }) {
			violations = append(violations, fmt.Sprintf("%s must not reach %s: %s", short(p.ImportPath), dep, why))
		}
	}
	return violations
}

// in reports whether path is the package or folder root or lies below it.
func in(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

func ours(folder string) string { return ourModule + "/" + folder }

// within reports whether a package lies in a folder as layers name it.
func within(path, folder string) bool {
	if root, alone := strings.CutSuffix(folder, "/."); alone {
		return path == ours(root)
	}
	return in(path, ours(folder))
}

func short(path string) string { return strings.TrimPrefix(path, ourModule+"/") }

// TestLayerRulesCanFail breaks each rule in a small made-up build.
func TestLayerRulesCanFail(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		edges string // importer: imports; "+" stands for the module
		want  []string
	}{
		{"as it should be", "+/workflows: +/entities/plan go.temporal.io/sdk/workflow\n" +
			"go.temporal.io/sdk/workflow: google.golang.org/grpc\n" +
			"+/activities: +/intent +/runtimes/custom\n+/intent: gocloud.dev/blob\n" +
			"+/intent/compile: +/intent/sources +/intent/incarnation\n+/intent/store: +/intent/incarnation\n" +
			"+/worker: +/activities +/workflows\n+/client/publish: +/intent/compile +/entities/protocol go.temporal.io/sdk/client\n" +
			"+/cmd/converge: +/worker +/client/publish +/cmd/internal/show github.com/spf13/cobra\n" +
			"+/worker/embedded: go.temporal.io/server/temporal\n+/cmd/converge-dev: +/worker/embedded +/worker\n" +
			"+/tests/temporaltest: +/worker/embedded modernc.org/sqlite", nil},
		{
			"entities importing a library", "+/entities/stats: gonum.org/v1/gonum/stat",
			[]string{"entities/stats must not reach gonum.org/v1/gonum/stat: entities import the standard library alone"},
		},
		{
			"entities importing another layer", "+/entities: +/intent",
			[]string{"entities must not reach intent: entities may build on itself only", "entities must not reach intent: entities/. may build on itself only"},
		},
		{
			"intent importing a runtime by a detour", "+/intent: +/intent/other\n+/intent/other: +/runtimes",
			[]string{
				"intent must not reach runtimes: intent may build on itself, entities alone, entities/order, entities/plan, entities/stats, entities/trail, entities/protocol, entities/spelling only",
				"intent/other must not reach runtimes: intent may build on itself, entities alone, entities/order, entities/plan, entities/stats, entities/trail, entities/protocol, entities/spelling only",
			},
		},
		{
			"a runtime that knows Temporal by a detour", "+/runtimes/custom: example.com/shell\nexample.com/shell: go.temporal.io/sdk/activity",
			[]string{"runtimes/custom must not reach go.temporal.io/sdk/activity: a runtime knows nothing of Temporal"},
		},
		{
			"a workflow with a cloud's SDK", "+/workflows: github.com/aws/aws-sdk-go-v2",
			[]string{"workflows must not reach github.com/aws/aws-sdk-go-v2: workflows import the Temporal SDK and the standard library alone"},
		},
		{
			"a workflow that calls an activity by its function", "+/workflows: +/activities",
			[]string{"workflows must not reach activities: workflows may build on itself, entities only"},
		},
		{
			"an activity that knows a workflow", "+/activities: +/workflows",
			[]string{"activities must not reach workflows: activities may build on itself, entities alone, entities/protocol, entities/order, entities/maestro, entities/selection, entities/drain, entities/configured, entities/loosen, entities/explain, entities/plan, entities/stats, entities/trail, entities/spelling, intent, runtimes only"},
		},
		{
			"an activity that knows the state of a service", "+/activities: +/entities/state",
			[]string{"activities must not reach entities/state: activities may build on itself, entities alone, entities/protocol, entities/order, entities/maestro, entities/selection, entities/drain, entities/configured, entities/loosen, entities/explain, entities/plan, entities/stats, entities/trail, entities/spelling, intent, runtimes only"},
		},
		{
			"a value that knows the state by a detour", "+/entities: +/entities/maestro\n+/entities/maestro: +/entities/state",
			[]string{
				"entities must not reach entities/maestro: entities/. may build on itself only",
				"entities must not reach entities/state: entities/. may build on itself only",
				"entities/maestro must not reach entities/state: entities/maestro may build on itself only",
			},
		},
		{
			"a decision that commits itself", "+/entities/decide: +/entities/loop",
			[]string{"entities/decide must not reach entities/loop: entities/decide may build on itself, entities alone, entities/order, entities/maestro, entities/selection, entities/state only"},
		},
		{
			"a store that compiles", "+/intent/store: +/intent/compile",
			[]string{"intent/store must not reach intent/compile: intent/store may build on itself, entities, intent/config, intent/bundle, intent/incarnation, intent/internal only"},
		},
		{
			"a configuration that knows its incarnation by a detour", "+/intent/config: +/intent/internal/strict\n+/intent/internal/strict: +/intent/incarnation",
			[]string{"intent/config must not reach intent/incarnation: intent/config may build on itself, entities, intent/internal/strict only"},
		},
		{
			"the worker linking client code", "+/worker: +/client/publish",
			[]string{"worker must not reach client/publish: worker may build on itself, entities, intent, runtimes, activities, workflows only"},
		},
		{
			"client code linking a workflow", "+/client/preview: +/workflows",
			[]string{"client/preview must not reach workflows: client may build on itself, entities, intent, runtimes, activities, worker/deployment only"},
		},
		{
			"an importer that publishes", "+/client/importer: +/client/publish go.temporal.io/sdk/client",
			[]string{
				"client/importer must not reach client/publish: client/importer may build on itself, entities alone, entities/protocol, entities/spelling, intent/config, intent/bundle, intent/charts, intent/sops, intent/sources, intent/internal, runtimes only",
				"client/importer must not reach go.temporal.io/sdk/client: it needs no server",
			},
		},
		{
			"an acceptance that asks the server itself", "+/client/acceptance: +/client/publish go.temporal.io/sdk/client",
			[]string{
				"client/acceptance must not reach client/publish: client/acceptance may build on itself, entities only",
				"client/acceptance must not reach go.temporal.io/sdk/client: it needs no server",
			},
		},
		{
			"client code using the command line", "+/client/importer: +/cmd/internal/show",
			[]string{
				"client/importer must not reach cmd/internal/show: client may build on itself, entities, intent, runtimes, activities, worker/deployment only",
				"client/importer must not reach cmd/internal/show: client/importer may build on itself, entities alone, entities/protocol, entities/spelling, intent/config, intent/bundle, intent/charts, intent/sops, intent/sources, intent/internal, runtimes only",
			},
		},
		{
			"a worker that compiles by a detour", "+/worker: +/activities\n+/activities: +/intent/compile",
			[]string{
				"activities must not reach " + ourModule + "/intent/compile: a worker reads what was compiled",
				"worker must not reach " + ourModule + "/intent/compile: a worker reads what was compiled",
			},
		},
		{
			"the worker using the command line", "+/worker: +/cmd/internal/show",
			[]string{"worker must not reach cmd/internal/show: worker may build on itself, entities, intent, runtimes, activities, workflows only"},
		},
		{
			"the light program linking the server", "+/cmd/converge: +/worker/embedded\n+/worker/embedded: go.temporal.io/server/temporal",
			[]string{"cmd/converge must not reach go.temporal.io/server/temporal: only cmd/converge-dev and tests link the server"},
		},
		{
			"the light program linking SQLite by a detour", "+/cmd/converge: example.com/cache\nexample.com/cache: modernc.org/sqlite",
			[]string{"cmd/converge must not reach modernc.org/sqlite: only cmd/converge-dev and tests link the server"},
		},
		{
			"the worker linking the UI", "+/worker: github.com/temporalio/ui-server/v2/server",
			[]string{"worker must not reach github.com/temporalio/ui-server/v2/server: only cmd/converge-dev and tests link the server"},
		},
		{
			"the server imported in a second place", "+/cmd/converge-dev: go.temporal.io/server/temporal",
			[]string{"cmd/converge-dev must not reach go.temporal.io/server/temporal: only worker/embedded imports it"},
		},
		{"a folder that only begins like another", "+/cmd/converge-dev: +/worker/embedded\n+/worker/embedded: modernc.org/sqlite", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, checkLayers(madeUp(row.edges)))
		})
	}
}

func TestEveryLayerHasPackages(t *testing.T) {
	t.Parallel()
	all := madeUp("")
	delete(all, ours("runtimes"))
	require.Equal(t, []string{"runtimes: there is no package in it, so its rules hold nothing"}, checkLayers(all))
}

// madeUp has a package for each layer and the imports given, with Deps worked out as go list does.
func madeUp(edges string) packageSet {
	all := packageSet{}
	add := func(path string) { all[path] = goPackage{ImportPath: path, Standard: !strings.Contains(path, ".")} }
	for _, layer := range layers {
		add(ours(layer.folder))
	}
	for line := range strings.Lines(strings.ReplaceAll(edges, "+", ourModule)) {
		importer, imports, _ := strings.Cut(strings.TrimSpace(line), ": ")
		for _, path := range append([]string{importer}, strings.Fields(imports)...) {
			if _, ok := all[path]; !ok {
				add(path)
			}
		}
		p := all[importer]
		p.Imports = append(p.Imports, strings.Fields(imports)...)
		all[importer] = p
	}
	for path, p := range all {
		p.Deps = reachable(all, path, nil)
		all[path] = p
	}
	return all
}

func reachable(all packageSet, path string, seen []string) []string {
	for _, next := range all[path].Imports {
		if !slices.Contains(seen, next) {
			seen = reachable(all, next, append(seen, next))
		}
	}
	return seen
}
