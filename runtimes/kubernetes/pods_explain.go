package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// This file explains an unhealthy workload as an expert would with kubectl: refused pods, a lost node, a pod that does not
// terminate, a pod that is not ready, and the last output of a container.

const (
	terminatingTimeout = 30 * time.Second // after this time a pod that still exists is stuck
	logLines           = 5                // of an ended container
	logBytes           = 2 << 10
	logPrefix          = "log of "
	unreadyGrace       = 10 * time.Second // a controller creates pods sooner than that
	minRedacted        = 4                // minimum length in bytes of a redacted Secret value
)

// explainUnready adds information from events and nodes to the failure of a pod. It returns a known failure at once.
func (ob *observation) explainUnready(ctx context.Context, live *unstructured.Unstructured, p parts, found podFailure) podFailure {
	if found.message != "" {
		return found
	}
	ctx, cancel := context.WithTimeout(ctx, eventsTimeout)
	defer cancel()
	for _, check := range []func(context.Context, *unstructured.Unstructured, parts) podFailure{ob.refusedPods, ob.endedPod, ob.stuckPod, ob.lostPod, ob.unreadyPod} {
		if found := check(ctx, live, p); found.message != "" {
			found.message = runtimes.ClipMessage(found.message, maxExplanation)
			return found
		}
	}
	return found
}

const maxExplanation = 500 // bytes of the explanation

// refusedPods: the controller may not create pods. A ReplicaSet has a condition for that, other controllers emit an event.
func (ob *observation) refusedPods(ctx context.Context, live *unstructured.Unstructured, p parts) podFailure {
	creator := cmp.Or(p.newest, live)
	if c := conditionOf(creator, "ReplicaFailure"); c.is("True") {
		return refusedBy(c.reason, c.message)
	}
	kind := live.GroupVersionKind().GroupKind()
	makes := kind == kindJob || workloadOf[kind] == podSet
	if !makes || len(p.targets) > 0 || ob.now().Sub(creator.GetCreationTimestamp().Time) < unreadyGrace {
		return podFailure{}
	}
	if w := ob.warningOf(ctx, live); w.reason == "FailedCreate" {
		return refusedBy(w.reason, w.message)
	}
	return podFailure{}
}

func refusedBy(reason, message string) podFailure {
	_, permanent := adviceFor(message)
	return podFailure{message: "its pods are refused: " + reason + ": " + withAdvice(message), failed: permanent}
}

// endedPod: the last pod of a failed Job, with the message of its container.
func (ob *observation) endedPod(_ context.Context, live *unstructured.Unstructured, p parts) (found podFailure) {
	if live.GroupVersionKind().GroupKind() != kindJob {
		return found
	}
	for _, pod := range p.targets {
		if text(pod, "status", "phase") != "Failed" {
			continue
		}
		for _, each := range containersOf(pod) {
			ended := nestedMap(each, "state", "terminated")
			code, _ := ended["exitCode"].(int64)
			at, _ := ended["finishedAt"].(string)
			if when, err := time.Parse(time.RFC3339, at); code != 0 && err == nil && !when.Before(found.ended) {
				_, message := jobHealth(live)
				name, _ := each["name"].(string)
				found = podFailure{pod: pod, container: name, ended: when, message: fmt.Sprintf("%s; %s: %s", message, pod.GetName(), terminationMessage(ended))}
			}
		}
	}
	return found
}

func containersOf(pod *unstructured.Unstructured) (all []map[string]any) {
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		some, _ := nestedMap(pod.Object, "status")[list].([]any)
		for _, each := range some {
			if c, ok := each.(map[string]any); ok {
				all = append(all, c)
			}
		}
	}
	return all
}

// stuckPod: a deleted pod that should have been gone for a while.
func (ob *observation) stuckPod(ctx context.Context, _ *unstructured.Unstructured, p parts) podFailure {
	for _, pod := range p.terminating {
		deletedAt := pod.GetDeletionTimestamp()
		if deletedAt == nil || ob.now().Sub(deletedAt.Time) < terminatingTimeout {
			continue
		}
		text := fmt.Sprintf("Terminating %s: it should have been gone for %s", pod.GetName(), entities.Length(ob.now().Sub(deletedAt.Time).Round(time.Second)))
		if node := ob.lostNode(ctx, pod); node != "" {
			text += ": " + node + "; once that machine is surely off: kubectl delete pod --force " + pod.GetName()
		} else if finalizers := pod.GetFinalizers(); len(finalizers) > 0 {
			text += ": it waits for " + strings.Join(finalizers, ", ")
		}
		return podFailure{message: text, pod: pod}
	}
	return podFailure{}
}

