package kubernetes_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// The verb on a real API server: its dry run is what is shown, conflicts included, and changes nothing.
func TestPlanOnKubernetes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs; not with -short")
	}
	bin := shared.Programs(t)
	w := newKubeWorld(t, "web")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	plan := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "converge"), append([]string{"plan"}, args...)...)
		cmd.Env = append(os.Environ(), "TEMPORAL_ADDRESS="+temporaltest.Start(t).Address)
		out, err := cmd.Output()
		require.NoError(t, err, string(out))
		return strings.ReplaceAll(string(out), w.App, "shop")
	}
	channel := func(title, deployment string) string {
		return " " + title + "  4 changes\n  " + deployment + "\n  ~ 3 objects with no change except the version\n"
	}
	const moves = "~ Deployment/web  env[name=VERSION].value v1 → v2; image registry.shop.dev/web:v1 → registry.shop.dev/web:v2; its pods are replaced"
	const title = "shop/web v2, incarnation 1 (not released)\n"
	generation := w.deployment(w.production, "web").Generation
	require.Equal(t, title+channel("staging   ", moves)+channel("production", moves)+"8 objects change, 0 removed\n", plan(w.App+"/web", "v2"))
	require.Equal(t, generation, w.deployment(w.production, "web").Generation)

	w.declareWeb(w.production, "argocd", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 5}}")
	const conflict = "! Deployment/web  spec.replicas belongs to argocd, which declares it too: CONFLICT"
	require.Equal(t, title+channel("staging   ", moves)+channel("production", conflict)+"8 objects change, 0 removed, 1 conflict\n", plan(w.App+"/web", "v2"))
	settings, aside := filepath.Join(w.Dir, "web", "settings.yaml"), filepath.Join(t.TempDir(), "settings.yaml")
	require.NoError(t, os.Rename(settings, aside))
	w.prompt().RunPage(stage.Only(t, "../../docs/kubernetes.md", "Undeclared objects").With(w.ours()))
	require.NoError(t, os.Rename(aside, settings))
	w.edit(configFile, "{releaseChannel: production, parameters: {replicas: 3}}", "{releaseChannel: staging, parameters: {replicas: 7}}")
	require.Contains(t, plan(w.Dir), "shop/web, changed configuration (not published)\n staging v1 → v1-i2     4 changes\n")
	require.Contains(t, plan(w.Dir), "  ~ Deployment/web  replicas 2 → 7; env[name=VERSION].value v1 → v1-i2; its pods are replaced\n  ~ 3 objects with no change except the version\n production v1 → v1-i2  4 changes\n")
	newest, err := publish.Status(t.Context(), w.Client, w.App)
	require.NoError(t, err)
	require.EqualValues(t, 1, newest.Newest)
}
