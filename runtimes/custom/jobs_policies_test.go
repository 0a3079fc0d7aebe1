//go:build unix

package custom

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/tests/kubetest"
)

// A namespace may require the restricted Pod Security Standard, and a quota may require resource requests of every pod: a command
// runs there with the settings of its definition, and is refused without them, with the cluster's message. The labels and annotations
// of a Job and its pod are as declared.
func TestJobsWherePoliciesAreStrict_C1(t *testing.T) {
	plane := kubetest.Start(t)
	namespace := plane.Namespace(t)
	strict(t, plane, namespace)
	t.Setenv("WORKER_TOKEN", hidden)
	name := "converge-" + namespace
	_, err := plane.Client.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: 7}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = plane.Client.SchedulingV1().PriorityClasses().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	on := Worker{Clusters: clientOf(t, plane), Secrets: everything}
	run := func(settings entities.CommandJob) error {
		settings.Namespace, settings.Image = namespace, "tool:1"
		custom := entities.CustomRuntime{Apply: sh(`echo done`), Job: &settings}
		rt, err := NewWithWorker(entities.RuntimeDefinition{Name: "cluster", Kind: entities.RuntimeCustom, Custom: &custom}, on)
		require.NoError(t, err)
		_, err = rt.Apply(t.Context(), web("v2-i3"))
		return err
	}
	require.ErrorContains(t, run(entities.CommandJob{}), `violates PodSecurity "restricted:latest": unrestricted capabilities`)
	secure := entities.CommandJob{
		PodSecurity: &entities.PodSecurity{RunAsNonRoot: new(true), RunAsUser: new(int64(1000)), FSGroup: new(int64(2000)), SupplementalGroups: []int64{3000}},
		Security:    &entities.ContainerSecurity{DropCapabilities: []string{"ALL"}, ReadOnlyRootFilesystem: true},
	}
	require.ErrorContains(t, run(secure), "failed quota: demanding: must specify requests.cpu")

	secure.Requests, secure.Limits = map[string]string{"cpu": "100m"}, map[string]string{"memory": "64Mi"}
	secure.Labels, secure.Annotations = map[string]string{"team": "shop", "converge/job-channel": "mine"}, map[string]string{"sidecar.example.com/inject": "false"}
	secure.PullSecrets, secure.PriorityClass = []string{"registry"}, name
	made := firstPod(t, plane, namespace)
	require.NoError(t, run(secure))
	pod := made()
	require.Equal(t, "shop", pod.Labels["team"])
	require.Equal(t, "staging", pod.Labels["converge/job-channel"], "our labels take precedence")
	require.Equal(t, "false", pod.Annotations["sidecar.example.com/inject"])
	require.Equal(t, []corev1.LocalObjectReference{{Name: "registry"}}, pod.Spec.ImagePullSecrets)
	require.Equal(t, name, pod.Spec.PriorityClassName)
	require.Equal(t, &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(1000)), FSGroup: new(int64(2000)), SupplementalGroups: []int64{3000},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}, pod.Spec.SecurityContext)
	require.Equal(t, &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}, pod.Spec.Containers[0].SecurityContext)
}

// strict makes a namespace require the restricted Pod Security Standard, and resource requests of every pod.
func strict(t *testing.T, plane *kubetest.Cluster, namespace string) {
	t.Helper()
	_, err := plane.Client.CoreV1().Namespaces().Patch(t.Context(), namespace, "application/merge-patch+json",
		[]byte(`{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	hard := corev1.ResourceList{"requests.cpu": resource.MustParse("2")}
	quotas := plane.Client.CoreV1().ResourceQuotas(namespace)
	quota, err := quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "demanding"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	require.NoError(t, err)
	kubetest.WaitFor(t, time.Minute, func() (bool, string) {
		quota, err = quotas.Get(t.Context(), quota.Name, metav1.GetOptions{})
		if err == nil && len(quota.Status.Hard) == 0 { // its controller need not have come yet
			quota.Status.Hard, quota.Status.Used = hard, corev1.ResourceList{"requests.cpu": resource.MustParse("0")}
			_, err = quotas.UpdateStatus(t.Context(), quota, metav1.UpdateOptions{})
		}
		return err == nil && len(quota.Status.Hard) > 0, "the quota is not counted yet"
	})
	kubetest.AwaitRefusal(t, plane.Client, namespace, "violates PodSecurity", nil)
	kubetest.AwaitRefusal(t, plane.Client, namespace, "failed quota: demanding", func(spec *corev1.PodSpec) {
		spec.SecurityContext = &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
		spec.Containers[0].SecurityContext = &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
	})
}

// firstPod records the first pod that is created in a namespace from now on.
func firstPod(t *testing.T, plane *kubetest.Cluster, namespace string) (pod func() *corev1.Pod) {
	t.Helper()
	w, err := plane.Client.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	return func() *corev1.Pod {
		t.Helper()
		for {
			select {
			case e := <-w.ResultChan():
				if found, ok := e.Object.(*corev1.Pod); ok {
					return found
				}
			case <-time.After(time.Minute):
				require.Fail(t, "no pod was created")
			}
		}
	}
}