// lostPod: a pod that is not ready because its node does not answer.
func (ob *observation) lostPod(ctx context.Context, _ *unstructured.Unstructured, p parts) podFailure {
	for _, pod := range p.targets {
		if !ob.isLongUnready(pod) {
			continue
		}
		if node := ob.lostNode(ctx, pod); node != "" {
			return podFailure{message: "NodeNotReady " + pod.GetName() + ": " + node + "; its pods are replaced once their tolerations end", pod: pod}
		}
	}
	return podFailure{}
}

// lostNode reports that a pod's node does not answer; "" if it does, or if this worker may not read nodes.
func (ob *observation) lostNode(ctx context.Context, pod *unstructured.Unstructured) string {
	name := text(pod, "spec", "nodeName")
	if name == "" {
		return ""
	}
	c := ob.nodes.readyCondition(ctx, ob, name)
	if !c.found || c.is("True") {
		return ""
	}
	return fmt.Sprintf("node %s does not answer since %s (%s)", name, c.change, c.text())
}

// isLongUnready: a running pod has not been ready for some time. No requests are made for shorter periods (H8).
func (ob *observation) isLongUnready(pod *unstructured.Unstructured) bool {
	return runs(pod) && !conditionOf(pod, "Ready").is("True") && ob.now().Sub(notReadySince(pod)) >= unreadyGrace
}

// unreadyPod: a running or starting pod that is not ready, with the last message of its node.
func (ob *observation) unreadyPod(ctx context.Context, _ *unstructured.Unstructured, p parts) podFailure {
	for _, pod := range p.targets {
		if !ob.isLongUnready(pod) {
			continue
		}
		if w := ob.warningOf(ctx, pod); w.message != "" {
			return podFailure{message: fmt.Sprintf("%s is not ready: %s: %s", pod.GetName(), w.reason, w.message), pod: pod}
		}
	}
	return podFailure{}
}

// warning is the last event of kind Warning of an object.
type warning struct{ reason, message string }

func (ob *observation) warningOf(ctx context.Context, o *unstructured.Unstructured) warning {
	return ob.cachedEvents(ctx, o).warning
}

// lastLogLines are the last lines of a failing pod's container before it ended, one event each. Values of the Secrets that the instance
// declares are removed, as in all other output. They are for people: without the right to read logs there are none.
func (ob *observation) lastLogLines(ctx context.Context, found podFailure) (events []entities.Event) {
	if found.pod == nil || found.container == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, eventsTimeout)
	defer cancel()
	known := ob.recent.containerLog(ob.now(), string(found.pod.GetUID())+"/"+found.container+"/"+fmt.Sprint(found.restarts), func() string {
		clients, err := ob.cluster.connect(ctx)
		if err != nil {
			return ""
		}
		lines, bound := int64(logLines), int64(logBytes)
		stream, err := clients.typed.Log(found.pod.GetNamespace(), found.pod.GetName(), &corev1.PodLogOptions{
			Container: found.container, Previous: found.previous, TailLines: &lines, LimitBytes: &bound,
		}).Stream(ctx)
		if err != nil {
			return ""
		}
		defer stream.Close()
		all, _ := io.ReadAll(io.LimitReader(stream, logBytes))
		return string(all)
	})
	for _, line := range strings.Split(strings.TrimSpace(ob.redacted(known)), "\n") {
		if line = strings.TrimSpace(line); line != "" {
			events = append(events, entities.Event{Timestamp: found.ended, Message: runtimes.Clip(fmt.Sprintf("%s%s: %s", logPrefix, found.container, line), maxPodMessage)})
		}
	}
	return events
}

// redacted removes the values of declared Secrets from a text, the longest first.
func (ob *observation) redacted(text string) string {
	if text == "" || ob.in.Payload == nil || ob.in.Payload.Kubernetes == nil {
		return text
	}
	var secrets []string
	for _, raw := range ob.in.Payload.Kubernetes.Objects {
		if !bytes.Contains(raw, []byte("Secret")) {
			continue
		}
		d, err := parse(raw)
		if err != nil || d.GetKind() != "Secret" {
			continue
		}
		for _, value := range nestedMap(d.Object, "data") {
			encoded, _ := value.(string)
			plain, err := base64.StdEncoding.DecodeString(encoded)
			secrets = append(secrets, encoded)
			if err == nil {
				secrets = append(append(secrets, string(plain)), strings.Split(string(plain), "\n")...)
			}
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, secret := range secrets {
		if secret = strings.TrimSpace(secret); len(secret) >= minRedacted {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}

// nodeOf reads the Ready condition of a node.
func (ob *observation) nodeOf(ctx context.Context, name string) condition {
	clients, err := ob.cluster.connect(ctx)
	if err != nil {
		return condition{}
	}
	node, err := clients.typed.Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return condition{} // without the right to read nodes, the events of their pods report it
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return condition{found: true, status: string(c.Status), reason: c.Reason, message: c.Message, change: c.LastTransitionTime.UTC().Format("15:04:05")}
		}
	}
	return condition{}
}
