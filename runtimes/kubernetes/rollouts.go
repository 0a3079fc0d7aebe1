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
func (r *Runtime) Steer(ctx context.Context, in runtimes.Instance, s runtimes.Steer) ([]string, error) {
	a, err := r.begin(ctx, in)
	if err != nil {
		return nil, err
	}
	var did []string
	var failures []error
	for _, d := range a.objects {
		if d.GroupVersionKind().GroupKind() != kindRollout {
			continue
		}
		done, err := a.steer(ctx, d, s)
		if err != nil {
			failures = append(failures, err)
		} else if done != "" {
			did = append(did, done)
		}
	}
	switch {
	case len(failures) > 0:
		return did, errors.Join(failures...)
	case len(did) == 0:
		return nil, errors.New("no Rollout waits at that step: it has continued, or has another version")
	}
	return did, nil
}

// steer promotes or aborts one Rollout; "" if it no longer waits.
func (a *apply) steer(ctx context.Context, d declared, s runtimes.Steer) (string, error) {
	doing := "promote " + idOf(d.Unstructured).String()
	if s.Abort {
		doing = "abort " + idOf(d.Unstructured).String()
	}
	at, err := a.cluster.resource(ctx, d.GroupVersionKind())
	if err != nil {
		return "", explain(ctx, doing, err)
	}
	client := a.clients.at(at, d.GetNamespace())
	live, err := client.Get(ctx, d.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", explain(ctx, doing, err)
	}
	owner, _ := ownerOf(live.GetLabels())
	if owner != a.owner || versionIn(live) != versionIn(d.Unstructured) || a.anothers(ctx, live) != nil {
		return "", nil
	}
	of := steps(live, s)
	for _, p := range of {
		if err := p.send(ctx, client.Patch, live); err != nil {
			return "", explain(ctx, doing, err)
		}
	}
	if len(of) == 0 {
		return "", nil
	}
	return fmt.Sprintf("%s/%s %s", live.GetKind(), live.GetName(), of[0].says), nil
}

// patch is one patch of a promotion or an abort.
type patch struct {
	says        string
	subresource []string
	fields      map[string]any
}

// steps are the necessary patches of a Rollout. There are none if it does not wait, or has already gone back.
func steps(o *unstructured.Unstructured, s runtimes.Steer) (all []patch) {
	status := func(says string, fields map[string]any) patch {
		return patch{says: says, subresource: []string{"status"}, fields: map[string]any{"status": fields}}
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
	switch pauses := inside(o.Object, "status")["pauseConditions"]; {
	case s.Full && text(o, "status", "currentPodHash") != text(o, "status", "stableRS"):
		all = append(all, status("skips all remaining steps", map[string]any{"promoteFull": true}))
	case inconclusive(o):
		next := number(o, 0, "status", "currentStepIndex") + min(1, left(o))
		all = append(all, status("continues despite the analysis", map[string]any{"pauseConditions": nil, "controllerPause": false, "currentStepIndex": next}))
	case pauses != nil:
		all = append(all, status("continues after "+now.suspended, map[string]any{"pauseConditions": nil}))
	}
	if flag(o, "spec", "paused") {
		all = append(all, patch{says: "continues after a manual pause", fields: map[string]any{"spec": map[string]any{"paused": false}}})
	}
	return all
}

// left counts the steps from the current one on.
func left(o *unstructured.Unstructured) int {
	all, _ := inside(o.Object, "spec", "strategy", "canary")["steps"].([]any)
	return max(0, len(all)-number(o, 0, "status", "currentStepIndex"))
}

// inconclusive: an analysis step has no conclusion, and holds the Rollout until a person decides.
func inconclusive(o *unstructured.Unstructured) bool {
	return text(o, "status", "canary", "currentStepAnalysisRunStatus", "status") == "Inconclusive" && flag(o, "status", "controllerPause")
}

type patching func(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*unstructured.Unstructured, error)

// send patches the Rollout as it was last read.
func (p patch) send(ctx context.Context, to patching, live *unstructured.Unstructured) error {
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
