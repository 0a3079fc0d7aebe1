package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// retryStatus is how long after a failed write of a status the next follows: the API server may be away.
const retryStatus = 200 * time.Millisecond

// writeStatus writes the pod's status after each change, several changes at once where they come fast, until last ends,
// and then what is left. When ctx ends it stops at once.
func (r *run) writeStatus(ctx, last context.Context) {
	written := r.pod.Status.DeepCopy()
	for over := false; !over; {
		select {
		case <-last.Done():
			over = true
		case <-r.changed:
		}
		status := r.status(written)
		for ctx.Err() == nil && !equality.Semantic.DeepEqual(status, written) {
			err := r.patchStatus(ctx, written, status)
			if err == nil {
				written = status
				break
			}
			r.complain("write the status of", r.pod, err)
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || !pause(ctx, retryStatus) {
				return
			}
		}
	}
}

// patchStatus writes what differs, so that conditions of others stay.
func (r *run) patchStatus(ctx context.Context, before, after *corev1.PodStatus) error {
	old, err := json.Marshal(corev1.Pod{Status: *before})
	if err != nil {
		return err
	}
	changed, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: r.pod.UID}, Status: *after})
	if err != nil {
		return err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(old, changed, corev1.Pod{})
	if err != nil {
		return err
	}
	_, err = r.client.CoreV1().Pods(r.pod.Namespace).Patch(ctx, r.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// status is the pod's present one, with the times of conditions that did not change kept from before.
func (r *run) status(before *corev1.PodStatus) *corev1.PodStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := before.DeepCopy()
	if status.StartTime == nil {
		now := metav1.Now()
		status.StartTime = &now
	}
	status.ObservedGeneration = r.pod.Generation
	status.HostIP, status.HostIPs = nodeAddress, []corev1.HostIP{{IP: nodeAddress}}
	status.PodIP, status.PodIPs = r.address, []corev1.PodIP{{IP: r.address}}
	status.InitContainerStatuses, status.ContainerStatuses = statuses(r.inits), statuses(r.mains)
	status.Phase = phase(r.inits, r.mains)
	for _, condition := range conditions(r.pod, status.Phase, r.inits, r.mains) {
		setCondition(status, condition)
	}
	return status
}

func statuses(slots []*slot) []corev1.ContainerStatus {
	var all []corev1.ContainerStatus
	for _, s := range slots {
		all = append(all, *s.status.DeepCopy())
	}
	return all
}

func phase(inits, mains []*slot) corev1.PodPhase {
	for _, s := range inits {
		if s.over && s.failed() {
			return corev1.PodFailed
		}
	}
	over, failed, begun := true, false, true
	for _, s := range mains {
		over = over && s.over
		failed = failed || s.failed()
		begun = begun && (s.status.State.Waiting == nil || s.status.LastTerminationState.Terminated != nil)
	}
	switch {
	case over && failed:
		return corev1.PodFailed
	case over:
		return corev1.PodSucceeded
	case begun:
		return corev1.PodRunning
	default:
		return corev1.PodPending
	}
}

func (s *slot) failed() bool {
	return s.status.State.Terminated != nil && s.status.State.Terminated.ExitCode != 0
}

// initialized reports whether the next container may start.
func (s *slot) initialized() bool {
	if stays(s.spec) {
		return *s.status.Started || s.status.LastTerminationState.Terminated != nil
	}
	return s.status.Ready
}

// conditions are those of a kubelet, in its words.
func conditions(pod *corev1.Pod, phase corev1.PodPhase, inits, mains []*slot) []corev1.PodCondition {
	var incomplete, unready []string
	for _, s := range inits {
		if !s.initialized() {
			incomplete = append(incomplete, s.spec.Name)
		}
		if stays(s.spec) && !s.status.Ready {
			unready = append(unready, s.spec.Name)
		}
	}
	for _, s := range mains {
		if !s.status.Ready {
			unready = append(unready, s.spec.Name)
		}
	}
	initialized := verdict(corev1.PodInitialized, "ContainersNotInitialized", "containers with incomplete status", incomplete)
	containersReady := verdict(corev1.ContainersReady, "ContainersNotReady", "containers with unready status", unready)
	switch phase {
	case corev1.PodSucceeded:
		initialized = corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, Reason: "PodCompleted"}
		containersReady = corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, Reason: "PodCompleted"}
	case corev1.PodFailed:
		containersReady = corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, Reason: "PodFailed"}
	}
	ready := containersReady
	ready.Type = corev1.PodReady
	all := []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue},
		initialized, ready, containersReady,
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	}
	for i := range all {
		all[i].ObservedGeneration = pod.Generation
	}
	return all
}

func verdict(kind corev1.PodConditionType, reason, what string, lacking []string) corev1.PodCondition {
	if len(lacking) == 0 {
		return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue}
	}
	return corev1.PodCondition{
		Type: kind, Status: corev1.ConditionFalse, Reason: reason,
		Message: fmt.Sprintf("%s: [%s]", what, strings.Join(lacking, " ")),
	}
}

func setCondition(status *corev1.PodStatus, condition corev1.PodCondition) {
	condition.LastTransitionTime = metav1.Now()
	i := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == condition.Type })
	if i < 0 {
		status.Conditions = append(status.Conditions, condition)
		return
	}
	if status.Conditions[i].Status == condition.Status {
		condition.LastTransitionTime = status.Conditions[i].LastTransitionTime
	}
	status.Conditions[i] = condition
}
