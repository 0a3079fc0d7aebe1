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

// This file judges the kinds of well-known controllers (H3), whose statuses kstatus cannot read, or reads too kindly. What their
// controllers have not seen yet is pending: none of these kinds is well without a status.

var (
	kindRollout     = schema.GroupKind{Group: "argoproj.io", Kind: "Rollout"}
	kindApplication = schema.GroupKind{Group: "argoproj.io", Kind: "Application"}
	kindCanary      = schema.GroupKind{Group: "flagger.app", Kind: "Canary"}
)

// judgement is how an object is.
type judgement struct {
	status    entities.ObjectStatus
	message   string
	suspended string    // at what it waits, which tells one wait from the next
	until     time.Time // with suspended: when it goes on by itself; zero: when a person says so
	steerable bool      // promote and abort are carried out
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

// suspended is what waits at something for a person.
func suspended(at, format string, args ...any) judgement {
	return judgement{status: entities.ObjectPending, message: fmt.Sprintf(format, args...), suspended: at}
}

// wellKnown are the kinds that are judged here.
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

// text is a field of an object, "" where there is none.
func text(o *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

func flag(o *unstructured.Unstructured, path ...string) bool {
	b, _, _ := unstructured.NestedBool(o.Object, path...)
	return b
}

func hasStatus(o *unstructured.Unstructured) bool { return len(inside(o.Object, "status")) > 0 }

// unobserved says that a status is about an earlier spec, whether its generation is a number or, as that of a Rollout, a text.
func unobserved(o *unstructured.Unstructured) string {
	seen, known := int64(0), false
	switch v := inside(o.Object, "status")["observedGeneration"].(type) {
	case int64:
		seen, known = v, true
	case string: // Argo Rollouts before 0.10 had a hash there
		n, err := strconv.ParseInt(v, 10, 64)
		seen, known = n, err == nil && n <= o.GetGeneration()
	}
	if !known || seen >= o.GetGeneration() {
		return ""
	}
	return fmt.Sprintf("%s generation is %d, but latest observed generation is %d", o.GetKind(), o.GetGeneration(), seen)
}

// rolloutHealth judges a Rollout of Argo Rollouts as its own GetRolloutPhase does: its controller says a phase, which counts once it
// has seen the spec, and, of a rollout that somebody let go on, that too.
func rolloutHealth(o *unstructured.Unstructured) judgement {
	v := rolloutPhase(o)
	v.steerable = true
	return v
}

func rolloutPhase(o *unstructured.Unstructured) judgement {
	status := inside(o.Object, "status")
	pauses, _ := status["pauseConditions"].([]any)
	said := cmp.Or(text(o, "status", "message"), conditionOf(o, "Progressing").text())
	switch phase := text(o, "status", "phase"); {
	case phase == "":
		return pending("Rollout is not seen by its controller yet")
	case unobserved(o) != "":
		return pending("%s", unobserved(o))
	case flag(o, "status", "controllerPause") && len(pauses) == 0:
		return pending("Rollout goes on")
	case phase == "Healthy":
		return succeeded("Rollout is healthy. Replicas: %d", number(o, 0, "status", "replicas"))
	case phase == "Degraded":
		return failed("Rollout is degraded: %s", said)
	case phase == "Paused":
		return rolloutPause(o, pauses)
	default:
		return pending("Rollout is at step %s: %s", stepOf(o), said)
	}
}

// rolloutPause is a Rollout that stands still: by a step, before a switch, by an analysis that found nothing out, or by hand.
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
		if lasts := pauseOf(o, reason); lasts > 0 {
			v.until = begun.Add(lasts).UTC()
			v.message += ", until " + v.until.Format("15:04:05")
		}
	}
	return v
}

// stepOf is "2 of 5": where a canary is.
func stepOf(o *unstructured.Unstructured) string {
	steps, _ := inside(o.Object, "spec", "strategy", "canary")["steps"].([]any)
	return fmt.Sprintf("%d of %d", min(number(o, 0, "status", "currentStepIndex")+1, len(steps)), len(steps))
}

// pauseOf is how long a pause lasts that ends by itself, 0 of one that a person ends.
func pauseOf(o *unstructured.Unstructured, reason string) time.Duration {
	if reason == "BlueGreenPause" {
		return time.Duration(number(o, 0, "spec", "strategy", "blueGreen", "autoPromotionSeconds")) * time.Second
	}
	steps, _ := inside(o.Object, "spec", "strategy", "canary")["steps"].([]any)
	at := number(o, 0, "status", "currentStepIndex")
	if reason != "CanaryPauseStep" || at < 0 || at >= len(steps) {
		return 0
	}
	step, _ := steps[at].(map[string]any)
	switch d := inside(step, "pause")["duration"].(type) {
	case int64:
		return time.Duration(d) * time.Second
	case string:
		if n, err := strconv.Atoi(d); err == nil {
			return time.Duration(n) * time.Second
		}
		lasts, _ := time.ParseDuration(d)
		return lasts
	}
	return 0
}

