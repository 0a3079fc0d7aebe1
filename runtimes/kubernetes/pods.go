package kubernetes

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

const maxPodMessage = 300 // bytes of a pod's message

// podFailure is why an object is not ready, according to its pods.
type podFailure struct {
	message string
	failed  bool // for longer than allowed
	pod     *unstructured.Unstructured
	since   time.Time
	// The container that ended, whether it has restarted since (its log is then the previous one), how often it started, and when it
	// ended.
	container string
	previous  bool
	restarts  int64
	ended     time.Time
}

// worstPodFailure finds the most significant pod: the one that has been failing to start for the longest time, or else one that cannot be
// scheduled. A pod has failed when it has been failing for failAfter, or at once if waiting cannot help. The start of the failure is
// the last change from ready to not ready, so that a pod that ran for weeks and crashes now has as long as a new one, or the last
// apply, if that is later, since it may have corrected a dependency.
func worstPodFailure(pods []*unstructured.Unstructured, applied, now time.Time, failAfter time.Duration) podFailure {
	var worst podFailure
	for _, pod := range pods {
		if !runs(pod) {
			continue
		}
		if found := failing(pod, applied, now, failAfter); found.pod != nil && (worst.pod == nil || worse(found, worst)) {
			worst = found
		}
	}
	if worst.pod != nil {
		return worst
	}
	for _, pod := range pods {
		if c := conditionOf(pod, "PodScheduled"); runs(pod) && c.is("False") && c.reason == "Unschedulable" {
			return podFailure{message: runtimes.ClipMessage(fmt.Sprintf("Unschedulable %s: %s", pod.GetName(), c.message), maxPodMessage), pod: pod}
		}
	}
	return podFailure{}
}

func worse(a, b podFailure) bool {
	if a.failed != b.failed {
		return a.failed
	}
	return a.since.Before(b.since)
}

// failing says how a pod's containers fail to start, if one does.
func failing(pod *unstructured.Unstructured, applied, now time.Time, failAfter time.Duration) podFailure {
	status, _ := pod.Object["status"].(map[string]any)
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		containers, _ := status[list].([]any)
		for _, each := range containers {
			container, _ := each.(map[string]any)
			waiting := nestedMap(container, "state", "waiting")
			reason, _ := waiting["reason"].(string)
			if !cannotStart(reason) {
				continue
			}
			since := notReadySince(pod)
			if applied.After(since) {
				since = applied
			}
			worst := podFailure{
				message: runtimes.ClipMessage(fmt.Sprintf("%s %s: %s", reason, pod.GetName(), waitingReason(container, waiting)), maxPodMessage),
				failed:  reason == "InvalidImageName" || now.Sub(since) > failAfter,
				pod:     pod, since: since,
			}
			worst.recordTermination(container)
			return worst
		}
	}
	return podFailure{}
}

// recordTermination records how an ended container ended.
func (t *podFailure) recordTermination(container map[string]any) {
	ended := nestedMap(container, "lastState", "terminated")
	if ended == nil {
		return
	}
	t.container, _ = container["name"].(string)
	t.restarts, _ = container["restartCount"].(int64)
	at, _ := ended["finishedAt"].(string)
	t.ended, _ = time.Parse(time.RFC3339, at)
	t.previous = true
}

// cannotStart reports whether a container waits because of an error, and not because earlier containers still run.
func cannotStart(reason string) bool {
	switch reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
		"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff":
		return true
	}
	return false
}

// waitingReason is the last message of a container, or how it ended, or the node's message.
func waitingReason(container, waiting map[string]any) string {
	if text := terminationMessage(nestedMap(container, "lastState", "terminated")); text != "" {
		return text
	}
	if message, _ := waiting["message"].(string); message != "" {
		return withoutSteps(message)
	}
	return "the node gives no reason"
}

// terminationMessage is the last message of an ended container, or how it ended; "" if it did not end.
func terminationMessage(ended map[string]any) string {
	if message, _ := ended["message"].(string); strings.TrimSpace(message) != "" {
		lines := strings.Split(strings.TrimSpace(message), "\n")
		return lines[len(lines)-1]
	}
	code, ok := ended["exitCode"].(int64)
	if !ok {
		return ""
	}
	reason, _ := ended["reason"].(string)
	if reason == "" || reason == "Error" {
		return fmt.Sprintf("exit code %d", code)
	}
	return fmt.Sprintf("exit code %d (%s)", code, reason) // OOMKilled
}

// withoutSteps drops the intermediate steps from a pull error: the image is already named, and the cause is at the end.
func withoutSteps(message string) string {
	pull, steps, found := strings.Cut(message, ": ErrImagePull: ")
	if !found && strings.HasPrefix(message, "failed to pull") {
		pull, steps, found = strings.Cut(message, ": ")
	}
	if !found {
		return message
	}
	parts := strings.Split(steps, ": ")
	return pull + ": " + strings.Join(parts[max(0, len(parts)-2):], ": ")
}

func nestedMap(m map[string]any, path ...string) map[string]any {
	for _, name := range path {
		m, _ = m[name].(map[string]any)
	}
	return m
}

// notReadySince is when a pod changed from ready to not ready, or when it started.
func notReadySince(pod *unstructured.Unstructured) time.Time {
	for _, kind := range []string{"Ready", "PodScheduled"} {
		c := conditionOf(pod, kind)
		if kind == "Ready" && c.status != "False" {
			continue
		}
		if since, err := time.Parse(time.RFC3339, c.change); err == nil {
			return since
		}
	}
	return pod.GetCreationTimestamp().Time
}
