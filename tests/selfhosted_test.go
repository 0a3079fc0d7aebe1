package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/programtest"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// thirty is a copy of examples/selfhosted on ports of its own, followed by a dev server.
type thirty struct {
	*stage.Dev
	front, names int
}

func newThirty(t *testing.T) *thirty {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "home")
	require.NoError(t, os.CopyFS(dir, os.DirFS("../examples/selfhosted")))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, ".converge")))
	require.NoError(t, os.Chmod(filepath.Join(dir, "run"), 0o755)) // CopyFS drops it
	h := &thirty{Dev: shared.Dev(t, dir), front: shared.FreePort(t), names: shared.FreePort(t)}
	identity, err := os.ReadFile(filepath.Join(dir, "age.txt"))
	require.NoError(t, err)
	h.Env = []string{"SOPS_AGE_KEY=" + string(identity)} // as the README has it
	file := filepath.Join(dir, "selfhosted.converge.yaml")
	config, err := os.ReadFile(file)
	require.NoError(t, err)
	edited := strings.NewReplacer(`front: "8210"`, fmt.Sprintf(`front: "%d"`, h.front), `names: "8253"`, fmt.Sprintf(`names: "%d"`, h.names)).Replace(string(config))
	require.NotEqual(t, string(config), edited)
	require.NoError(t, os.WriteFile(file, []byte(edited), 0o600))
	// The program needs a library, so that it is built where the module is; without sources it is not built again.
	program := filepath.Join(dir, ".converge", "bin", "stack")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../examples/selfhosted/stack").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "stack")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "stack"), 0o700))
	t.Cleanup(func() {
		stop := exec.Command(filepath.Join(dir, "run"), "stop")
		out, err := stop.CombinedOutput()
		if err != nil {
			t.Errorf("stop: %v: %s", err, out)
		}
	})
	return h
}

// web asks the proxy for a page of a service.
func (h *thirty) web(host, path string) string {
	request, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", h.front, path), nil)
	require.NoError(h.T, err)
	request.Host = host
	response, err := (&http.Client{Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", response.StatusCode, page)
}

// lookUp asks the nameserver for an address.
func (h *thirty) lookUp(name string) string {
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, fmt.Sprintf("127.0.0.1:%d", h.names))
	}}
	found, err := resolver.LookupHost(h.T.Context(), name+".")
	if err != nil {
		return "unknown"
	}
	return strings.Join(found, " ")
}

// done waits until a plan is over, and returns what became of its nodes.
func (h *thirty) done(plan string) map[string]string {
	h.T.Helper()
	var so map[string]string
	temporaltest.WaitFor(h.T, 4*stage.Patience, func() (bool, string) {
		out, code := h.Converge("run", "show", "home", "live", "--plan", plan, "-o", "json")
		var s protocol.PlanStatus
		if code != 0 || json.Unmarshal([]byte(out), &s) != nil {
			return false, out
		}
		so = map[string]string{}
		for _, n := range s.Nodes {
			so[n.Node] = n.State
		}
		return s.Over, out
	})
	return so
}

// browser starts a browser, before there is anything to see; nil: there is none here.
func (h *thirty) browser() *tab {
	h.T.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		h.T.Log("the page of the plan is not looked at: there is no browser here (make chromium)")
		return nil
	}
	b := browse(h.T, 1000)
	return &b
}

// watchPlan opens the page of the plan. The function that it returns waits until the page, which is not loaded again, shows all nodes as done, and
// requires that it showed the progress.
func (h *thirty) watchPlan(look *tab, nodes int) (live func()) {
	h.T.Helper()
	if look == nil {
		return func() {}
	}
	b, url := *look, apiURL(h.T, h.Dev)+"/applications/home/plans/live"
	temporaltest.WaitFor(h.T, stage.Patience, func() (bool, string) {
		b.do(chromedp.Navigate(url))
		return value[int](b, `document.querySelectorAll("tbody tr").length`) == nodes, "no plan on its page yet"
	})
	value[bool](b, `window.counts = [];
		const count = () => [...document.querySelectorAll("td[data-channel=State]")].filter((td) => td.innerText.trim() === "done").length;
		const note = () => { const n = count(); if (window.counts[window.counts.length - 1] !== n) window.counts.push(n); };
		note();
		new MutationObserver(note).observe(document.body, {subtree: true, childList: true, characterData: true}); true`)
	return func() {
		h.T.Helper()
		var counts []int
		temporaltest.WaitFor(h.T, stage.Patience, func() (bool, string) {
			counts = value[[]int](b, `window.counts`)
			return counts[len(counts)-1] == nodes, fmt.Sprint(counts)
		})
		require.Greater(h.T, len(counts), 3, "it showed the progress: %v", counts)
		require.True(h.T, slices.IsSorted(counts), "%v", counts)
		h.T.Logf("nodes that the page showed as done, one after the other: %v", counts)
	}
}

