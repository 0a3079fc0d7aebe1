package kubernetes

import (
	"fmt"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/entities"
)

// health is the status of an object, and its message. It reads only the object, so that waves, which wait for it, and observations
// agree.
//
// It is the result of kstatus, which gives no verdict until observedGeneration is that of the object, with these differences. A Job
// succeeds when it is complete, not when it has started. A failed Pod is FAILED, and one that cannot be scheduled or crashes is
// PENDING (the object does not say for how long it may be: see podFailure). An APIService, and any kind whose Ready condition has its
// own generation (the Gateway API's), succeeds when the condition is true for the current declaration.
//
// Some limits of kstatus remain: a Service of type LoadBalancer succeeds without an address, a StatefulSet whose pods change
// OnDelete succeeds with pods of any version (versions reports them), a custom resource without any status succeeds before its
// controller has seen it, and a PersistentVolumeClaim that waits for its first consumer is PENDING until a pod comes.
func health(o *unstructured.Unstructured) (entities.ObjectStatus, string) {
	v := judge(o)
	return v.status, v.message
}

// judge is health, plus the rules for the kinds of well-known controllers.
func judge(o *unstructured.Unstructured) (v judgement) {
	if o.GetDeletionTimestamp() != nil {
		return pending("%s", deletionMessage(o))
	}
	if evaluate := wellKnown[o.GroupVersionKind().GroupKind()]; evaluate != nil {
		return evaluate(o)
	}
	v.status, v.message = byStatus(o)
	return v
}

func byStatus(o *unstructured.Unstructured) (entities.ObjectStatus, string) {
	if evaluate := exceptions[o.GroupVersionKind().GroupKind()]; evaluate != nil {
		return evaluate(o)
	}
	if stale := staleReady(o); stale != "" {
		return entities.ObjectPending, stale
	}
	result, err := status.Compute(o)
	if err != nil {
		return entities.ObjectPending, "its status cannot be read: " + err.Error()
	}
	switch result.Status {
	case status.CurrentStatus:
		return entities.ObjectSucceeded, result.Message
	case status.FailedStatus:
		return entities.ObjectFailed, withReason(o, result.Message)
	}
	return entities.ObjectPending, withReason(o, result.Message)
}

// exceptions are the kinds for which a release needs another rule than that of kstatus.
var exceptions = map[schema.GroupKind]func(*unstructured.Unstructured) (entities.ObjectStatus, string){
	kindJob:       jobHealth,
	{Kind: "Pod"}: podHealth,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}: apiServiceHealth,
}

// deletionMessage says that an object is being deleted, which finalizers hold it, and since when.
func deletionMessage(o *unstructured.Unstructured) string {
	text := "being deleted"
	if finalizers := o.GetFinalizers(); len(finalizers) > 0 {
		text += ", held by " + strings.Join(finalizers, ", ")
	}
	if at := o.GetDeletionTimestamp(); at != nil {
		text += " since " + at.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	return text
}

// withReason adds the object's own conditions to a status: an exceeded deadline, replicas that could not be created, a paused
// rollout.
func withReason(o *unstructured.Unstructured, message string) string {
	if paused, _, _ := unstructured.NestedBool(o.Object, "spec", "paused"); paused {
		message += "; its rollout is paused (spec.paused)"
	}
	if c := conditionOf(o, "ReplicaFailure"); c.is("True") {
		return message + ": " + withAdvice(c.text())
	}
	if c := conditionOf(o, "Progressing"); c.reason == "ProgressDeadlineExceeded" && c.message != "" {
		return message + ": " + c.message
	}
	return message
}

func jobHealth(o *unstructured.Unstructured) (entities.ObjectStatus, string) {
	if c := conditionOf(o, "Failed"); c.is("True") {
		return entities.ObjectFailed, "Job failed: " + c.text()
	}
	if conditionOf(o, "Complete").is("True") {
		return entities.ObjectSucceeded, fmt.Sprintf("Job is complete. Succeeded: %d", number(o, 0, "status", "succeeded"))
	}
	if suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend"); suspended {
		return entities.ObjectPending, "Job is suspended (spec.suspend)"
	}
	return entities.ObjectPending, fmt.Sprintf("Job is not complete. Active: %d, succeeded: %d, failed: %d",
		number(o, 0, "status", "active"), number(o, 0, "status", "succeeded"), number(o, 0, "status", "failed"))
}

func podHealth(o *unstructured.Unstructured) (entities.ObjectStatus, string) {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	switch {
	case phase == "Succeeded":
		return entities.ObjectSucceeded, "Pod has completed"
	case phase == "Failed":
		message, _, _ := unstructured.NestedString(o.Object, "status", "message")
		return entities.ObjectFailed, strings.TrimSuffix("Pod failed: "+message, ": ")
	case phase == "Running" && conditionOf(o, "Ready").is("True"):
		return entities.ObjectSucceeded, "Pod is ready"
	case phase == "Running":
		return entities.ObjectPending, "Pod runs and is not ready"
	}
	return entities.ObjectPending, "Pod does not run yet"
}

func apiServiceHealth(o *unstructured.Unstructured) (entities.ObjectStatus, string) {
	c := conditionOf(o, "Available")
	if c.is("True") {
		return entities.ObjectSucceeded, "APIService is available"
	}
	return entities.ObjectPending, strings.TrimSuffix("APIService is not available: "+c.text(), ": ")
}

// staleReady reports a Ready condition that is about an earlier generation of the object.
func staleReady(o *unstructured.Unstructured) string {
	c := conditionOf(o, "Ready")
	if !c.found || c.generation == 0 || c.generation >= o.GetGeneration() {
		return ""
	}
	return fmt.Sprintf("%s generation is %d, but its Ready condition is of generation %d", o.GetKind(), o.GetGeneration(), c.generation)
}

// condition is one of status.conditions.
type condition struct {
	found                           bool
	status, reason, message, change string
	generation                      int64
}

func (c condition) is(status string) bool { return c.found && c.status == status }

// text is "Reason: message", or the part of it that exists.
func (c condition) text() string {
	return strings.TrimSuffix(strings.TrimPrefix(c.reason+": "+c.message, ": "), ": ")
}

// conditionOf finds a condition. It accepts any data, since other writers set the status.
func conditionOf(o *unstructured.Unstructured, kind string) condition {
	in, _ := o.Object["status"].(map[string]any)
	all, _ := in["conditions"].([]any)
	for _, each := range all {
		c, _ := each.(map[string]any)
		if c["type"] != kind {
			continue
		}
		found := condition{found: true}
		found.status, _ = c["status"].(string)
		found.reason, _ = c["reason"].(string)
		found.message, _ = c["message"].(string)
		found.change, _ = c["lastTransitionTime"].(string)
		found.generation, _ = c["observedGeneration"].(int64)
		return found
	}
	return condition{}
}
