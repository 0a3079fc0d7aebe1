package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// gatesTour is what a command of the tour prints, and the status that follows it, as a regular expression.
type gatesTour struct{ command, shows, status string }

// The tour of examples/gates, in the order of its page, with what the page says that one sees. The freeze of the example ends the tour on
// one day of a year, so that it is moved away.
func TestGatesFromTheReadme_A14_A15_A17_A22(t *testing.T) {
	t.Parallel()
	stage.Long(t, "two minutes, of real processes")
	examples := filepath.Join(t.TempDir(), "examples")
	for _, name := range []string{"hello", "gates"} {
		require.NoError(t, os.CopyFS(filepath.Join(examples, name), os.DirFS("../examples/"+name)))
		require.NoError(t, os.RemoveAll(filepath.Join(examples, name, ".converge")))
	}
	for _, program := range []string{"hello/run", "gates/migrate"} {
		require.NoError(t, os.Chmod(filepath.Join(examples, program), 0o755)) // CopyFS drops it
	}
	d := shared.Dev(t, filepath.Join(examples, "gates"))
	file := filepath.Join(d.Dir, "gates.converge.yaml")
	config, err := os.ReadFile(file)
	require.NoError(t, err)
	ports := [2]int{shared.FreePort(t), shared.FreePort(t)}
	servers := []string{fmt.Sprintf("http://127.0.0.1:%d/", ports[0]), fmt.Sprintf("http://127.0.0.1:%d/", ports[1])}
	text := strings.NewReplacer(`"8111"`, fmt.Sprintf(`"%d"`, ports[0]), `"8112"`, fmt.Sprintf(`"%d"`, ports[1]),
		`"2026-12-31"`, `"2096-12-31"`, `"2027-01-01"`, `"2097-01-01"`).Replace(string(config))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	t.Cleanup(func() { _ = exec.Command(filepath.Join(examples, "hello", "run"), "stop").Run() })
	d.Start()
	until := func(want string) {
		t.Helper()
		matches := regexp.MustCompile("^" + want + "$")
		temporaltest.WaitFor(t, 2*stage.Patience, func() (bool, string) {
			out, code := d.Converge("status", "gates/shop", "--output", "json")
			all, err := stage.Statuses(out)
			if code != 0 || err != nil {
				return false, out
			}
			return matches.MatchString(stage.Channels(all[0])), "want " + want + ", have " + stage.Channels(all[0])
		})
	}
	until("staging CONVERGED v1, production WAITING_MANUAL_APPROVAL.*")
	d.Dir = filepath.Dir(examples)

	page := readPage(t, "examples/gates/README.md").text
	var shown []string
	for _, row := range table(t, page, "| try | and see |") {
		for _, command := range quoted(row[0]) {
			if strings.HasPrefix(command, "converge ") {
				shown = append(shown, command)
			}
		}
	}
	const gates = "../docs/gates.md"
	whenOpen := strings.NewReplacer("open until Thu 31 Dec 00:00 CET", "open…") // the freeze of the copy is in another year
	// What docs/gates.md shows, once a command was run.
	after := map[string]stage.Block{
		"converge status gates":                   stage.Only(t, gates, "Gates and rollbacks"),
		"converge approve gates/shop v13 go-live": stage.Only(t, gates, "Protections"),
	}
	var run []string
	for _, c := range tourOfGates {
		run = append(run, c.command)
		d.RunPage(stage.Block{Heading: "the tour", Commands: []stage.Command{{Line: c.command, Shown: []string{c.shows}}}})
		if c.status != "" {
			until(c.status)
		}
		if b, found := after[c.command]; found {
			d.RunPage(b.With(whenOpen))
			delete(after, c.command)
		}
	}
	moved := strings.NewReplacer("2026-12-31T", "2096-12-31T", "Thu 31 Dec", "Mon 31 Dec", "Sat 2 Jan 2027", "Wed 2 Jan 2097") // as the freeze
	d.RunPage(stage.Only(t, gates, "Simulate").With(moved))
	looser := filepath.Join(examples, "looser")
	require.NoError(t, os.CopyFS(looser, os.DirFS(filepath.Join(examples, "gates"))))
	replaced := strings.NewReplacer("for: 15s", "for: 5s", `["v13*"]`, `["v14*"]`).Replace(text)
	require.NotEqual(t, text, replaced)
	require.NoError(t, os.WriteFile(filepath.Join(looser, filepath.Base(file)), []byte(replaced), 0o600))
	d.RunPage(stage.Only(t, gates, "Rules that change").With(strings.NewReplacer("examples/gates", "examples/looser")))
	require.Equal(t, shown, slices.DeleteFunc(slices.Clone(run), func(command string) bool { return strings.Contains(command, "--approved") }))
	for _, b := range readPage(t, "README.md").blocks() {
		if strings.Contains(b.text, "gates/shop") && !strings.Contains(b.text, "temporal ") {
			require.Subset(t, run, strings.Split(strings.TrimSpace(b.text), "\n"))
		}
	}

	application, _, found := strings.Cut(text, "---\napiVersion: converge/v1\nkind: Service")
	require.True(t, found)
	_, runtime, _ := strings.Cut(text, "kind: Runtime")
	require.NoError(t, os.WriteFile(file, []byte(application+"---\napiVersion: converge/v1\nkind: Runtime"+runtime), 0o600))
	until("production ORPHANED v1, staging ORPHANED v13")
	for _, url := range servers {
		require.Contains(t, get(url), "Hello from")
	}
	d.RunPage(stage.Block{Commands: []stage.Command{{Line: `converge channel delete gates/shop --reason "end of the walk" --yes`}}})
	for _, url := range servers {
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { page := get(url); return !strings.Contains(page, "Hello from"), page })
	}
	d.RunPage(stage.Block{Commands: []stage.Command{{Line: "converge history gates/shop", Shown: []string{"end of the walk"}}}})
}

