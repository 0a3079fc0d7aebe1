package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/internal/stage"
)

// Every command of docs/howto.md is run, in the order of the page, and prints what the page shows.
func TestHowtoFromThePage(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs; not with -short")
	}
	root := t.TempDir()
	shop := filepath.Join(root, "shop")
	for from, to := range map[string]string{"testdata/howto": shop, "../examples/media": filepath.Join(root, "examples", "media")} {
		require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	}
	require.NoError(t, os.Chmod(filepath.Join(shop, "runtime.sh"), 0o755)) // CopyFS drops it
	lab := filepath.Join(root, "lab")
	d := shared.Dev(t, lab)
	d.Dir = root
	_, code := d.Run("converge", "config", "init", "lab")
	require.Zero(t, code)
	d.Dir = lab
	d.Start()
	d.Await("lab/hello", "staging CONVERGED v1, production CONVERGED v1")
	d.Dir = root

	converge := func(args ...string) {
		t.Helper()
		out, code := d.Converge(args...)
		require.Zero(t, code, out)
	}
	edit := func(file string, change func(string) string) {
		t.Helper()
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, []byte(change(string(data))), 0o600))
	}
	converge("config", "publish", "shop")
	for service, version := range map[string]string{"shop/web": "v1", "shop/api": "w1"} {
		d.Await(service, "staging CONVERGED "+version+", production WAITING_MANUAL_APPROVAL")
		d.Env = []string{"CONVERGE_BY=bob"}
		converge("approve", service, version, "go-live")
		d.Env = nil
		d.Await(service, "staging CONVERGED "+version+", production CONVERGED "+version)
	}
	before := map[string]func(command string){
		"See what an apply would change": func(command string) {
			if command == "converge plan shop" {
				edit(filepath.Join(shop, "shop.converge.yaml"), func(text string) string {
					return strings.ReplaceAll(text, "default: hello}", "default: good morning}")
				})
			}
		},
		"See drift": func(string) {
			edit(filepath.Join(shop, "live", "us", "api.txt"), func(string) string { return "changed\n" })
		},
	}
	for _, b := range stage.Console(t, "../docs/howto.md") {
		if change := before[b.Heading]; change != nil {
			change(b.Commands[0].Line)
		}
		d.RunPage(b)
	}
	for _, inSentences := range []string{"config list shop", "logs shop/web staging", "history shop/web --verify"} {
		converge(strings.Fields(inSentences)...)
	}
}
