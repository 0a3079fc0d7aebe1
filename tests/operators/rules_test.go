package operators

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

const installationRules = `apiVersion: converge/v1
kind: Installation
authorization:
- {verbs: [pause, resume], to: [alice]}
- {verbs: [pause], runtimes: [%s], to: [bob]}
- {verbs: [configure], to: [carol]}
`

// setRules sends rules as somebody, from a file that the program compiles.
func setRules(w *stage.World, text, as string) (string, error) {
	w.T.Helper()
	file := filepath.Join(w.T.TempDir(), "installation.yaml")
	require.NoError(w.T, os.WriteFile(file, []byte(text), 0o600))
	cmd := exec.CommandContext(w.T.Context(), shared.Converge(w.T), "admin", "rules", file, "--yes", "--reason", "drill", "--address", w.Address)
	cmd.Env = append(os.Environ(), "CONVERGE_BY="+as)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func installationOf(w *stage.World) (s protocol.InstallationStatus) {
	w.T.Helper()
	query(w, protocol.InstallationID(), &s)
	return s
}

// What concerns everything, or a runtime, takes a grant of the installation's rules from the first that names its verb: as an
// update, as a signal, and through the end of their workflows. Who may not change them cannot.
func TestRulesOfTheInstallation_F4(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	runtime := w.App + "-rt"
	ask := func(id, verb, by, more string) error {
		var answer protocol.Answer
		return w.Update(id, verb, json.RawMessage(fmt.Sprintf(`{"by":%q%s}`, by, more)), &answer)
	}
	everything, rt := protocol.InstallationID(), protocol.RuntimeID(runtime)
	_, err := w.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: rt, TaskQueue: protocol.TaskQueue}, protocol.RuntimeWorkflow,
		protocol.RuntimeInput{Runtime: runtime, StartMode: protocol.StartMode{Adopt: true}})
	require.NoError(t, err)
	require.NoError(t, ask(rt, protocol.Pause, "mallory", ""), "nothing is restricted yet")
	require.NoError(t, ask(rt, protocol.Resume, "mallory", ""))

	said, err := setRules(w, fmt.Sprintf(installationRules, runtime), "carol")
	require.NoError(t, err, said)
	require.Contains(t, said, "rules 1 are in force")
	said, err = setRules(w, fmt.Sprintf(installationRules, runtime), "carol")
	require.NoError(t, err, said)
	require.Contains(t, said, "nothing changed")
	shown := cli(w, "admin", "rules")
	require.Contains(t, shown, "pause of runtime/"+runtime+": bob")
	require.Contains(t, shown, "rules 1, set by carol?")

	require.ErrorContains(t, ask(everything, protocol.Pause, "mallory", ""), "mallory may not pause; allowed: alice")
	require.ErrorContains(t, ask(everything, protocol.Pause, "bob", ""), "bob may not pause; allowed: alice")
	require.ErrorContains(t, ask(rt, protocol.Pause, "mallory", ""), "mallory may not pause in runtime/"+runtime)
	require.ErrorContains(t, ask(everything, protocol.Configure, "mallory", `,"grants":[]`), "mallory may not configure; allowed: carol")
	require.ErrorContains(t, ask(everything, protocol.Configure, "carol", `,"grants":[{"verbs":["approve"],"to":["carol"]}]`), `grant 1: unknown verb "approve"`)
	require.NoError(t, w.Client.SignalWorkflow(t.Context(), everything, "", protocol.Configure, json.RawMessage(`{"by":"mallory","grants":[]}`)))
	require.NoError(t, w.Client.SignalWorkflow(t.Context(), everything, "", protocol.Pause, json.RawMessage(`{"by":"mallory"}`)))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		s := installationOf(w)
		return len(s.Refused) == 2, fmt.Sprint(s.Refused)
	})
	require.EqualValues(t, 1, installationOf(w).Rules.Number)
	require.Nil(t, installationOf(w).Pause)

	for _, id := range []string{everything, rt} { // the store says which they are
		require.NoError(t, w.Client.TerminateWorkflow(t.Context(), id, "", "to be free of rules"))
	}
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		for _, id := range []string{everything, rt} {
			if err := ask(id, protocol.Pause, "mallory", ""); err == nil || !strings.Contains(err.Error(), "mallory may not pause") {
				return false, fmt.Sprint(id, err)
			}
		}
		return true, ""
	})

	require.NoError(t, ask(rt, protocol.Pause, "bob", ""))
	w.Await("web", "staging PAUSED v1, production PAUSED v1")
	require.ErrorContains(t, ask(rt, protocol.Resume, "bob", ""), "bob may not resume in runtime/"+runtime+"; allowed: alice")
	require.NoError(t, ask(rt, protocol.Resume, "alice", ""))
	require.NoError(t, ask(everything, protocol.Pause, "alice", `,"except":["`+w.App+`"]`))
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	history, _, code := tried(w, "history", w.App+"/web", "--store", w.Store)
	require.Zero(t, code)
	require.Contains(t, history, "everything paused except for "+w.App, "it did not pause this one")
	require.NoError(t, ask(everything, protocol.Resume, "alice", ""))
}

