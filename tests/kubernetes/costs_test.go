package kubernetes_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// costs is what a service has cost so far.
type costs struct{ events, requests, applies int }

func (w *kubeWorld) costs() costs {
	w.T.Helper()
	return costs{len(w.History(w.ID("web"))), requestsOf(w.cluster.Kubeconfig).count(), w.applies("web")}
}

// calm waits until nothing has cost anything for a second.
func (w *kubeWorld) calm() (c costs) {
	w.T.Helper()
	since := time.Now()
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		if now := w.costs(); now != c {
			c, since = now, time.Now()
		}
		return time.Since(since) > time.Second, fmt.Sprint(c)
	})
	return c
}

// during does something, and returns what it cost and which statuses a channel had meanwhile.
func (w *kubeWorld) during(channel string, do func(look func())) (costs, []string) {
	w.T.Helper()
	before, seen := w.calm(), map[string]bool{}
	do(func() { seen[channelOf(w.Status("web"), channel).Status] = true })
	after := w.calm()
	return costs{after.events - before.events, after.requests - before.requests, after.applies - before.applies}, slices.Sorted(maps.Keys(seen))
}

// drain evicts the pods of web, as the drains of their nodes do: each as soon as the budget allows it.
func (w *kubeWorld) drain(namespace string, look func()) {
	w.T.Helper()
	for _, name := range w.podNames(namespace) {
		temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
			look()
			err := w.cluster.Client.CoreV1().Pods(namespace).EvictV1(w.T.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}})
			return err == nil || apierrors.IsNotFound(err), fmt.Sprint(err)
		})
	}
	w.available(namespace, look)
}

func (w *kubeWorld) podNames(namespace string) (names []string) {
	w.T.Helper()
	list, err := w.cluster.Client.CoreV1().Pods(namespace).List(w.T.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=web"})
	require.NoError(w.T, err)
	for _, pod := range list.Items {
		names = append(names, pod.Name)
	}
	return names
}

// available waits until web has all its replicas.
func (w *kubeWorld) available(namespace string, look func()) {
	w.T.Helper()
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		look()
		d := w.deployment(namespace, "web")
		return d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == *d.Spec.Replicas && d.Status.Replicas == *d.Spec.Replicas,
			fmt.Sprintf("%d of %d", d.Status.AvailableReplicas, *d.Spec.Replicas)
	})
}

// autoscale sets the replicas of web as the controller of its autoscaler does.
func (w *kubeWorld) autoscale(namespace string, replicas int32) {
	w.T.Helper()
	_, err := w.cluster.Client.AppsV1().Deployments(namespace).UpdateScale(w.T.Context(), "web",
		&autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas}},
		metav1.UpdateOptions{FieldManager: "kube-controller-manager"})
	require.NoError(w.T, err)
}

// What nodes that are drained and an autoscaler cost: no apply and no request, and at most a handful of events; nobody is told that
// anything is wrong. Alone, since it counts the requests of all that use the kubeconfig.
func TestWhatPodsThatComeAndGoCost_H2_H8(t *testing.T) {
	const handful = 60 // of events: telling of a change, and that it is over, is some twenty
	w := newKubeWorld(t, "web")
	w.edit(configFile, "parameters: {replicas: 3}", "parameters: {replicas: 50}")
	w.save("web/scaler.yaml", `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web}, spec: {minReplicas: 1, maxReplicas: 60,
		scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}}`)
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	fine := []string{"CONVERGED", "PROGRESSING"}

	first := w.podNames(w.production)
	require.Len(t, first, 50)
	cost, seen := w.during("production", func(look func()) { w.drain(w.production, look) })
	t.Logf("the nodes of 50 pods are drained: %d events, %d requests, %d applies; %v", cost.events, cost.requests, cost.applies, seen)
	for _, name := range w.podNames(w.production) {
		require.NotContains(t, first, name)
	}
	require.Subset(t, fine, seen)
	require.Zero(t, cost.applies)
	require.Zero(t, cost.requests)
	require.LessOrEqual(t, cost.events, handful)

	cost, seen = w.during("staging", func(look func()) {
		for _, replicas := range []int32{3, 5, 8, 10, 9, 7, 5, 4, 3, 6} {
			w.autoscale(w.staging, replicas)
			w.available(w.staging, look)
		}
	})
	t.Logf("an autoscaler moves ten times: %d events, %d requests, %d applies; %v", cost.events, cost.requests, cost.applies, seen)
	require.Subset(t, fine, seen)
	require.Zero(t, cost.applies)
	require.Zero(t, cost.requests)
	require.LessOrEqual(t, cost.events, handful)

	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.Equal(t, int32(6), *w.deployment(w.staging, "web").Spec.Replicas, "a release leaves what the autoscaler set")
}
