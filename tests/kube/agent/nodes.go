package agent

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// What a node claims to have. A pod that wants more of it than one node has cannot be bound.
const (
	nodeCPU    = "64"
	nodeMemory = "256Gi"
	nodePods   = "10k"
)

// registerSurely tries until ctx ends: the API server may be stopped while the agent begins.
func (a *agent) registerSurely(ctx context.Context, name string, port int32) error {
	return wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := a.register(ctx, name, port)
		if err != nil {
			fmt.Fprintf(a.errors, "%s register %s: %v\n", time.Now().Format(time.TimeOnly), name, err)
		}
		return err == nil, nil
	})
}

// register makes a node that is ready for good: no controller here looks after its heartbeats.
func (a *agent) register(ctx context.Context, name string, port int32) error {
	nodes := a.client.CoreV1().Nodes()
	node, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	}}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		node, err = nodes.Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return err
	}
	has := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(nodeCPU),
		corev1.ResourceMemory: resource.MustParse(nodeMemory),
		corev1.ResourcePods:   resource.MustParse(nodePods),
	}
	now := metav1.Now()
	node.Status = corev1.NodeStatus{
		Capacity: has, Allocatable: has,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: nodeAddress},
			{Type: corev1.NodeHostName, Address: name},
		},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
			LastHeartbeatTime: now, LastTransitionTime: now,
		}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
		NodeInfo:        corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "kubelab"},
	}
	_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// complain says what failed for a pod. That the pod is gone, or replaced by another of its name, is no failure.
func (a *agent) complain(what string, pod *corev1.Pod, err error) {
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return
	}
	fmt.Fprintf(a.errors, "%s %s pod %s/%s: %v\n", time.Now().Format(time.TimeOnly), what, pod.Namespace, pod.Name, err)
}
