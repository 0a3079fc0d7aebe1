package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/internal/stage"
)

// failing is what the runtime of docs/incidents.md does with some versions in production.
const failing = `if [ "$PVN_RELEASE_CHANNEL" = production ]; then
	case "$PVN_SERVICE_VERSION" in
	v3 | v5) echo "no space left on disk" >&2; exit 9 ;;
	v4) echo "copying 812 of 3000 files" >&2; until [ -e copied ]; do sleep 1; done ;;
	esac
fi
mkdir -p "$dir"`

// The commands of docs/incidents.md, when a release fails at night, and those of docs/observing.md and docs/plans.md print what the pages show.
func TestOperatingFromThePage(t *testing.T) {
	stage.Long(t, "builds the programs")
	t.Parallel()
	d := shared.DevOfInit(t)
	shop, root := d.Dir, filepath.Dir(d.Dir)
	edit := func(file, old, replacement string) {
		t.Helper()
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(data), old)
		require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(data), old, replacement, 1)), 0o600))
	}
	edit(filepath.Join(shop, "runtime.sh"), `mkdir -p "$dir"`, failing)
	require.NoError(t, os.Chmod(filepath.Join(shop, "runtime.sh"), 0o700))
	edit(filepath.Join(shop, "converge.yaml"), "name: files\ncustom:\n", "name: files\nautoRollback: false\ncustom:\n  retry: {maxAttempts: 1}\n")
	d.Start()
	d.Dir = root
	d.Await("shop/hello", "staging CONVERGED v1, production CONVERGED v1")
	release := func(version, want string) {
		t.Helper()
		out, code := d.Converge("release", "shop/hello", version)
		require.Zero(t, code, out)
		d.Await("shop/hello", want)
	}
	release("v2", "staging CONVERGED v2, production CONVERGED v2")
	release("v3", "staging CONVERGED v3, production FAILED v3")

	before := map[string]func(){
		"converge status shop/hello": func() { release("v4", "staging CONVERGED v4, production CONVERGING v4") },
		"converge admin doctor": func() {
			require.NoError(t, os.WriteFile(filepath.Join(shop, "copied"), nil, 0o600))
			d.Await("shop/hello", "staging CONVERGED v4, production CONVERGED v4")
			release("v5", "staging CONVERGED v5, production FAILED v5")
		},
	}
	for _, b := range append(stage.Console(t, "../docs/incidents.md"), stage.Console(t, "../docs/observing.md")...) {
		if prepare := before[b.Commands[0].Line]; prepare != nil {
			prepare()
		}
		d.RunPage(b)
	}
	require.NoError(t, os.CopyFS(filepath.Join(root, "examples", "media"), os.DirFS("../examples/media")))
	for _, b := range stage.Console(t, "../docs/plans.md") {
		d.RunPage(b)
	}
}