// Thirty services that need each other, from nothing; then one of them changes.
func TestThirtyServicesFromNothing_E1_E2_E3_E4_E5_E7(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs and runs real processes; not with -short")
	}
	h := newThirty(t)
	look := h.browser()
	h.Start()
	live := h.watchPlan(look, 42)
	all := h.done("i1")
	require.Len(t, all, 42)
	live()
	for node, state := range all {
		require.Equal(t, "done", state, node)
	}
	require.Equal(t, "200 sonarr v1\n", h.web("sonarr.home.test", "/"), "the proxy was told where it is")
	require.Equal(t, "200 found for 3\n", h.web("prowlarr.home.test", "/search"), "it answers once others registered")
	require.Contains(t, h.web("homepage.home.test", "/"), "jellyfin: watch\n")
	require.Contains(t, h.web("authelia.home.test", "/"), "sonarr: one\n", "it was deployed with what was collected")
	require.Equal(t, "10.0.0.11", h.lookUp("sonarr.home.test"))
	require.Equal(t, "unknown", h.lookUp("nothing.home.test"))
	for _, service := range []string{"sonarr", "radarr", "lidarr", "backrest", "uptime"} {
		out, code := h.Converge("run", "captured", "home", "live", service)
		require.Zero(t, code, out)
		require.Contains(t, out, "ENC[AES256_GCM,data:", "what its first boot made")
	}

	out, code := h.Converge("release", "home/sonarr", "v2", "--wait")
	require.Zero(t, code, out)
	so := h.done("sonarr-v2")
	want := map[string]string{}
	for _, node := range []string{
		"DEPLOY prowlarr@media", "DEPLOY sonarr@media", "CALLBACK", "SYNC homepage@edge", "SYNC traefik@edge",
		"REDEPLOY authelia@edge", "RECONCILE prowlarr@media", "RECONCILE sonarr@media", "DNS",
	} {
		want[node] = "done"
	}
	require.Equal(t, want, so, "what it is fitted into, and nothing else")
	require.Equal(t, "200 sonarr v2\n", h.web("sonarr.home.test", "/"))
}

// However many commands need the program at once, it is built once, also after a build that was killed. A reading before anything was started
// needs no program.
func TestProgramOfTheHouseholdIsBuiltOnce(t *testing.T) {
	t.Parallel()
	dir, bin := t.TempDir(), t.TempDir()
	run, err := os.ReadFile("../examples/selfhosted/run")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run"), run, 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "stack"), 0o700))
	builds := filepath.Join(bin, "builds")
	programtest.Write(t, filepath.Join(bin, "go"), fmt.Sprintf("#!/bin/sh\necho build >>%s\nsleep 1\nprintf '#!/bin/sh\\necho started\\n' >\"$3\"\nchmod +x \"$3\"\n", builds))
	start := func(arguments ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "run"), arguments...)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		return cmd.Output()
	}
	out, err := start("fetch")
	require.NoError(t, err)
	require.JSONEq(t, `{"objects": []}`, string(out))
	require.NoFileExists(t, builds)

	killed := exec.CommandContext(t.Context(), "true")
	require.NoError(t, killed.Run())
	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".converge", "bin"), 0o700))
	require.NoError(t, os.Symlink(fmt.Sprint(killed.Process.Pid), filepath.Join(dir, ".converge", "bin", "lock")))
	var all errgroup.Group
	for range 10 {
		all.Go(func() error {
			out, err := start("apply")
			if err == nil && string(out) != "started\n" {
				err = fmt.Errorf("it printed %q", out)
			}
			return err
		})
	}
	require.NoError(t, all.Wait())
	built, err := os.ReadFile(builds)
	require.NoError(t, err)
	require.Equal(t, "build\n", string(built))
}
