package kubernetes

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/entities"
)

// This file evaluates the kinds of well-known controllers (H3) whose statuses kstatus cannot read, or reads too leniently. An object
// that its controller has not seen yet is pending: none of these kinds is healthy without a status.

var (
	kindRollout     = schema.GroupKind{Group: "argoproj.io", Kind: "Rollout"}
	kindApplication = schema.GroupKind{Group: "argoproj.io", Kind: "Application"}
	kindCanary      = schema.GroupKind{Group: "flagger.app", Kind: "Canary"}
)

// judgement is the health of an object.
type judgement struct {
	status    entities.ObjectStatus
	message   string
	suspended string    // where it waits, which distinguishes one wait from the next
	until     time.Time // with suspended: when it continues without a person; zero: only a person continues it
	steerable bool      // promote and abort are supported
}

func pending(format string, args ...any) judgement {
	return judgement{status: entities.ObjectPending, message: fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) judgement {
	return judgement{status: entities.ObjectFailed, message: fmt.Sprintf(format, args...)}
}

func succeeded(format string, args ...any) judgement {
	return judgement{status: entities.ObjectSucceeded, message: fmt.Sprintf(format, args...)}
}

// suspended is the judgement of an object that waits for a person.
func suspended(at, format string, args ...any) judgement {
	return judgement{status: entities.ObjectPending, message: fmt.Sprintf(format, args...), suspended: at}
}

// wellKnown are the kinds with a rule in this file.
var wellKnown = map[schema.GroupKind]func(*unstructured.Unstructured) judgement{
	kindRollout:     rolloutHealth,
	kindApplication: applicationHealth,
	kindCanary:      canaryHealth,
	{Group: "cert-manager.io", Kind: "Certificate"}:               certificateHealth,
	{Group: "cert-manager.io", Kind: "Issuer"}:                    readyHealth,
	{Group: "cert-manager.io", Kind: "ClusterIssuer"}:             readyHealth,
	{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}: fluxHealth,
	{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}:        fluxHealth,
}

// text is a text field of an object, "" if there is none.
func text(o *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

func flag(o *unstructured.Unstructured, path ...string) bool {
	b, _, _ := unstructured.NestedBool(o.Object, path...)
	return b
}

func hasStatus(o *unstructured.Unstructured) bool { return len(nestedMap(o.Object, "status")) > 0 }

// unobserved reports a status that is about an earlier spec. The observed generation may be a number or, in a Rollout, a text.
func unobserved(o *unstructured.Unstructured) string {
	seen, known := int64(0), false
	switch v := nestedMap(o.Object, "status")["observedGeneration"].(type) {
	case int64:
		seen, known = v, true
	case string: // in versions of Argo Rollouts before 0.10 it is a hash
		n, err := strconv.ParseInt(v, 10, 64)
		seen, known = n, err == nil && n <= o.GetGeneration()
	}
	if !known || seen >= o.GetGeneration() {
		return ""
	}
	return fmt.Sprintf("%s generation is %d, but latest observed generation is %d", o.GetKind(), o.GetGeneration(), seen)
}

// rolloutHealth evaluates a Rollout of Argo Rollouts in the same way as its GetRolloutPhase. The controller's phase counts once it
// has seen the spec and, after a promotion by a person, once it has seen that too.
func rolloutHealth(o *unstructured.Unstructured) judgement {
	v := rolloutPhase(o)
	v.steerable = true
	return v
}

func rolloutPhase(o *unstructured.Unstructured) judgement {
	status := nestedMap(o.Object, "status")
	pauses, _ := status["pauseConditions"].([]any)
	message := cmp.Or(text(o, "status", "message"), conditionOf(o, "Progressing").text())
	switch phase := text(o, "status", "phase"); {
	case phase == "":
		return pending("Rollout is not seen by its controller yet")
	case unobserved(o) != "":
		return pending("%s", unobserved(o))
	case flag(o, "status", "controllerPause") && len(pauses) == 0:
		return pending("Rollout continues")
	case phase == "Healthy":
		return succeeded("Rollout is healthy. Replicas: %d", number(o, 0, "status", "replicas"))
	case phase == "Degraded":
		return failed("Rollout is degraded: %s", message)
	case phase == "Paused":
		return rolloutPause(o, pauses)
	default:
		return pending("Rollout is at step %s: %s", stepOf(o), message)
	}
}

// rolloutPause evaluates a paused Rollout: by a step, before a switch, by an inconclusive analysis, or by hand.
func rolloutPause(o *unstructured.Unstructured, pauses []any) judgement {
	if flag(o, "spec", "paused") {
		return suspended("spec.paused", "Rollout was paused by hand (spec.paused)")
	}
	if len(pauses) == 0 {
		return pending("Rollout is paused: %s", text(o, "status", "message"))
	}
	first, _ := pauses[0].(map[string]any)
	reason, _ := first["reason"].(string)
	since, _ := first["startTime"].(string)
	v := suspended(fmt.Sprintf("%s at step %s since %s", reason, stepOf(o), since), "paused at step %s (%s)", stepOf(o), reason)
	if reason == "BlueGreenPause" {
		v = suspended(reason+" since "+since, "the new ReplicaSet is ready and gets no traffic yet (%s)", reason)
	}
	if begun, err := time.Parse(time.RFC3339, since); err == nil {
		if duration := pauseOf(o, reason); duration > 0 {
			v.until = begun.Add(duration).UTC()
			v.message += ", until " + v.until.Format("15:04:05")
		}
	}
	return v
}

// stepOf is the position of a canary: "2 of 5".
func stepOf(o *unstructured.Unstructured) string {
	steps, _ := nestedMap(o.Object, "spec", "strategy", "canary")["steps"].([]any)
	return fmt.Sprintf("%d of %d", min(number(o, 0, "status", "currentStepIndex")+1, len(steps)), len(steps))
}

// pauseOf is the duration of a pause, 0 if only a person ends it.
func pauseOf(o *unstructured.Unstructured, reason string) time.Duration {
	if reason == "BlueGreenPause" {
		return time.Duration(number(o, 0, "spec", "strategy", "blueGreen", "autoPromotionSeconds")) * time.Second
	}
	steps, _ := nestedMap(o.Object, "spec", "strategy", "canary")["steps"].([]any)
	at := number(o, 0, "status", "currentStepIndex")
	if reason != "CanaryPauseStep" || at < 0 || at >= len(steps) {
		return 0
	}
	step, _ := steps[at].(map[string]any)
	switch d := nestedMap(step, "pause")["duration"].(type) {
	case int64:
		return time.Duration(d) * time.Second
	case string:
		if n, err := strconv.Atoi(d); err == nil {
			return time.Duration(n) * time.Second
		}
		duration, _ := time.ParseDuration(d)
		return duration
	}
	return 0
}

// canaryHealth evaluates a Canary of Flagger by its phase. Flagger does not say to which spec a phase belongs: a Canary that was
// finished before a release still reports that until Flagger has seen the change.
func canaryHealth(o *unstructured.Unstructured) judgement {
	message := conditionOf(o, "Promoted").message
	switch phase := text(o, "status", "phase"); phase {
	case "":
		return pending("Canary is not seen by Flagger yet")
	case "Initialized", "Succeeded":
		return succeeded("Canary is %s", phase)
	case "Failed":
		return failed("Canary failed: %s", cmp.Or(message, "Flagger rolled it back"))
	case "Waiting":
		return suspended(phase+" since "+text(o, "status", "lastTransitionTime"), "Canary waits for its gate before it starts: "+canaryGate, "confirm-rollout")
	case "WaitingPromotion":
		return suspended(phase+" since "+text(o, "status", "lastTransitionTime"), "Canary waits for its gate before promotion: "+canaryGate, "confirm-promotion")
	default:
		return pending("Canary is %s, weight %d, %d failed checks%s", phase, number(o, 0, "status", "canaryWeight"),
			number(o, 0, "status", "failedChecks"), entities.Because(message))
	}
}

// canaryGate is the advice to continue a Canary: Flagger has no API for that.
const canaryGate = "open it at the server of its webhook %s, or set spec.skipAnalysis: true, which promotes without analysis; to roll back, release the previous version"

// certificateHealth evaluates a certificate. A valid one succeeds during its renewal. One whose issuance failed has failed, though
// cert-manager retries after an hour or more.
func certificateHealth(o *unstructured.Unstructured) judgement {
	issuing := conditionOf(o, "Issuing")
	fresh := issuing.generation == 0 || issuing.generation >= o.GetGeneration()
	switch v := readyHealth(o); {
	case v.status == entities.ObjectSucceeded:
		return v
	case issuing.is("False") && issuing.reason == "Failed" && fresh:
		return failed("Certificate was not issued: %s", issuing.message)
	case issuing.is("True") && fresh:
		return pending("Certificate is being issued: %s", issuing.message)
	default:
		return v
	}
}

// readyHealth evaluates the Ready condition of the current generation, and waits for it.
func readyHealth(o *unstructured.Unstructured) judgement {
	c := conditionOf(o, "Ready")
	switch {
	case !c.found:
		return pending("%s is not seen by its controller yet", o.GetKind())
	case unobserved(o) != "":
		return pending("%s", unobserved(o))
	case staleReady(o) != "":
		return pending("%s", staleReady(o))
	case c.is("True"):
		return succeeded("%s is ready", o.GetKind())
	}
	return pending("%s is not ready: %s", o.GetKind(), c.text())
}

// fluxPendingReasons are the reasons for which Flux has not started yet: its dependencies may still come.
var fluxPendingReasons = []string{"DependencyNotReady", "ArtifactFailed", "SourceNotReady", "Progressing", "ProgressingWithRetry", "Unknown"}

// fluxHealth evaluates a Kustomization or a HelmRelease. Flux retries a failure after minutes or hours: for a release it has failed.
func fluxHealth(o *unstructured.Unstructured) judgement {
	if flag(o, "spec", "suspend") {
		return suspended("spec.suspend", "%s is suspended (spec.suspend): flux resume %s %s", o.GetKind(), strings.ToLower(o.GetKind()), o.GetName())
	}
	v, ready := readyHealth(o), conditionOf(o, "Ready")
	stalled, remedied := conditionOf(o, "Stalled"), conditionOf(o, "Remediated")
	switch {
	case v.status == entities.ObjectSucceeded || !ready.found || unobserved(o) != "" || staleReady(o) != "":
		return v
	case stalled.is("True"):
		return failed("%s is stalled: %s", o.GetKind(), stalled.text())
	case conditionOf(o, "Reconciling").is("True"):
		return pending("%s is reconciled: %s", o.GetKind(), ready.text())
	case remedied.is("True"):
		return failed("%s was rolled back by Flux: %s", o.GetKind(), ready.text())
	case ready.is("False") && !slices.Contains(fluxPendingReasons, ready.reason):
		return failed("%s failed: %s", o.GetKind(), ready.text())
	}
	return v
}

// applicationHealth evaluates an Application of Argo CD. It succeeds when Argo CD has compared with the declared sources, their
// objects are applied, and they are healthy.
func applicationHealth(o *unstructured.Unstructured) judgement {
	health, sync := text(o, "status", "health", "status"), text(o, "status", "sync", "status")
	message := text(o, "status", "health", "message")
	operation := text(o, "status", "operationState", "phase")
	switch {
	case !hasStatus(o) || sync == "":
		return pending("Application is not seen by Argo CD yet")
	case !comparedTo(o):
		return pending("Application was last compared with other sources than the declared ones")
	case operation == "Running" || operation == "Terminating":
		return pending("Application is being synced: %s", text(o, "status", "operationState", "message"))
	case sync != "Synced" && (operation == "Failed" || operation == "Error") && operatedOnCurrent(o):
		return failed("Application was not synced: %s", text(o, "status", "operationState", "message"))
	case health == "Degraded":
		return failed("Application is degraded%s", entities.Because(message))
	case health == "Suspended":
		return suspended("health Suspended", "Application is suspended%s: something in it waits for a person (argocd app actions run)", entities.Because(message))
	case sync == "Synced" && health == "Healthy":
		return succeeded("Application is synced and healthy")
	}
	return pending("Application is %s and %s%s", cmp.Or(sync, "Unknown"), cmp.Or(health, "Unknown"), entities.Because(message))
}

// comparedTo reports whether the last comparison of Argo CD used the declared sources. A generation cannot tell that: each status
// update increases the object's generation.
func comparedTo(o *unstructured.Unstructured) bool {
	compared := nestedMap(o.Object, "status", "sync", "comparedTo")
	if compared == nil {
		return true // a version of Argo CD that does not report it
	}
	sources := func(in map[string]any) (all []string) {
		list, _ := in["sources"].([]any)
		if one := nestedMap(in, "source"); one != nil {
			list = append(list, one)
		}
		for _, each := range list {
			of, _ := each.(map[string]any)
			all = append(all, fmt.Sprint(of["repoURL"], of["path"], of["chart"], of["targetRevision"]))
		}
		return all
	}
	return slices.Equal(sources(nestedMap(o.Object, "spec")), sources(compared))
}

// operatedOnCurrent reports whether the last operation used the revision of the current comparison.
func operatedOnCurrent(o *unstructured.Unstructured) bool {
	revision := cmp.Or(text(o, "status", "operationState", "syncResult", "revision"), text(o, "status", "operationState", "operation", "sync", "revision"))
	return revision == "" || revision == text(o, "status", "sync", "revision")
}
