package job

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

var now = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func podWith(state corev1.ContainerState) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: container, Image: "reg/tool:1", Command: []string{"/wrapper"}}}},
		Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: container, State: state}}},
	}
}

func waiting(reason, message string) *corev1.Pod {
	return podWith(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
}

func jobWith(kind batchv1.JobConditionType, reason string) *batchv1.Job {
	return &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: "so it is"}}}}
}

func endedAt(at time.Time, job *batchv1.Job) *batchv1.Job {
	job.Status.Conditions[0].LastTransitionTime = metav1.NewTime(at)
	return job
}

// What keeps a command from running is reported early and in words.
func TestEvaluate(t *testing.T) {
	homeless := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available",
		LastTransitionTime: metav1.NewTime(now.Add(-10 * time.Second)),
	}}}}
	evicted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on memory"}}
	done := podWith(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}})
	refused := []*corev1.Event{{Reason: "FailedCreate", Message: "pods is forbidden: violates PodSecurity"}}
	for _, row := range []struct {
		name   string
		seen   observed
		at     time.Time
		reason Reason
		want   string
		again  time.Time
		ended  *corev1.Pod
	}{
		{name: "nothing yet", seen: observed{job: &batchv1.Job{}}},
		{name: "removed", reason: ReasonLost, want: "the Job was removed by another client"},
		{name: "creating", seen: observed{job: &batchv1.Job{}, pods: []*corev1.Pod{waiting("ContainerCreating", "")}}},
		{name: "pulls again", seen: observed{job: &batchv1.Job{}, pods: []*corev1.Pod{waiting("ErrImagePull", "timeout")}}},
		{name: "image", seen: observed{job: &batchv1.Job{}, pods: []*corev1.Pod{waiting("ImagePullBackOff", "not found")}}, reason: ReasonImage, want: "image reg/tool:1 cannot be pulled: ImagePullBackOff: not found"},
		{name: "configuration", seen: observed{job: &batchv1.Job{}, pods: []*corev1.Pod{waiting("CreateContainerConfigError", "secret missing")}}, reason: ReasonStart, want: "pod pod cannot be started: CreateContainerConfigError: secret missing"},
		{name: "no node yet", seen: observed{job: &batchv1.Job{}, pods: []*corev1.Pod{homeless}}, again: now.Add(20 * time.Second)},
		{name: "no node", seen: observed{job: &batchv1.Job{}, pods: []*corev1.Pod{homeless}}, at: now.Add(20 * time.Second), reason: ReasonUnschedulable, want: "pod pod has no node after 30s: 0/3 nodes are available"},
		{name: "evicted", seen: observed{job: &batchv1.Job{}, pods: []*corev1.Pod{evicted}}, reason: ReasonLost, want: "pod pod failed: Evicted: low on memory"},
		{name: "refused", seen: observed{job: &batchv1.Job{}, events: refused}, reason: ReasonRefused, want: "no pod is admitted: pods is forbidden: violates PodSecurity"},
		{name: "refused before, admitted now", seen: observed{job: &batchv1.Job{}, events: refused, pods: []*corev1.Pod{waiting("", "")}}},
		{name: "deadline", seen: observed{job: jobWith(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded)}, reason: ReasonTimeout, want: "the Job's own deadline passed: so it is"},
		{name: "failed without pod", seen: observed{job: jobWith(batchv1.JobFailed, "BackoffLimitExceeded")}, reason: ReasonLost, want: "the Job failed and has no pod: BackoffLimitExceeded: so it is"},
		{name: "complete without pod", seen: observed{job: jobWith(batchv1.JobComplete, "")}, reason: ReasonLost, want: "the Job has ended, but its pod was removed by another client"},
		{name: "failed, pod not seen yet", seen: observed{job: endedAt(now, jobWith(batchv1.JobFailed, "BackoffLimitExceeded"))}, again: now.Add(podWatchLag)},
		{name: "complete, end of the pod not seen yet", seen: observed{job: endedAt(now, jobWith(batchv1.JobComplete, "")), pods: []*corev1.Pod{waiting("", "")}}, again: now.Add(podWatchLag)},
		{name: "complete without pod for long", seen: observed{job: endedAt(now, jobWith(batchv1.JobComplete, ""))}, at: now.Add(podWatchLag), reason: ReasonLost, want: "the Job has ended, but its pod was removed by another client"},
		{name: "ended, though the Job failed", seen: observed{job: jobWith(batchv1.JobFailed, "BackoffLimitExceeded"), pods: []*corev1.Pod{done}}, ended: done},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.at.IsZero() {
				row.at = now
			}
			v := evaluate(row.seen, row.at)
			require.Equal(t, row.ended, v.ended)
			require.Equal(t, row.again, v.recheckAt)
			if row.want == "" {
				require.NoError(t, v.err)
				return
			}
			require.EqualError(t, v.err, row.want)
			require.True(t, IsReason(v.err, row.reason))
		})
	}
}

