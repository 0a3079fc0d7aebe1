// Package examples holds complete applications that run as they stand. The tests here hold them to
// that; what is particular to one is tested beside it.
package examples

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/custom"
	"github.com/converge-engine/converge/tests/runtimetest"
)

// compiled loads an example from a copy of its own, so that what it leaves behind goes with the test. Its runtimes are placed there, as
// a worker places them.
func compiled(t *testing.T, example string) *compile.Compiled {
	t.Helper()
	dir := filepath.Join(t.TempDir(), example)
	copied := exec.Command("cp", "-R", example, dir) // unlike os.CopyFS it keeps what is executable
	out, err := copied.CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, ".converge")))
	config, err := compile.Load(dir)
	require.NoError(t, err)
	c, err := compile.Compile(config)
	require.NoError(t, err)
	for i := range c.Runtimes {
		require.True(t, filepath.IsLocal(c.Runtimes[i].Dir))
		c.Runtimes[i].Dir = filepath.Join(dir, c.Runtimes[i].Dir)
	}
	return c
}

func render(t *testing.T, c *compile.Compiled, service, version string) map[string]entities.Payload {
	t.Helper()
	payloads, err := incarnation.Render(c.Incarnation, service, incarnation.RenderInput{Version: version})
	require.NoError(t, err)
	return payloads
}

func TestHelloCompiles(t *testing.T) {
	c := compiled(t, "hello")
	require.Len(t, c.Runtimes, 1)
	_, err := custom.New(c.Runtimes[0])
	require.NoError(t, err)
	payloads := render(t, c, "web", "v1")
	for channel, want := range map[string]map[string]entities.Value{
		"staging":    {"PORT": {Literal: "8101"}, "GREETING": {Literal: "Hello"}, "DELAY": {Literal: "0"}},
		"production": {"PORT": {Literal: "8102"}, "GREETING": {Literal: "Hello, world"}, "DELAY": {Literal: "0"}},
	} {
		require.Equal(t, want, payloads[channel].Custom.Env, channel)
	}
}

// site is the exit-code example at work in a directory of its own.
type site struct {
	*testing.T
	*custom.Runtime
	dir      string
	payloads map[string]entities.Payload
}

func newSite(t *testing.T) *site {
	c := compiled(t, "exit-code")
	rt, err := custom.New(c.Runtimes[0])
	require.NoError(t, err)
	return &site{T: t, Runtime: rt, dir: c.Runtimes[0].Dir, payloads: render(t, c, "pages", "v1")}
}

func (s *site) at(channel, version string) runtimes.Request {
	payload := s.payloads[channel]
	return runtimes.Request{Owner: runtimes.Owner{Application: "site", Service: "pages", ID: entities.Only(channel)}, ServiceID: "id-1", FullVersion: version, Payload: &payload}
}

func (s *site) apply(channel, version string) string {
	s.Helper()
	out, err := s.Apply(s.Context(), s.at(channel, version))
	require.NoError(s, err)
	return out.Stdout
}

// look returns the status, and what check said about it.
func (s *site) look(channel, version string) (entities.ObjectStatus, string) {
	s.Helper()
	objects, out, err := s.ObserveOutput(s.Context(), s.at(channel, version))
	require.NoError(s, err)
	require.Len(s, objects, 1)
	return objects[0].Status, out.Stderr
}

func (s *site) page(channel, name string) string {
	return filepath.Join(s.dir, ".converge", "site", channel, name)
}

func TestExitCodeConformance(t *testing.T) {
	runtimetest.Run(t, runtimetest.Harness{New: func(t *testing.T) runtimetest.Subject {
		s := newSite(t)
		return runtimetest.Subject{
			Runtime: s.Runtime, Application: "site",
			Payload: func(p *entities.Payload) { p.Custom = s.payloads["live"].Custom },
		}
	}})
}

// The site is published with its version and greeting, and what happens to it is noticed.
func TestExitCode_C2(t *testing.T) {
	s := newSite(t)
	pending, done := entities.ObjectPending, entities.ObjectSucceeded
	seen := func(version string, want entities.ObjectStatus, wantSaid string) {
		t.Helper()
		status, said := s.look("preview", version)
		require.Equal(t, want, status)
		require.Equal(t, wantSaid, said)
	}

	seen("v1", pending, "nothing is published\n")
	require.Equal(t, "published v1 to .converge/site/preview\n", s.apply("preview", "v1"))
	seen("v1", done, "")
	require.Equal(t, "v1 is published already\n", s.apply("preview", "v1"))
	seen("v2", pending, "v1 is published\n")
	index, err := os.ReadFile(s.page("preview", "index.html"))
	require.NoError(t, err)
	require.Contains(t, string(index), "<h1>Welcome to the preview</h1>\n<p>Version v1 in preview.")

	for _, harm := range []func() error{
		func() error { return os.WriteFile(s.page("preview", "index.html"), []byte("oops"), 0o600) },
		func() error { return os.WriteFile(s.page("preview", "more.html"), nil, 0o600) },
		func() error { return os.Remove(s.page("preview", "about.html")) },
		func() error { return os.Remove(s.page("preview", "index.html")) },
	} {
		require.NoError(t, harm())
		status, _ := s.look("preview", "v1")
		require.Equal(t, pending, status)
		s.apply("preview", "v1")
		seen("v1", done, "")
	}
	left, err := os.ReadDir(filepath.Join(s.dir, ".converge", "site"))
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing temporary is left")
}

// What a person writes into a greeting stays text.
func TestExitCodeGreetingIsText(t *testing.T) {
	s := newSite(t)
	s.payloads["live"].Custom.Env["GREETING"] = entities.Value{Literal: `a|b \1 & <i>`}
	s.apply("live", "v1")
	index, err := os.ReadFile(s.page("live", "index.html"))
	require.NoError(t, err)
	require.Contains(t, string(index), `<h1>a|b \1 &amp; &lt;i></h1>`)
}

// The services of media are deployed and fitted together by one plan; its commands are there.
func TestMediaCompiles_E15(t *testing.T) {
	c := compiled(t, "media")
	work := c.Incarnation.Work("live")
	p, err := work.Plan(plan.Scope{All: true})
	require.NoError(t, err)
	require.Len(t, p.Nodes, 10)
	page, err := os.ReadFile("../docs/plans.md")
	require.NoError(t, err)
	_, shown, _ := strings.Cut(string(page), "```json\n")
	shown, _, _ = strings.Cut(shown, "```")
	at := slices.IndexFunc(p.Nodes, func(n plan.Node) bool { return n.Kind == plan.DNS })
	input, err := json.Marshal(work.Input(&p.Nodes[at]))
	require.NoError(t, err)
	require.JSONEq(t, shown, string(input))
	so, _ := p.IfFails("sonarr")
	picture, err := os.ReadFile("../docs/images/plan.svg")
	require.NoError(t, err)
	require.Equal(t, string(picture), p.SVG(so))
	for _, run := range c.PlanDefinitions() {
		require.Equal(t, "./work", run.Command.Argv[0])
		_, err := exec.LookPath(filepath.Join("media", run.Command.Argv[0]))
		require.NoError(t, err)
	}
}
