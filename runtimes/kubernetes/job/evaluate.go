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

// seen is the observed state of a Job at one moment.
type seen struct {
	job    *batchv1.Job // nil: it does not exist
	pods   []*corev1.Pod
	events []*corev1.Event // about the Job
}

// verdict is the conclusion from the state. All fields empty: wait for a change.
type verdict struct {
	ended *corev1.Pod // its container ended
	err   error       // there will be no result
	again time.Time   // evaluate again at this time, even without a change
}

// patience is how long a pod may stay unschedulable: an autoscaling cluster needs some time.
const patience = 30 * time.Second

// lag is how long the watch of pods may be behind that of Jobs: the end of a Job sometimes arrives before its pod.
const lag = 5 * time.Second

// evaluate decides whether a Job has ended, or can never start.
func evaluate(s seen, now time.Time) verdict {
	if s.job == nil {
		return verdict{err: failure(ReasonLost, "the Job was removed by another client")}
	}
	again := time.Time{}
	for _, pod := range s.pods {
		if status := statusOf(pod); status != nil && status.State.Terminated != nil {
			return verdict{ended: pod}
		}
		switch at, err := stuck(pod, now); {
		case err != nil:
			return verdict{err: err}
		case !at.IsZero():
			again = at
		}
	}
	if c := cmp.Or(condition(s.job, batchv1.JobFailed), condition(s.job, batchv1.JobComplete)); c != nil {
		over := c.LastTransitionTime.Add(lag)
		switch {
		case c.Type == batchv1.JobFailed && c.Reason == batchv1.JobReasonDeadlineExceeded:
			return verdict{err: failure(ReasonTimeout, "the Job's own deadline passed: %s", c.Message)}
		case now.Before(over):
			return verdict{again: over}
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
	return verdict{again: again}
}

// stuck says why a pod will not run, or when to evaluate it again.
func stuck(pod *corev1.Pod, now time.Time) (again time.Time, err error) {
	if pod.Status.Phase == corev1.PodFailed {
		return again, failure(ReasonLost, "pod %s failed: %s", pod.Name, said(pod.Status.Reason, pod.Status.Message))
	}
	if status := statusOf(pod); status != nil && status.State.Waiting != nil {
		w := status.State.Waiting
		image := pod.Spec.Containers[0].Image
		switch w.Reason {
		case "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError":
			return again, failure(ReasonImage, "image %s cannot be pulled: %s", image, said(w.Reason, w.Message))
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return again, failure(ReasonStart, "pod %s cannot be started: %s", pod.Name, said(w.Reason, w.Message))
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			if over := c.LastTransitionTime.Add(patience); now.Before(over) {
				return over, nil
			}
			return again, failure(ReasonUnschedulable, "pod %s has no node after %s: %s", pod.Name, patience, c.Message)
		}
	}
	return again, nil
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

// said joins a reason and a message, which often begin in the same way.
func said(reason, message string) string {
	switch {
	case message == "":
		return reason
	case reason == "" || strings.HasPrefix(message, reason):
		return message
	}
	return fmt.Sprintf("%s: %s", reason, message)
}
