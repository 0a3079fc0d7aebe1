package kubernetes_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/client/preview"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

const keptData = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ledger, annotations: {converge/keep: "true"}}
data: {a: b}
`

// named is what there is in a namespace of the kinds that the service has objects of.
func (w *kubeWorld) named(namespace string) (all []string) {
	w.T.Helper()
	ctx, ours := w.T.Context(), metav1.ListOptions{LabelSelector: "converge/service=web"}
	deployments, err := w.cluster.Client.AppsV1().Deployments(namespace).List(ctx, ours)
	require.NoError(w.T, err)
	for _, o := range deployments.Items {
		all = append(all, "Deployment/"+o.Name)
	}
	services, err := w.cluster.Client.CoreV1().Services(namespace).List(ctx, ours)
	require.NoError(w.T, err)
	for _, o := range services.Items {
		all = append(all, "Service/"+o.Name)
	}
	budgets, err := w.cluster.Client.PolicyV1().PodDisruptionBudgets(namespace).List(ctx, ours)
	require.NoError(w.T, err)
	for _, o := range budgets.Items {
		all = append(all, "PodDisruptionBudget/"+o.Name)
	}
	configs, err := w.cluster.Client.CoreV1().ConfigMaps(namespace).List(ctx, ours)
	require.NoError(w.T, err)
	for _, o := range configs.Items {
		if !strings.HasPrefix(o.Name, "converge.") {
			all = append(all, "ConfigMap/"+o.Name)
		}
	}
	claims, err := w.cluster.Client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, ours)
	require.NoError(w.T, err)
	for _, o := range claims.Items {
		all = append(all, "PersistentVolumeClaim/"+o.Name)
	}
	return all
}

// listed are the objects of a plan by what becomes of them.
func listed(p *preview.Plan, action string) (all []string) {
	for _, s := range p.Services {
		for _, c := range s.Channels {
			for _, change := range c.Changes {
				if change.Action == action {
					all = append(all, change.Type+"/"+change.Name)
				}
			}
		}
	}
	return all
}

// What is going to be taken down is listed before, with what stays and why, and nothing is touched; the deletion then does
// exactly that. So does one that is declared.
func TestDeletionIsPlannedOnKubernetes_A24_H5(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs; not with -short")
	}
	bin := shared.Programs(t)
	w := newKubeWorld(t, "web")
	w.save("web/data.yaml", keptData)
	w.edit(configFile, "name: web\n", "name: web\nonDelete: remove\n")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	run := func(code int, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "converge"), args...)
		cmd.Env = append(os.Environ(), "TEMPORAL_ADDRESS="+temporaltest.Start(t).Address)
		out, err := cmd.Output()
		require.Equal(t, code, cmd.ProcessState.ExitCode(), "%v: %s", err, out)
		return strings.ReplaceAll(string(out), w.App, "shop")
	}
	planned := func(args ...string) *preview.Plan {
		t.Helper()
		p := &preview.Plan{}
		require.NoError(t, json.Unmarshal([]byte(run(0, append(args, "--output", "json")...)), p))
		return p
	}
	before := w.named(w.production)
	w.prompt().RunPage(stage.Only(t, "../../docs/gates.md", "Deletion").With(w.ours()))
	plan := planned("channel", "delete", w.App+"/web", "production", "--dry-run")
	goes, stays := listed(plan, "remove"), listed(plan, "keep")
	require.ElementsMatch(t, before, append(append([]string{}, goes...), stays...), "all of it is named")
	require.Equal(t, before, w.named(w.production), "nothing is touched")
	require.EqualValues(t, "CONVERGED", channelOf(w.Status("web"), "production").Status)

	w.Act("web", protocol.Delete, `{"channel":"production","by":"bob"}`)
	w.Await("web", "staging CONVERGED v1, production DELETED v1")
	require.ElementsMatch(t, stays, w.named(w.production), "what was said goes, and no more")

	whole := run(1, "channel", "delete", w.App+"/web", "--dry-run") // it is still declared
	require.Contains(t, whole, " currently refused: shop/web is still declared")
	require.Contains(t, whole, " staging v1  ")

	w.pattern(configFile, `(?s)- name: production\n  runtimes.*?(?:\n---)`, "---")
	w.pattern(configFile, `perReleaseChannel:\n- \{releaseChannel: production[^\n]*`, "")
	w.pattern(configFile, `- name: staging\n`, "- name: preview\n")
	declared := planned("plan", w.Dir, "--store", w.Store)
	require.ElementsMatch(t, w.named(w.staging), append(listed(declared, "remove"), listed(declared, "keep")...))
	require.Contains(t, run(0, "plan", w.Dir, "--store", w.Store), "shop/web, deleted as declared (not published)\n staging v1  ")
}
