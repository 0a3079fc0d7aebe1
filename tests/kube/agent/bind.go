package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	resourcehelper "k8s.io/kubernetes/pkg/api/v1/resource"
)

// bind puts a pod on a node that it may run on, in turn. Node selectors, node affinity, cordons, requests that no empty
// node could meet and nodes that are not ready are honoured; what runs on a node already, other taints and spreading are
// not. The DaemonSet controller makes a pod for each node and names the node in the pod's node affinity, so those need no
// case of their own. A pod that fits nowhere is said to be unschedulable once and left.
func (a *agent) bind(ctx context.Context, pod *corev1.Pod) {
	if pod.Spec.SchedulerName != corev1.DefaultSchedulerName || len(pod.Spec.SchedulingGates) > 0 || isUnschedulable(pod) {
		return
	}
	nodes, err := a.nodes.List(labels.Everything())
	if err != nil {
		a.complain("bind", pod, err)
		return
	}
	slices.SortFunc(nodes, func(x, y *corev1.Node) int { return strings.Compare(x.Name, y.Name) })
	fitting, reasons := fit(pod, nodes)
	if len(fitting) == 0 {
		a.refuse(ctx, pod, fmt.Sprintf("0/%d nodes are available: %s.", len(nodes), strings.Join(reasons, ", ")))
		return
	}
	node := fitting[int(a.bound.Add(1))%len(fitting)]
	err = a.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node.Name},
	}, metav1.CreateOptions{})
	a.complain("bind", pod, err)
}

// fit returns the nodes that a pod may run on, and why not the others, in the scheduler's words.
func fit(pod *corev1.Pod, nodes []*corev1.Node) (fitting []*corev1.Node, reasons []string) {
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	counts := map[string]int{}
	for _, node := range nodes {
		if matches, err := affinity.Match(node); err != nil || !matches {
			counts["node(s) didn't match Pod's node affinity/selector"]++
		} else if node.Spec.Unschedulable && !isOfDaemonSet(pod) {
			counts["node(s) were unschedulable"]++
		} else if !isReady(node) {
			counts["node(s) had untolerated taint {node.kubernetes.io/not-ready: }"]++
		} else if lacking := lacks(pod, node); lacking != "" {
			counts["Insufficient "+lacking]++
		} else {
			fitting = append(fitting, node)
		}
	}
	for reason, count := range counts {
		reasons = append(reasons, fmt.Sprintf("%d %s", count, reason))
	}
	slices.Sort(reasons)
	return fitting, reasons
}

// lacks names a resource of which the pod requests more than the whole node has.
func lacks(pod *corev1.Pod, node *corev1.Node) string {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		wanted := resourcehelper.GetResourceRequestQuantity(pod, name)
		if wanted.Cmp(node.Status.Allocatable[name]) > 0 {
			return string(name)
		}
	}
	return ""
}

// isReady: a node that does not answer, as one that a test makes without a machine, gets no pod but those that name it.
func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func (a *agent) readyNodes() (ready int) {
	nodes, _ := a.nodes.List(labels.Everything()) // of a cache: it does not fail
	for _, node := range nodes {
		if isReady(node) {
			ready++
		}
	}
	return ready
}

func isOfDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

func isUnschedulable(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
	})
}

func (a *agent) refuse(ctx context.Context, pod *corev1.Pod, message string) {
	a.scheduler.Event(pod, corev1.EventTypeWarning, "FailedScheduling", message)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status": corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
			LastTransitionTime: metav1.Now(),
		}}},
	})
	if err == nil {
		_, err = a.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	a.complain("refuse", pod, err)
}