var tourOfGates = []gatesTour{
	{"converge explain gates/shop production", "converge approve gates/shop v1 go-live", ""},
	{"converge approve gates/shop v1 go-live", "", "staging CONVERGED v1, production CONVERGED v1"},
	{"converge approve gates/shop v1 go-live", "", ""},
	{"converge release gates/shop v2 -p faults=30 --wait --stop-at-approval", "", "staging CONVERGED v2, production WAITING_MANUAL_APPROVAL v1"},
	{`converge approve gates/shop v2 go-live --comment "looks fine"`, "", "staging CONVERGED v2, production ROLLED_BACK v1"},
	{"converge explain gates/shop production", "v2", ""},
	{"converge release gates/shop v13", "", "staging CONVERGED v13, production BLOCKED v1"},
	{"converge status gates", "BLOCKED", ""},
	{`converge bypass gates/shop v13 production bad-versions --reason "customer 13 insists"`, "", "staging CONVERGED v13, production WAITING_MANUAL_APPROVAL v1"},
	{"converge approve gates/shop v13 go-live", "", ""},
	{"converge wait gates/shop", "", "staging CONVERGED v13, production CONVERGED v13"},
	{`converge channel pin gates/shop production v1 --reason "v13 breaks printing"`, "", "staging CONVERGED v13, production [A-Z]+ v1"},
	{"converge channel unpin gates/shop production", "", ""},
	{"converge explain gates/shop production", "bad-versions", "staging CONVERGED v13, production BLOCKED v1"},
	{`converge bypass gates/shop v13 production bad-versions --reason "customer 13 insists"`, "", "staging CONVERGED v13, production WAITING_MANUAL_APPROVAL v1"},
	{"converge approve gates/shop v13 go-live", "", ""},
	{"converge wait gates/shop", "", "staging CONVERGED v13, production CONVERGED v13"},
	{`converge rollback gates/shop --channel production --reason "errors in checkout"`, "", "staging CONVERGED v13, production [A-Z_]+ v1"},
	{"converge simulate gates/shop v14 --at 2026-12-30T23:00 --zone Europe/Paris", "approval/go-live", ""},
	{"converge simulate gates/shop v14 --at 2026-12-31T10:00 --zone Europe/Paris --approved --export plan.svg", "v14 is in every channel", ""},
	{"converge history gates/shop", "alice?", ""},
}
