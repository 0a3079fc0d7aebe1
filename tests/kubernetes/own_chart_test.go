package kubernetes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/tests/kubetest"
)

// The API server accepts every object of the chart, as the renderings of tests/chart have them, except the one whose kind it does not know.
func TestChartIsAcceptedByTheServer(t *testing.T) {
	t.Parallel()
	c := newServer(t, kubetest.Start(t))
	for _, name := range []string{"least", "all"} {
		text, err := os.ReadFile("../chart/testdata/" + name + ".yaml")
		require.NoError(t, err)
		inNamespace := strings.NewReplacer("namespace: releases", "namespace: "+c.namespace, "namespace: 'releases'", "namespace: "+c.namespace, "namespace: jobs", "namespace: "+c.namespace)
		accepted := 0
		for object := range strings.SplitSeq(inNamespace.Replace(string(text)), "\n---\n") {
			err := c.dryRun(t, object)
			if strings.Contains(object, "kind: PodMonitor") {
				require.ErrorContains(t, err, `no matches for kind "PodMonitor"`)
				continue
			}
			require.NoError(t, err, object)
			accepted++
		}
		require.GreaterOrEqual(t, accepted, 3)
	}
}

// Converge releases its own chart, with every object of it whose kind each cluster has: a release of another version replaces the workers
// and runs the Job again, a published value changes one object, and nothing is applied once that is done.
func TestConvergeReleasesItsOwnChart_H6(t *testing.T) {
	t.Parallel()
	releaseOwnChart(t, kubetest.Start(t))
}

// The oldest Kubernetes that is supported takes a service with an object of every kind through its life, with the rights of the chart, and
// the chart.
func TestOldestKubernetes_A12_H6(t *testing.T) {
	t.Parallel()
	c := kubetest.Oldest(t)
	version, err := c.Client.Discovery().ServerVersion()
	require.NoError(t, err)
	requires, err := os.ReadFile("../kube/oldest.mod")
	require.NoError(t, err)
	require.Contains(t, string(requires), "\tk8s.io/kubernetes "+version.GitVersion+"\n")
	home := c.Namespace(t)
	everyKindOf(t, c, grant(t, c, "cluster", home), home, "").live()
	releaseOwnChart(t, c)
}

func releaseOwnChart(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	w := &kubeWorld{World: shared.World(t), cluster: c}
	w.staging = c.Namespace(t)
	require.NoError(t, os.CopyFS(filepath.Join(w.Dir, "chart"), os.DirFS("../../deploy/chart")))
	w.Write(fmt.Sprintf(`apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: staging, runtimes: [{name: APP-rt, namespace: %s}]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
kubernetes: %s
---
apiVersion: converge/v1
kind: Service
name: converge
initialVersion: v1.2.3
kubernetes:
  prune: true
  helm: {chart: chart, valuesFiles: [values.yaml]}
  patches: # the cluster of the test has no images: the Job ends as if it had succeeded
  - {target: {kind: Job}, patch: '{spec: {template: {metadata: {annotations: {kubelab/run: "false", kubelab/exit-code: "0"}}}}}'}
`, w.staging, strings.NewReplacer("failAfter: 500ms, pollInterval: 100ms", "pollInterval: 100ms, steadyPollInterval: 500ms", "KUBECONFIG", w.cluster.Kubeconfig, "CONTEXT", w.cluster.Name).Replace(kubeRuntime)))
	w.save("values.yaml", `
image: {tag: "${{ version }}"}
temporal: {address: "temporal.shop.dev:7233", apiKeySecret: {name: temporal}}
store: {url: "s3://releases?region=eu-west-1", keySecret: {name: temporal, key: apiKey}}
rbac: {scope: cluster, jobsNamespaces: [NAMESPACE]}
worker: {deployment: converge, previous: [v1.2.2]}
remoteWorkers: {edge: {replicas: 1}}
serve:
  enabled: true
  baseURL: https://converge.shop.dev
  sessionKeysSecret: {name: temporal, key: apiKey}
  ingress: {enabled: true, host: converge.shop.dev}
  autoscaling: {enabled: true}
jobs:
  searchAttributes: {enabled: true, apiKeySecret: {name: temporal}}
  collect: {enabled: true}
  backup: {enabled: true, claim: backups}
networkPolicy: {enabled: true}
`)
	w.edit("values.yaml", "NAMESPACE", w.staging)
	_, err := w.cluster.Client.CoreV1().Secrets(w.staging).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "temporal"}, StringData: map[string]string{"apiKey": "key"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { w.Retire("converge") })
	w.Publish()
	w.steady("converge", "staging CONVERGED v1.2.3")
	_, err = w.cluster.Client.RbacV1().ClusterRoles().Get(t.Context(), w.staging+"-converge", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"converge-worker": "v1.2.3", "converge-worker-edge": "v1.2.3", "converge-worker-v1.2.2": "v1.2.2", "converge-serve": "v1.2.3", "Job": "v1.2.3",
	}, w.tags())

	w.Release("converge", "v1.2.4")
	w.steady("converge", "staging CONVERGED v1.2.4")
	require.Equal(t, map[string]string{
		"converge-worker": "v1.2.4", "converge-worker-edge": "v1.2.4", "converge-worker-v1.2.2": "v1.2.2", "converge-serve": "v1.2.4", "Job": "v1.2.4",
	}, w.tags())

	declared := w.specs()
	w.edit("values.yaml", "edge: {replicas: 1}", "edge: {replicas: 2}")
	w.Publish()
	w.steady("converge", "staging CONVERGED v1.2.4-i2")
	require.Equal(t, int32(2), w.deployment(w.staging, "converge-worker-edge").Status.AvailableReplicas)
	*declared["converge-worker-edge"].Replicas = 2
	require.Equal(t, declared, w.specs(), "nothing else changed")
}

// specs are those of the Deployments in staging, by name.
func (w *kubeWorld) specs() map[string]appsv1.DeploymentSpec {
	w.T.Helper()
	all := map[string]appsv1.DeploymentSpec{}
	deployments, err := w.cluster.Client.AppsV1().Deployments(w.staging).List(w.T.Context(), metav1.ListOptions{})
	require.NoError(w.T, err)
	for _, d := range deployments.Items {
		all[d.Name] = d.Spec
	}
	return all
}

// tags are the tags of the images of the Deployments in staging, by name, and of its one Job, which has the tag in its name, too.
func (w *kubeWorld) tags() map[string]string {
	w.T.Helper()
	tags := map[string]string{}
	for name, spec := range w.specs() {
		_, tags[name], _ = strings.Cut(spec.Template.Spec.Containers[0].Image, ":")
	}
	jobs, err := w.cluster.Client.BatchV1().Jobs(w.staging).List(w.T.Context(), metav1.ListOptions{})
	require.NoError(w.T, err)
	require.Len(w.T, jobs.Items, 1)
	_, tags["Job"], _ = strings.Cut(jobs.Items[0].Spec.Template.Spec.Containers[0].Image, ":")
	require.True(w.T, strings.HasSuffix(jobs.Items[0].Name, "-"+tags["Job"]), jobs.Items[0].Name)
	return tags
}
