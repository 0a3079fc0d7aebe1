package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/converge-engine/converge/tests/programtest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// outputting is a service whose payload, and another extension, use what an extension reports. OUTDIR has what it reports for each version.
const outputting = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels: [{name: production, runtimes: [{name: APP-box}]}]
---
apiVersion: converge/v1
kind: Runtime
name: APP-box
custom:
  env: {OUT: OUTDIR}
  apply: {command: [./run, apply]}
  fetch: {command: [./run, fetch], mode: structured}
  pollInterval: 100ms
  steadyPollInterval: 300ms
---
apiVersion: converge/v1
kind: Service
name: web
initialVersion: v1
parameters: [{name: path, type: string, default: "at/${{ outputs.infra.host }}"}]
extensions:
- {name: infra, lifecycle: preApproval, command: [./run, report, "${{ version }}"], outputs: [host, port], env: {OUT: OUTDIR}, retry: {maxAttempts: 1}}
- {name: migrate, lifecycle: postApproval, command: [./run, migrate, "${{ outputs.infra.host }}"], env: {OUT: OUTDIR, PORT: "${{ outputs.infra.port }}"}}
custom: {env: {URL: "http://${{ outputs.infra.host }}:${{ outputs.infra.port }}/${{ params.path }}"}}
`

const outputtingRun = `#!/bin/sh
case $1 in
report) echo "now it is there"; cat "$OUT/report-$2";;
migrate) echo "$2 $PORT" > "$OUT/migrated";;
apply) printf '%s %s' "$PVN_SERVICE_VERSION" "$URL" > "$OUT/applied.new" && mv "$OUT/applied.new" "$OUT/applied"; echo "$PVN_SERVICE_VERSION" > "$OUT/version";;
fetch) printf '{"objects": [{"name": "web", "objectType": "Box", "status": "SUCCEEDED", "versions": [{"version": "%s", "active": true}]}]}' "$(cat "$OUT/version" 2>/dev/null)";;
esac
`

// What an extension reports reaches the payload of its release and the extensions after it, and stays with the version: after a restart of
// the worker, in later runs of the workflow and after a rollback it is what it was.
func TestOutputsReachThePayload_A21(t *testing.T) {
	t.Parallel()
	w := shortRuns(t, 60)
	out := t.TempDir()
	wrote := func(name string) string {
		text, err := os.ReadFile(filepath.Join(out, name))
		require.NoError(t, err)
		return string(text)
	}
	reports := func(version, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(out, "report-"+version), []byte(text), 0o600))
	}
	programtest.Write(t, filepath.Join(w.Dir, "run"), outputtingRun)
	reports("v1", `{"outputs": {"host": "one", "port": 81, "other": [1]}}`)
	w.Write(strings.ReplaceAll(outputting, "OUTDIR", out))
	w.Publish()
	w.Await("web", "production CONVERGED v1")
	require.Equal(t, "v1 http://one:81/at/one", wrote("applied"))
	require.Equal(t, "one 81\n", wrote("migrated"))

	reports("v2", `{"outputs": {"host": "two"}}`)
	w.Release("web", "v2")
	waitsFor(w.World, "web", "extension infra: it did not report the output port; it reported host")
	require.Contains(t, wrote("applied"), "v1 ", "nothing begins without it")
	reports("v1", `{"outputs": {"host": "elsewhere", "port": "1"}}`)
	reports("v2", "{\n \"outputs\": {\"host\": \"two\",\n \"port\": \"82\"}}\n")
	w.StopWorker()
	w.StartWorker()
	w.Act("web", "retry", `{"version":"v2","by":"bob"}`)
	w.Await("web", "production CONVERGED v2")
	require.Equal(t, "v2 http://two:82/at/two", wrote("applied"))

	w.Act("web", protocol.Rollback, `{"version":"v2","by":"bob"}`)
	w.Await("web", "production ROLLED_BACK v1")
	require.Equal(t, "v1 http://one:81/at/one", wrote("applied"), "what v1 runs with is what was reported for it")

	w.Release("web", "v3")
	waitsFor(w.World, "web", "./run exited 1")
	for _, condition := range []string{"extension/infra", "extension/migrate"} {
		w.Act("web", protocol.Bypass, `{"by":"bob","version":"v3","channel":"production","condition":"`+condition+`","reason":"we dare"}`)
	}
	w.AwaitThat("web", "no apply without what was to be reported", func(s protocol.Status) bool {
		return strings.Contains(fmt.Sprintf("%+v", s), "extension infra reported nothing for v3 in production")
	})
	require.Contains(t, wrote("applied"), "v1 ")

	at, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	defer at.Close()
	r, err := at.Report(t.Context(), store.Report{Application: w.App, Service: "web", Channel: "production", Extension: "infra", Of: "v2"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"host": "two", "port": "82"}, r.Outputs)
	require.EqualValues(t, 1, r.Version)
}

// A step before everything else reports where a target is, and what aggregators, DNS and commands after it use.
func TestStepReportsAddresses_E15(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	said := filepath.Join(h.Dir, "said")
	require.NoError(t, os.WriteFile(said, []byte(`{"outputs": {"zone": "inside"}, "addresses": {"`+h.App+`-rt": "192.0.2.7"}}`), 0o600))
	h.Write(strings.NewReplacer(
		"ZONE}", "one}", "PLAN}", `, before: [{name: infra, command: [cat, said], outputs: [zone], addresses: [APP-rt], retry: {maxAttempts: 1}}, {name: reach, command: [sh, -c, "echo ${{ addresses.APP-rt }} > reached"]}]}`,
		`content: "sonarr in`, `content: "sonarr at ${{ addresses.APP-rt }} of ${{ outputs.infra.zone }} in`,
		"reconcilers: [{name: register, command: [./run]}]", `reconcilers: [{name: register, command: [sh, -c, "echo ${{ outputs.infra.zone }} > zone"]}]`,
		"CHANNELS]", "]", "SERIAL\n", "\n",
	).Replace(home))
	h.Publish()
	for node, state := range states(h.awaitPlan("i1", over)) {
		require.Equal(t, "done", state, node)
	}
	require.ElementsMatch(t, []string{"prowlarr in one", "sonarr at 192.0.2.7 of inside in one"}, h.given())
	require.Equal(t, "192.0.2.7", h.input("DNS").Services[0].Targets[0].Address)
	require.Equal(t, "192.0.2.7", h.input("SYNC_traefik_"+h.App+"-rt").Address)
	for name, want := range map[string]string{"zone": "inside\n", "reached": "192.0.2.7\n"} {
		text, err := os.ReadFile(filepath.Join(h.Dir, name))
		require.NoError(t, err)
		require.Equal(t, want, string(text))
	}

	require.NoError(t, os.WriteFile(said, []byte(`{"outputs": {"zone": "inside"}, "addresses": {"`+h.App+`-rt": "no such; place"}}`), 0o600))
	h.ask(1, protocol.PlanTask{Whole: true})
	h.awaitPlan("i1", func(_ map[string]protocol.PlanNodeStatus, s protocol.PlanStatus) bool {
		return s.Over && strings.Contains(s.StepError, "the reported address of "+h.App+`-rt is invalid: "no such; place"`)
	})
	require.NoError(t, os.WriteFile(said, []byte(`{"outputs": {"zone": "outside"}, "addresses": {"`+h.App+`-rt": "192.0.2.8"}}`), 0o600))
	h.ask(1, protocol.PlanTask{Whole: true})
	h.awaitPlan("i1", func(nodes map[string]protocol.PlanNodeStatus, s protocol.PlanStatus) bool {
		return s.Over && s.StepError == "" && h.input("DNS").Services[0].Targets[0].Address == "192.0.2.8"
	})
	require.ElementsMatch(t, []string{"prowlarr in one", "sonarr at 192.0.2.8 of outside in one"}, h.given())
}

// input is what the command of a node got last.
func (h *household) input(node string) (input plan.Input) {
	h.T.Helper()
	text, err := os.ReadFile(filepath.Join(h.Dir, "got-"+node))
	require.NoError(h.T, err)
	require.NoError(h.T, json.Unmarshal(text, &input))
	return input
}
