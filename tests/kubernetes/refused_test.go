package kubernetes_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/kubetest"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// What a cluster refuses is told by explain in the server's own words, with what to do; what no
// repetition mends is tried once, everything else as often as the runtime says, and then it is over. Requests
// are counted.
func TestKubernetesRefusalsAreExplained_A13_A23_D18(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		prepare  func(*testing.T, *kubetest.Cluster, string)
		object   string
		says     []string
		attempts int
	}{
		"invalid": {
			object:   "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80000}]}}",
			says:     []string{"apply Service NS/web", "spec.ports[0].port: Invalid value: 80000: must be between 1 and 65535"},
			attempts: 1,
		},
		"too large": {
			object:   "{apiVersion: v1, kind: ConfigMap, metadata: {name: web}, data: {a: " + strings.Repeat("x", 2_000_000) + "}}",
			says:     []string{"apply ConfigMap NS/web", "larger than a cluster stores"},
			attempts: 1,
		},
		"quota": {
			prepare: func(t *testing.T, c *kubetest.Cluster, ns string) {
				quotas := c.Client.CoreV1().ResourceQuotas(ns)
				_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
					ObjectMeta: metav1.ObjectMeta{Name: "few"},
					Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/services": resourceapi.MustParse("0")}},
				}, metav1.CreateOptions{})
				require.NoError(t, err)
				temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
					q, err := quotas.Get(t.Context(), "few", metav1.GetOptions{})
					return err == nil && len(q.Status.Hard) > 0, fmt.Sprint("the quota is not counted yet ", err)
				})
			},
			object:   "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}",
			says:     []string{"exceeded quota: few", "ResourceQuota few: raise its spec.hard[count/services]"},
			attempts: 3,
		},
		"terminating": {
			prepare: func(t *testing.T, c *kubetest.Cluster, ns string) {
				maps := c.Client.CoreV1().ConfigMaps(ns)
				_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "holder", Finalizers: []string{"example.com/hold"}}}, metav1.CreateOptions{})
				require.NoError(t, err)
				t.Cleanup(func() {
					_, _ = maps.Patch(context.Background(), "holder", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				})
				require.NoError(t, c.Client.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}))
			},
			object:   "{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}",
			says:     []string{"because it is being terminated", "wait until it is gone, then create it again"},
			attempts: 3,
		},
		"no such kind": {
			object:   "{apiVersion: example.com/v1, kind: Unheard, metadata: {name: web}}",
			says:     []string{`no matches for kind "Unheard"`, "is its CustomResourceDefinition installed?"},
			attempts: 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, gate, ns := newGatedWorld(t, row.object)
			if row.prepare != nil {
				row.prepare(t, w.cluster, ns)
			}
			w.Publish()
			s := w.AwaitThat("web", "FAILED", func(s protocol.Status) bool { return channelOf(s, "staging").Status == "FAILED" })
			require.Equal(t, row.attempts, w.applies("web"))
			explained := w.explained()
			for _, part := range row.says {
				require.Contains(t, explained, strings.ReplaceAll(part, "NS", ns))
			}
			require.Equal(t, "BLOCKED", channelOf(s, "production").Status)
			writes := 0
			for _, r := range gate.Requests() {
				if r.Method != "GET" && !strings.Contains(r.String(), "selfsubjectaccessreviews") {
					writes++
				}
			}
			require.LessOrEqual(t, writes, row.attempts, "dry runs: %v", gate.Requests())
			require.LessOrEqual(t, len(gate.Requests()), 12+6*row.attempts, "%v", gate.Requests())
		})
	}
}

// applies counts how often web was applied.
func (w *kubeWorld) applies(service string) (n int) {
	w.T.Helper()
	for _, e := range w.History(w.ID(service)) {
		if e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == protocol.ActivityApply {
			n++
		}
	}
	return n
}

// explained is what explain says of web.
func (w *kubeWorld) explained() string {
	w.T.Helper()
	value, err := temporaltest.Query(w.T.Context(), w.Client, w.ID("web"), protocol.QueryExplain)
	require.NoError(w.T, err)
	var answer protocol.Explanation
	require.NoError(w.T, value.Get(&answer))
	return strings.Join(answer.Lines, "\n")
}

// newGatedWorld is the example's web made of one object, reached through a gate that counts.
func newGatedWorld(t *testing.T, object string) (w *kubeWorld, gate *kubetest.Gate, namespace string) {
	t.Helper()
	w = newKubeWorld(t, "web")
	gate = w.cluster.Gate(t)
	w.edit(configFile, w.cluster.Kubeconfig, gate.Kubeconfig)
	w.edit(configFile, "context: "+w.cluster.Name, "context: gate")
	require.NoError(t, os.RemoveAll(filepath.Join(w.Dir, "web")))
	require.NoError(t, os.Mkdir(filepath.Join(w.Dir, "web"), 0o700))
	w.save("web/web.yaml", object+"\n")
	return w, gate, w.staging
}