// The address of the board in the rules reaches the services that run: their status, explanation and details link to their pages. Without it
// the links are gone.
func TestRulesNameTheBoard(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	id := protocol.ServiceID(w.App, "web")
	shows := func(want string) {
		t.Helper()
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			var s protocol.Status
			query(w, id, &s)
			return s.Board == want, fmt.Sprintf("board %q", s.Board)
		})
	}
	said, err := setRules(w, "apiVersion: converge/v1\nkind: Installation\nboard: https://converge.shop.dev\n", "carol")
	require.NoError(t, err, said)
	page := "https://converge.shop.dev/services/" + w.App + "/web"
	shows(page)
	require.Contains(t, cli(w, "explain", w.App+"/web"), "Board: "+page)
	require.Contains(t, cli(w, "admin", "rules"), "board: https://converge.shop.dev")
	details := func(id string) string { // in the Temporal UI
		t.Helper()
		metadata, err := w.Client.QueryWorkflow(t.Context(), id, "", "__temporal_workflow_metadata")
		require.NoError(t, err)
		var shown sdk.WorkflowMetadata
		require.NoError(t, metadata.Get(&shown))
		return shown.CurrentDetails
	}
	require.Contains(t, details(id), "[Its page on the board]("+page+")")
	require.Contains(t, details(protocol.InstallationID()), "[Its page on the board](https://converge.shop.dev/installation)")
	started := func(id string) string {
		t.Helper()
		about, err := w.Client.DescribeWorkflow(t.Context(), id, "")
		require.NoError(t, err)
		text, err := about.GetStaticDetails()
		require.NoError(t, err)
		return text
	}
	dir := t.TempDir()
	cli(w, "config", "init", filepath.Join(dir, "later"))
	cli(w, "config", "publish", filepath.Join(dir, "later"), "--store", w.Store)
	require.Contains(t, started(protocol.ApplicationID("later")), "[Its page on the board](https://converge.shop.dev/applications/later)")
	at, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	defer at.Close()
	plan := protocol.PlanOfIncarnation(w.App, "production", 1)
	_, err = activities.StartPlan(t.Context(), w.Client, at, plan, protocol.PlanTask{Incarnation: 1})
	require.NoError(t, err)
	require.Contains(t, started(plan.ID()), "[Its page on the board](https://converge.shop.dev/applications/"+w.App+"/plans/production)")

	var answer protocol.Answer
	err = w.Update(protocol.InstallationID(), protocol.Configure, json.RawMessage(`{"by":"carol","board":"https://shop.dev/board"}`), &answer)
	require.ErrorContains(t, err, `invalid address of the board "https://shop.dev/board"; expected https://HOST`)
	said, err = setRules(w, "apiVersion: converge/v1\nkind: Installation\n", "carol")
	require.NoError(t, err, said)
	shows("")
}
