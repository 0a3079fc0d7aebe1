package tests

import (
	"bytes"
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/converge-engine/converge/tests/programtest"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/sops"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
)

// firstBoot is a home in which an indexer makes a key when it boots first, that a payload, a reconciler and a proxy need. OUT is a directory
// outside of all that Converge keeps; commands are in the directory of the configuration.
const firstBoot = `apiVersion: converge/v1
kind: Application
name: APP
plan: {ageRecipients: [RECIPIENT]}
releaseChannels: [{name: production, runtimes: [{name: APP-rt}, {name: APP-box}]}]
---
{apiVersion: converge/v1, kind: Runtime, name: APP-rt, fake: {pollInterval: 100ms, steadyPollInterval: 300ms}}
---
apiVersion: converge/v1
kind: Runtime
name: APP-box
custom:
  env: {OUT: OUTDIR}
  apply: {command: [./run, apply]}
  fetch: {command: [./run, fetch], mode: structured}
  pollInterval: 100ms
---
apiVersion: converge/v1
kind: Service
name: prowlarr
runtime: APP-rt
initialVersion: v1
setupCallback: {captures: [apiKey], command: [./run, capture], env: {OUT: OUTDIR}, retry: {backoff: 1s}}
feeds: [{aggregator: traefik, content: "the key is ${{ captured.prowlarr.apiKey }}"}]
---
apiVersion: converge/v1
kind: Service
name: sonarr
runtime: APP-rt
initialVersion: v1
reconcilers: [{name: register, command: [./run, register], env: {OUT: OUTDIR, KEY: {captured: prowlarr, key: apiKey}}}]
---
{apiVersion: converge/v1, kind: Service, name: seerr, runtime: APP-box, initialVersion: v1, custom: {env: {KEY: {captured: prowlarr, key: apiKey}}}}
---
{apiVersion: converge/v1, kind: Service, name: traefik, runtime: APP-rt, initialVersion: v1, aggregator: {sync: {strategy: dir, command: [./run, sync], env: {OUT: OUTDIR}}}}
`

// firstBootRun is each of the commands. All of them say what they should not.
const firstBootRun = `#!/bin/sh
echo "$1" >> "$OUT/log"
case $1 in
capture) cat "$OUT/first-boot" >&2; [ ! -e "$OUT/fails" ] || exit 3; printf 'apiKey=%s\n' "$(cat "$OUT/first-boot")";;
register) printf %s "$KEY" > "$OUT/register"; echo "registered with $KEY";;
sync) cp "$PVN_PLAN_FILE" "$OUT/sync"; cat "$PVN_PLAN_FILE"; cat "$PVN_PLAN_FILE" >&2;;
apply) printf %s "$KEY" > "$OUT/apply"; echo "$PVN_SERVICE_VERSION" > "$OUT/version"; echo "applied with $KEY";;
fetch) printf '{"objects": [{"name": "seerr", "objectType": "Box", "status": "SUCCEEDED", "versions": [{"version": "%s", "active": true}]}]}' "$(cat "$OUT/version" 2>/dev/null)";;
esac
`

// boot is a world with a first boot in it, on a server whose database a test can read.
type boot struct {
	*household
	out, database string
	key           string // what the first boot made
}

func newBoot(t *testing.T) *boot {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	keys, err := sops.Load(nil, func(name string) string { return map[string]string{sops.KeyVariable: id.String()}[name] })
	require.NoError(t, err)
	b := &boot{out: t.TempDir(), database: filepath.Join(t.TempDir(), "temporal.db")}
	b.household = &household{&world{shared.Unserved(t, embedded.Options{DBFile: b.database})}}
	b.StartWorkerAs(worker.Options{Sops: keys})
	programtest.Write(t, filepath.Join(b.Dir, "run"), firstBootRun)
	b.makes(rand.Text())
	b.Write(strings.NewReplacer("RECIPIENT", id.Recipient().String(), "OUTDIR", b.out).Replace(firstBoot))
	return b
}

// makes is what the first boot makes.
func (b *boot) makes(key string) {
	b.T.Helper()
	b.key = key
	require.NoError(b.T, os.WriteFile(filepath.Join(b.out, "first-boot"), []byte(key), 0o600))
}

func (b *boot) wrote(name string) string {
	b.T.Helper()
	text, err := os.ReadFile(filepath.Join(b.out, name))
	require.NoError(b.T, err)
	return string(text)
}

// captured counts how often the command ran that captures.
func (b *boot) captured() int { return strings.Count(b.wrote("log"), "capture\n") }

