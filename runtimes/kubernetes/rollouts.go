package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/runtimes"
)

var _ runtimes.Steerer = (*Runtime)(nil)

// Steer implements runtimes.Steerer for the Rollouts of Argo Rollouts, by the same patches as `kubectl argo rollouts promote` and
// `abort`. They change the status, which is no drift. Each patch requires the Rollout as it was read, so it fails if the Rollout has
// continued since.
func (r *Runtime) Steer(ctx context.Context, in runtimes.Request, s runtimes.Steer) ([]string, error) {
	a, err := r.newApply(ctx, in)
	if err != nil {
		return nil, err
	}
	var results []string
	var failures []error
	for _, d := range a.objects {
		if d.GroupVersionKind().GroupKind() != kindRollout {
			continue
		}
		done, err := a.steer(ctx, d, s)
		if err != nil {
			failures = append(failures, err)
		} else if done != "" {
			results = append(results, done)
		}
	}
	switch {
	case len(failures) > 0:
		return results, errors.Join(failures...)
	case len(results) == 0:
		return nil, errors.New("no Rollout waits at that step: it has continued, or has another version")
	}
	return results, nil
}

// steer promotes or aborts one Rollout; "" if it no longer waits.
func (a *apply) steer(ctx context.Context, d declared, s runtimes.Steer) (string, error) {
	action := "promote " + idOf(d.Unstructured).String()
	if s.Abort {
		action = "abort " + idOf(d.Unstructured).String()
	}
	at, err := a.cluster.resource(ctx, d.GroupVersionKind())
	if err != nil {
		return "", explain(ctx, action, err)
	}
	client := a.clients.resourceClient(at, d.GetNamespace())
	live, err := client.Get(ctx, d.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", explain(ctx, action, err)
	}
	owner, _ := ownerOf(live.GetLabels())
	if owner != a.owner || versionIn(live) != versionIn(d.Unstructured) || a.otherInventoryOf(ctx, live) != nil {
		return "", nil
	}
	patches := rolloutPatches(live, s)
	for _, p := range patches {
		if err := p.send(ctx, client.Patch, live); err != nil {
			return "", explain(ctx, action, err)
		}
	}
	if len(patches) == 0 {
		return "", nil
	}
	return fmt.Sprintf("%s/%s %s", live.GetKind(), live.GetName(), patches[0].result), nil
}

// patch is one patch of a promotion or an abort.
type patch struct {
	result      string
	subresource []string
	fields      map[string]any
}

// rolloutPatches are the necessary patches of a Rollout. There are none if it does not wait, or has already rolled back.
func rolloutPatches(o *unstructured.Unstructured, s runtimes.Steer) (all []patch) {
	status := func(result string, fields map[string]any) patch {
		return patch{result: result, subresource: []string{"status"}, fields: map[string]any{"status": fields}}
	}
	if s.Abort {
		if flag(o, "status", "abort") || text(o, "status", "phase") == "Healthy" && unobserved(o) == "" {
			return nil
		}
		return []patch{status("is aborted", map[string]any{"abort": true})}
	}
	now := rolloutPhase(o)
	if now.suspended == "" || now.suspended != s.At {
		return nil
	}
	switch pauses := nestedMap(o.Object, "status")["pauseConditions"]; {
	case s.Full && text(o, "status", "currentPodHash") != text(o, "status", "stableRS"):
		all = append(all, status("skips all remaining steps", map[string]any{"promoteFull": true}))
	case isInconclusive(o):
		next := number(o, 0, "status", "currentStepIndex") + min(1, stepsLeft(o))
		all = append(all, status("continues despite the analysis", map[string]any{"pauseConditions": nil, "controllerPause": false, "currentStepIndex": next}))
	case pauses != nil:
		all = append(all, status("continues after "+now.suspended, map[string]any{"pauseConditions": nil}))
	}
	if flag(o, "spec", "paused") {
		all = append(all, patch{result: "continues after a manual pause", fields: map[string]any{"spec": map[string]any{"paused": false}}})
	}
	return all
}

// stepsLeft counts the steps from the current one on.
func stepsLeft(o *unstructured.Unstructured) int {
	all, _ := nestedMap(o.Object, "spec", "strategy", "canary")["steps"].([]any)
	return max(0, len(all)-number(o, 0, "status", "currentStepIndex"))
}

// isInconclusive: an analysis step has no conclusion, and holds the Rollout until a person decides.
func isInconclusive(o *unstructured.Unstructured) bool {
	return text(o, "status", "canary", "currentStepAnalysisRunStatus", "status") == "Inconclusive" && flag(o, "status", "controllerPause")
}

type patchFunc func(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*unstructured.Unstructured, error)

// send patches the Rollout as it was last read.
func (p patch) send(ctx context.Context, to patchFunc, live *unstructured.Unstructured) error {
	p.fields["metadata"] = map[string]any{"resourceVersion": live.GetResourceVersion()}
	data, err := json.Marshal(p.fields)
	if err != nil {
		return err
	}
	patched, err := to(ctx, live.GetName(), types.MergePatchType, data, metav1.PatchOptions{FieldManager: FieldManager + "-steer"}, p.subresource...)
	if err == nil {
		live.SetResourceVersion(patched.GetResourceVersion())
	}
	return err
}