func TestName(t *testing.T) {
	require.Equal(t, jobName("Shop/Web_staging apply", "x"), jobName("shop-web-staging-apply", "x"))
	require.NotEqual(t, jobName("web", "x"), jobName("web", "y"))
	require.NotEqual(t, jobName("web", ""), jobName("web", ""))
	require.Regexp(t, `^converge-[0-9a-f]{12}$`, jobName("", "x"))
	rapid.Check(t, func(t *rapid.T) {
		made := jobName(rapid.String().Draw(t, "prefix"), rapid.String().Draw(t, "one"))
		require.Regexp(t, `^[a-z]([a-z0-9-]*[a-z0-9])?$`, made)
		require.LessOrEqual(t, len(made), 63)
		require.NotContains(t, made, "--")
	})
}

// The digest distinguishes content, and nothing can be guessed from it about a secret's value.
func TestDigest(t *testing.T) {
	r := Request{Image: "a", Command: []string{"x"}, Secrets: map[string]string{"TOKEN": "1"}, Files: map[string]string{"a": "b"}}
	other := r
	other.Secrets = map[string]string{"TOKEN": "2"}
	require.Equal(t, r.digest(), other.digest())
	require.Equal(t, "1", r.Secrets["TOKEN"])
	other.Secrets = map[string]string{"PASSWORD": "1"}
	require.NotEqual(t, r.digest(), other.digest())
	other = r
	other.Files = map[string]string{"a": "c"}
	require.NotEqual(t, r.digest(), other.digest())
}

// Requirements for nodes are in the pod, and distinguish Jobs.
func TestPodHasResourcesAndNodeSelectors_C7(t *testing.T) {
	plain := Request{Image: "a", Command: []string{"x"}}
	r := plain
	r.NodeSelector, r.Tolerations = map[string]string{"pool": "ci"}, []corev1.Toleration{{Key: "ci", Operator: corev1.TolerationOpExists}}
	r.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("500m")}
	require.NotEqual(t, plain.digest(), r.digest())
	pod := (&attempt{request: r}).pod()
	require.Equal(t, r.NodeSelector, pod.NodeSelector)
	require.Equal(t, r.Tolerations, pod.Tolerations)
	require.Equal(t, r.Resources, pod.Containers[0].Resources)
}

// Kubernetes' own expansion (k8s.io/kubernetes third_party/forked/golang/expansion) gives back what
// was meant.
func TestVerbatim(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "$HOME ${X} $": "$HOME ${X} $", "$(date)": "$$(date)", "kill $$": "kill $$$$", "$$$(x)": "$$$$$$(x)",
	} {
		require.Equal(t, want, escapeExpansions(text))
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[$()a]{0,12}`).Draw(t, "text")
		require.Equal(t, text, expanded(escapeExpansions(text)))
	})
}

// expanded is what a kubelet makes of a text when every variable is "EXPANDED".
func expanded(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '$' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		switch end := strings.IndexByte(text[i:], ')'); {
		case text[i] == '$':
			b.WriteByte('$')
		case text[i] == '(' && end > 0:
			b.WriteString("EXPANDED")
			i += end
		default:
			b.WriteByte('$')
			b.WriteByte(text[i])
		}
	}
	return b.String()
}