// canaryHealth judges a Canary of Flagger by its phase. Flagger does not say which spec a phase is about: what was at rest before a
// release is at rest until it has noticed the change.
func canaryHealth(o *unstructured.Unstructured) judgement {
	said := conditionOf(o, "Promoted").message
	switch phase := text(o, "status", "phase"); phase {
	case "":
		return pending("Canary is not seen by Flagger yet")
	case "Initialized", "Succeeded":
		return succeeded("Canary is %s", phase)
	case "Failed":
		return failed("Canary failed: %s", cmp.Or(said, "Flagger took it back"))
	case "Waiting":
		return suspended(phase+" since "+text(o, "status", "lastTransitionTime"), "Canary waits for its gate before it begins: "+canaryGate, "confirm-rollout")
	case "WaitingPromotion":
		return suspended(phase+" since "+text(o, "status", "lastTransitionTime"), "Canary waits for its gate before promotion: "+canaryGate, "confirm-promotion")
	default:
		return pending("Canary is %s, weight %d, %d failed checks%s", phase, number(o, 0, "status", "canaryWeight"),
			number(o, 0, "status", "failedChecks"), entities.Because(said))
	}
}

// canaryGate says who lets a Canary go on: Flagger has no call for that.
const canaryGate = "open it where its webhook %s is answered, or set spec.skipAnalysis: true, which promotes without analysis; to take it back, release the version before"

// certificateHealth: a certificate that is valid counts while it is renewed. One whose issuance failed has failed, though cert-manager
// tries again after an hour or more.
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

// readyHealth goes by the Ready condition of the present generation, and waits for it.
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

// fluxWaits are the reasons for which Flux has not begun: what it waits for may come.
var fluxWaits = []string{"DependencyNotReady", "ArtifactFailed", "SourceNotReady", "Progressing", "ProgressingWithRetry", "Unknown"}

// fluxHealth judges a Kustomization or a HelmRelease. Flux tries again what failed, after minutes or hours: a release has failed.
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
		return failed("%s was taken back by Flux: %s", o.GetKind(), ready.text())
	case ready.is("False") && !slices.Contains(fluxWaits, ready.reason):
		return failed("%s failed: %s", o.GetKind(), ready.text())
	}
	return v
}

// applicationHealth judges an Application of Argo CD: it has compared with the sources that are declared now, what it compared is
// there, and that is healthy.
func applicationHealth(o *unstructured.Unstructured) judgement {
	health, sync := text(o, "status", "health", "status"), text(o, "status", "sync", "status")
	said := text(o, "status", "health", "message")
	operation := text(o, "status", "operationState", "phase")
	switch {
	case !hasStatus(o) || sync == "":
		return pending("Application is not seen by Argo CD yet")
	case !comparedTo(o):
		return pending("Application was compared with other sources than those that are declared now")
	case operation == "Running" || operation == "Terminating":
		return pending("Application is being synced: %s", text(o, "status", "operationState", "message"))
	case sync != "Synced" && (operation == "Failed" || operation == "Error") && operatedOn(o):
		return failed("Application was not synced: %s", text(o, "status", "operationState", "message"))
	case health == "Degraded":
		return failed("Application is degraded%s", entities.Because(said))
	case health == "Suspended":
		return suspended("health Suspended", "Application is suspended%s: something in it waits for a person (argocd app actions run)", entities.Because(said))
	case sync == "Synced" && health == "Healthy":
		return succeeded("Application is synced and healthy")
	}
	return pending("Application is %s and %s%s", cmp.Or(sync, "Unknown"), cmp.Or(health, "Unknown"), entities.Because(said))
}

// comparedTo tells whether what Argo CD compared last is what is declared. It has no generation: a status counts up the object's.
func comparedTo(o *unstructured.Unstructured) bool {
	compared := inside(o.Object, "status", "sync", "comparedTo")
	if compared == nil {
		return true // an Argo CD that does not say
	}
	sources := func(in map[string]any) (all []string) {
		list, _ := in["sources"].([]any)
		if one := inside(in, "source"); one != nil {
			list = append(list, one)
		}
		for _, each := range list {
			of, _ := each.(map[string]any)
			all = append(all, fmt.Sprint(of["repoURL"], of["path"], of["chart"], of["targetRevision"]))
		}
		return all
	}
	return slices.Equal(sources(inside(o.Object, "spec")), sources(compared))
}

// operatedOn tells whether the last operation was on the revision that is compared with now.
func operatedOn(o *unstructured.Unstructured) bool {
	on := cmp.Or(text(o, "status", "operationState", "syncResult", "revision"), text(o, "status", "operationState", "operation", "sync", "revision"))
	return on == "" || on == text(o, "status", "sync", "revision")
}
