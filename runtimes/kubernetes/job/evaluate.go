package job

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// observed is the observed state of a Job at one moment.
type observed struct {
	job    *batchv1.Job // nil: it does not exist
	pods   []*corev1.Pod
	events []*corev1.Event // about the Job
}

// verdict is the conclusion from the state. All fields empty: wait for a change.
type verdict struct {
	ended     *corev1.Pod // its container ended
	err       error       // there will be no result
	recheckAt time.Time   // evaluate again at this time, even without a change
}

// unschedulableTimeout is how long a pod may stay unschedulable: an autoscaling cluster needs some time.
const unschedulableTimeout = 30 * time.Second

// podWatchLag is how long the watch of pods may be behind that of Jobs: the end of a Job sometimes arrives before its pod.
const podWatchLag = 5 * time.Second

// evaluate decides whether a Job has ended, or can never start.
func evaluate(s observed, now time.Time) verdict {
	if s.job == nil {
		return verdict{err: failure(ReasonLost, "the Job was removed by another client")}
	}
	recheckAt := time.Time{}
	for _, pod := range s.pods {
		if status := statusOf(pod); status != nil && status.State.Terminated != nil {
			return verdict{ended: pod}
		}
		switch at, err := startError(pod, now); {
		case err != nil:
			return verdict{err: err}
		case !at.IsZero():
			recheckAt = at
		}
	}
	if c := cmp.Or(condition(s.job, batchv1.JobFailed), condition(s.job, batchv1.JobComplete)); c != nil {
		until := c.LastTransitionTime.Add(podWatchLag)
		switch {
		case c.Type == batchv1.JobFailed && c.Reason == batchv1.JobReasonDeadlineExceeded:
			return verdict{err: failure(ReasonTimeout, "the Job's own deadline passed: %s", c.Message)}
		case now.Before(until):
			return verdict{recheckAt: until}
		case c.Type == batchv1.JobFailed:
			return verdict{err: failure(ReasonLost, "the Job failed and has no pod: %s: %s", c.Reason, c.Message)}
		default:
			return verdict{err: failure(ReasonLost, "the Job has ended, but its pod was removed by another client")}
		}
	}
	if len(s.pods) == 0 {
		for _, e := range s.events {
			if e.Reason == "FailedCreate" {
				return verdict{err: failure(ReasonRefused, "no pod is admitted: %s", e.Message)}
			}
		}
	}
	return verdict{recheckAt: recheckAt}
}

// startError says why a pod will not run, or when to evaluate it again.
func startError(pod *corev1.Pod, now time.Time) (recheckAt time.Time, err error) {
	if pod.Status.Phase == corev1.PodFailed {
		return recheckAt, failure(ReasonLost, "pod %s failed: %s", pod.Name, joinReason(pod.Status.Reason, pod.Status.Message))
	}
	if status := statusOf(pod); status != nil && status.State.Waiting != nil {
		w := status.State.Waiting
		image := pod.Spec.Containers[0].Image
		switch w.Reason {
		case "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError":
			return recheckAt, failure(ReasonImage, "image %s cannot be pulled: %s", image, joinReason(w.Reason, w.Message))
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return recheckAt, failure(ReasonStart, "pod %s cannot be started: %s", pod.Name, joinReason(w.Reason, w.Message))
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			if until := c.LastTransitionTime.Add(unschedulableTimeout); now.Before(until) {
				return until, nil
			}
			return recheckAt, failure(ReasonUnschedulable, "pod %s has no node after %s: %s", pod.Name, unschedulableTimeout, c.Message)
		}
	}
	return recheckAt, nil
}

func statusOf(pod *corev1.Pod) *corev1.ContainerStatus {
	i := slices.IndexFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == container })
	if i < 0 {
		return nil
	}
	return &pod.Status.ContainerStatuses[i]
}

func condition(job *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

// joinReason joins a reason and a message, which often begin in the same way.
func joinReason(reason, message string) string {
	switch {
	case message == "":
		return reason
	case reason == "" || strings.HasPrefix(message, reason):
		return message
	}
	return fmt.Sprintf("%s: %s", reason, message)
}
