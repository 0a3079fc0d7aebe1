package kubetest

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const soon = time.Minute

func TestDeploymentBecomesReady(t *testing.T) {
	t.Parallel()
	c := Start(t)
	ns := c.Namespace(t)
	createDeployment(t, c, ns, "shop/web:v1")
	WaitFor(t, soon, func() (bool, string) {
		got, err := c.Client.AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(t, err)
		return got.Status.ReadyReplicas == 2 && got.Status.AvailableReplicas == 2, got.Status.String()
	})
}

func TestImageThatCannotBePulled(t *testing.T) {
	t.Parallel()
	c := Start(t)
	ns := c.Namespace(t)
	createDeployment(t, c, ns, "shop/web:nopull")
	status := waitForContainer(t, c, ns, func(s corev1.ContainerStatus) bool {
		return s.State.Waiting != nil && s.State.Waiting.Reason == "ImagePullBackOff"
	})
	require.Contains(t, status.State.Waiting.Message, `Back-off pulling image "shop/web:nopull"`)
	require.Contains(t, warning(t, c, ns, "Failed"), `"shop/web:nopull"`)
}

func TestContainerThatCrashes(t *testing.T) {
	t.Parallel()
	c := Start(t)
	ns := c.Namespace(t)
	createDeployment(t, c, ns, "shop/web:crash")
	status := waitForContainer(t, c, ns, func(s corev1.ContainerStatus) bool {
		return s.RestartCount > 1 && s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff"
	})
	require.EqualValues(t, 1, status.LastTerminationState.Terminated.ExitCode)
	require.Equal(t, "played: shop/web:crash exits with code 1", status.LastTerminationState.Terminated.Message)
	require.Contains(t, warning(t, c, ns, "BackOff"), "Back-off restarting failed container app in pod web-")
}

func TestJobRunsItsCommand(t *testing.T) {
	t.Parallel()
	c := Start(t)
	ns := c.Namespace(t)
	ctx := t.Context()
	_, err := c.Client.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"page": "from a ConfigMap\n"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.Client.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "key"}, Data: map[string][]byte{"key": []byte("from a Secret")},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.Client.BatchV1().Jobs(ns).Create(ctx, failingJob(), metav1.CreateOptions{})
	require.NoError(t, err)

	WaitFor(t, soon, func() (bool, string) {
		got, err := c.Client.BatchV1().Jobs(ns).Get(ctx, "check", metav1.GetOptions{})
		require.NoError(t, err)
		return got.Status.Failed == 1, got.Status.String()
	})
	pods, err := c.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	terminated := pods.Items[0].Status.ContainerStatuses[0].State.Terminated
	require.NotNil(t, terminated)
	require.EqualValues(t, 3, terminated.ExitCode)
	require.Equal(t, "not today\n", terminated.Message)
	require.Equal(t, corev1.PodFailed, pods.Items[0].Status.Phase)

	log, err := c.Client.CoreV1().Pods(ns).GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{}).Stream(ctx)
	require.NoError(t, err)
	defer log.Close()
	text, err := io.ReadAll(log)
	require.NoError(t, err)
	require.Equal(t, "literal from a Secret check\nfrom a ConfigMap\n", string(text))
}

func failingJob() *batchv1.Job {
	container := container("shop/web:v1")
	container.Command = []string{"sh", "-c", `echo "$LITERAL $SECRET $NAME"; cat /etc/settings/page; echo not today > /dev/termination-log; exit 3`}
	container.Env = []corev1.EnvVar{
		{Name: "LITERAL", Value: "literal"},
		{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "key"}, Key: "key",
		}}},
		{Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['job-name']"}}},
	}
	container.VolumeMounts = []corev1.VolumeMount{{Name: "settings", MountPath: "/etc/settings"}}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "check"},
		Spec: batchv1.JobSpec{BackoffLimit: new(int32), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{container},
			Volumes: []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
			}}}},
		}}},
	}
}

func container(image string) corev1.Container { return corev1.Container{Name: "app", Image: image} }

func createDeployment(t *testing.T, c *Cluster, ns, image string) {
	t.Helper()
	_, err := c.Client.AppsV1().Deployments(ns).Create(t.Context(), deployment(image), metav1.CreateOptions{})
	require.NoError(t, err)
}

func deployment(image string) *appsv1.Deployment {
	replicas, labels := int32(2), map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{container(image)}},
			},
		},
	}
}

// waitForContainer returns the status of the first container of which cond holds.
func waitForContainer(t *testing.T, c *Cluster, ns string, cond func(corev1.ContainerStatus) bool) corev1.ContainerStatus {
	t.Helper()
	var found corev1.ContainerStatus
	WaitFor(t, soon, func() (bool, string) {
		pods, err := c.Client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		seen := ""
		for _, pod := range pods.Items {
			for _, status := range pod.Status.ContainerStatuses {
				if cond(status) {
					found = status
					return true, ""
				}
				seen += fmt.Sprintln(pod.Name, status.State, status.RestartCount)
			}
		}
		return false, seen
	})
	return found
}

// warning waits for a warning event and returns its message.
func warning(t *testing.T, c *Cluster, ns, reason string) string {
	t.Helper()
	message := ""
	WaitFor(t, soon, func() (bool, string) {
		events, err := c.Client.CoreV1().Events(ns).List(context.Background(), metav1.ListOptions{FieldSelector: "type=Warning,reason=" + reason})
		require.NoError(t, err)
		if len(events.Items) == 0 {
			return false, "no event"
		}
		message = events.Items[0].Message
		return true, ""
	})
	return message
}
