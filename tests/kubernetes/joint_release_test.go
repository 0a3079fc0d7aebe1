package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/tests/kubetest"
)

// A joint release of twenty services ends when the last of them is rolled out. How long after that it returns is printed.
func TestJointReleaseReturnsOnceEverythingIsRolledOut_B8(t *testing.T) {
	t.Parallel()
	const many = 20
	cluster := kubetest.Start(t)
	w := &kubeWorld{World: shared.World(t), cluster: cluster, production: cluster.Namespace(t)}
	var services strings.Builder
	var names, versions []string
	for n := range many {
		name := fmt.Sprintf("s%d", n)
		names, versions = append(names, name), append(versions, name+"=v2")
		w.save(name+".yaml", fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s}, spec: {replicas: 2, selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: main, image: "registry.shop.dev/%[1]s:${{ version }}"}]}}}}`, name))
		fmt.Fprintf(&services, "---\n{apiVersion: converge/v1, kind: Service, name: %[1]s, initialVersion: v1, kubernetes: {manifests: [%[1]s.yaml]}}\n", name)
	}
	t.Cleanup(func() { w.Retire(names...) })
	w.Write(fmt.Sprintf(`{apiVersion: converge/v1, kind: Application, name: APP, releaseChannels: [{name: prod, runtimes: [{name: APP-rt, namespace: %s}]}]}
---
{apiVersion: converge/v1, kind: Runtime, name: APP-rt, kubernetes: {kubeconfig: %q, context: %s}}
%s`, w.production, cluster.Kubeconfig, cluster.Name, services.String()))
	w.Publish()
	for _, name := range names {
		w.Await(name, "prod CONVERGED v1")
	}
	out, code := w.prompt().Converge(append([]string{"release", w.App, "--wait"}, versions...)...)
	returned := time.Now()
	require.Zero(t, code, out)
	all, err := cluster.Client.AppsV1().Deployments(w.production).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, all.Items, many)
	var last time.Time
	for _, d := range all.Items {
		require.Equal(t, int32(2), d.Status.UpdatedReplicas, d.Name)
		require.Equal(t, int32(2), d.Status.AvailableReplicas, d.Name)
		for _, c := range d.Status.Conditions {
			if c.Type == appsv1.DeploymentProgressing && c.LastUpdateTime.After(last) {
				last = c.LastUpdateTime.Time
			}
		}
	}
	t.Logf("it returned %s after the last rollout was complete, which servers say to the second", returned.Sub(last).Round(time.Millisecond))
}