// places lists where a text is: in the store, the database of Temporal, the histories of all workflows, and what is said of services.
func (b *boot) places(text string) (found []string) {
	b.T.Helper()
	for _, dir := range []string{b.Store, b.Dir, filepath.Dir(b.database)} {
		require.NoError(b.T, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			if bytes.Contains(content, []byte(text)) {
				found = append(found, path)
			}
			return err
		}))
	}
	list, err := b.Client.ListWorkflow(b.T.Context(), &workflowservice.ListWorkflowExecutionsRequest{})
	require.NoError(b.T, err)
	require.NotEmpty(b.T, list.Executions)
	for _, w := range list.Executions {
		if b.inHistory(w, text) {
			found = append(found, "history of "+w.Execution.WorkflowId)
		}
	}
	for _, service := range []string{"prowlarr", "sonarr", "seerr", "traefik"} {
		if strings.Contains(b.explain(service), text) {
			found = append(found, "explain "+service)
		}
	}
	return found
}

func (b *boot) inHistory(w *workflowpb.WorkflowExecutionInfo, text string) bool {
	for _, e := range b.History(w.Execution.WorkflowId) {
		if strings.Contains(e.String(), text) {
			return true
		}
	}
	return false
}

// What the first boot of a service made is captured once, and reaches the payload, the reconciler and the aggregator that need it; elsewhere
// it is nowhere, although every command says it.
func TestCapturedSecretReachesWhoNeedsIt_E2_G5(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	b.Publish()
	for name, state := range states(b.awaitPlan("i1", over)) {
		require.Equal(t, "done", state, name)
	}
	b.Await("seerr", "production CONVERGED v1")
	require.Equal(t, b.key, b.wrote("register"))
	require.Equal(t, b.key, b.wrote("apply"))
	require.Contains(t, b.wrote("sync"), `"content":"the key is `+b.key+`"`)
	require.Equal(t, 1, b.captured())
	require.Empty(t, b.places(b.key))
	require.NotEmpty(t, b.places("registered with ***"), "what commands print is kept")

	first := b.key // it is captured at the first boot, and again when somebody asks
	b.makes(rand.Text())
	b.ask(1, protocol.PlanTask{Whole: true})
	b.awaitPlan("i1", func(_ map[string]protocol.PlanNodeStatus, s protocol.PlanStatus) bool {
		return s.Over && strings.Count(b.wrote("log"), "register\n") == 2
	})
	require.Equal(t, 1, b.captured())
	require.Equal(t, first, b.wrote("register"))
	b.ask(1, protocol.PlanTask{Whole: true, Recapture: []string{"prowlarr"}})
	b.awaitPlan("i1", func(_ map[string]protocol.PlanNodeStatus, s protocol.PlanStatus) bool {
		return s.Over && strings.Count(b.wrote("log"), "register\n") == 3
	})
	require.Equal(t, b.key, b.wrote("register"))
	require.Contains(t, b.wrote("sync"), b.key)
	at, err := store.Open(t.Context(), b.Store)
	require.NoError(t, err)
	defer at.Close()
	c, err := at.Captured(t.Context(), b.App, "production", "prowlarr")
	require.NoError(t, err)
	require.EqualValues(t, 2, c.Version)
	require.Equal(t, []string{"apiKey"}, c.Names)
	require.Empty(t, append(b.places(first), b.places(b.key)...))
}

// A command that fails while it captures is tried again, and shows nothing of what it printed; nobody begins before who needs the secret.
func TestFailedCaptureRevealsNothing_E2_G5(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	fails := filepath.Join(b.out, "fails")
	require.NoError(t, os.WriteFile(fails, nil, 0o600))
	b.Publish()
	nodes := b.awaitPlan("i1", func(nodes map[string]protocol.PlanNodeStatus, _ protocol.PlanStatus) bool {
		return nodes["CALLBACK"].State == "held"
	})
	require.Contains(t, nodes["CALLBACK"].Text, "setup-callback failed, attempt 1 of 5: ./run exited 3: ***; again in")
	require.Equal(t, "waiting", nodes["SYNC traefik"].State)
	require.Equal(t, "waiting", nodes["DEPLOY seerr@"+b.App+"-box"].State)
	require.NoError(t, os.Remove(fails))
	for name, state := range states(b.awaitPlan("i1", over)) {
		require.Equal(t, "done", state, name)
	}
	require.Equal(t, b.key, b.wrote("register"))
	require.Empty(t, b.places(b.key))
}

// The search of these tests finds a secret that leaks: what a command prints that is not said to capture is kept.
func TestLeakIsFound_E2_G5(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	config, err := os.ReadFile(filepath.Join(b.Dir, "converge.yaml"))
	require.NoError(t, err)
	b.Write(strings.Replace(string(config), "reconcilers: [", "setupCallback: {command: [./run, capture], env: {OUT: "+b.out+"}}\nreconcilers: [", 1))
	b.Publish()
	b.awaitPlan("i1", over)
	found := strings.Join(b.places(b.key), " ")
	require.Contains(t, found, b.Store)
	require.Contains(t, found, b.database)
	require.Contains(t, found, "history of plan/")
}
