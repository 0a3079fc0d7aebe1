package kubernetes

import (
	"testing"

	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities"
)

// evictPods removes the pods of an application, as the drain of a node does.
func (d *recordingCluster) evictPods(app string) {
	d.Helper()
	pods := d.admin.typed.CoreV1().Pods(d.namespace)
	list, err := pods.List(d.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	require.NoError(d, err)
	for _, pod := range list.Items {
		require.NoError(d, pods.EvictV1(d.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: d.namespace}}))
	}
}

// Replaced pods leave a workload as declared: no requests are made for it, and there is nothing to apply.
func TestReplacedPodsAreNoDrift_H8(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", deploymentOf("web:1", 2, "kubelab/ready-in: 1s"))
	target := &entities.Target{FullVersion: "v1"}
	d.mustApply(v1)
	d.until(v1, "v1", settled("v1"))
	d.takeWrites()
	d.evictPods("web")
	d.until(v1, "new pods", func(objects []entities.Object) bool { return entities.FetchObjects(objects, target).Progressing() })
	d.until(v1, "v1 again", settled("v1"))
	_, asked := d.takeWrites()
	require.Zero(t, asked)
}

// A changed object is drift, whether it is ready or not.
func TestUnreadyObjectsMayHaveDrifted_H8_A12(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := d.instance("v1", deploymentOf("web:1", 1, "kubelab/ready-in: 1s"))
	target := &entities.Target{FullVersion: "v1"}
	d.mustApply(v1)
	d.until(v1, "v1", settled("v1"))
	d.patchAs("kubectl-edit", "Deployment", "web", `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:9"}]}}}}`)
	d.until(v1, "drift", func(objects []entities.Object) bool {
		current := entities.FetchObjects(objects, target)
		return current.Drifted && !current.AsDeclared
	})
}

// requestOf is how much processor the first container of an application's pod asks for.
func (d *recordingCluster) requestOf(app string) string {
	d.Helper()
	list, err := d.admin.typed.CoreV1().Pods(d.namespace).List(d.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	require.NoError(d, err)
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			return pod.Spec.Containers[0].Resources.Requests.Cpu().String()
		}
	}
	return ""
}
