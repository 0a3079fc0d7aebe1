package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/charttest"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// Commands of pages that need no server print what the pages show.
func TestPagesWithoutAServer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs; not with -short")
	}
	malformed := func(name string) (dir string) {
		t.Helper()
		dir = t.TempDir()
		archive, err := txtar.ParseFile("../intent/compile/testdata/malformed/" + name)
		require.NoError(t, err)
		require.NoError(t, txtar.Write(archive, dir))
		return dir
	}
	shared.Prompt(t, malformed("kubernetes-versions.txtar"), "").RunPage(stage.Only(t, "../docs/kubernetes.md", "What validate checks of objects"))

	fields := malformed("unknown-fields.txtar")
	file := filepath.Join(fields, "shop.converge.yaml")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	one := strings.NewReplacer("  constant: {zone: staging.shop.dev}\n", "", "progresDeadline: 5m\nowner: me\n", "").Replace(string(text))
	require.NoError(t, os.WriteFile(file, []byte(one), 0o600))
	shared.Prompt(t, fields, "").RunPage(stage.Only(t, "../docs/spec/application.md", "Files"))

	charts := charttest.NewRepository(t)
	for _, version := range []string{"1.3.0", "1.4.3", "2.0.0"} {
		charts.Add("web", version, charttest.Pack(t, "web", version, "templates/a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"))
	}
	d := shared.Prompt(t, t.TempDir(), "")
	d.Env = []string{"XDG_CACHE_HOME=" + t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(d.Dir, "converge.yaml"), []byte(`{apiVersion: converge/v1, kind: Application, name: shop, releaseChannels: [{name: prod, runtimes: [{name: eks, namespace: shop}]}]}
---
{apiVersion: converge/v1, kind: Runtime, name: eks, kubernetes: {}}
---
apiVersion: converge/v1
kind: Service
name: web
kubernetes: {helm: {chart: web, repository: "`+charts.URL+`", version: ^1.4}}
`), 0o600))
	d.RunPage(stage.Only(t, "../docs/spec/service.md", "Charts from elsewhere").With(strings.NewReplacer("https://charts.shop.dev", charts.URL)))
}

// The reasons of gates that pages quote are those of the stories which decide them.
func TestPagesQuoteReasonsOfStories(t *testing.T) {
	t.Parallel()
	for story, quoted := range map[string]stage.Command{
		"gates_postconditions": stage.Text(t, "../docs/gates.md", "Protections").With(strings.NewReplacer(" - ", "", "; …", "…")),
		"gates_channels":       stage.Text(t, "../docs/gates.md", "Other channels").With(strings.NewReplacer("staging  ", "staging: ")),
	} {
		decided, err := os.ReadFile("../entities/loop/testdata/" + story + ".txtar")
		require.NoError(t, err)
		for _, line := range quoted.Shown {
			missing := stage.Command{Shown: []string{line}}.Missing(string(decided))
			require.Empty(t, missing, "no line of %s has it", story)
		}
	}
}
