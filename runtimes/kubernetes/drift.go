package kubernetes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

const (
	// maxVerdicts limits the cache, in objects; it holds twice as many at most.
	maxVerdicts = 50_000
	// refusalTTL is how long a refusal is cached: its cause (a permission, a webhook) can change without a change of the object.
	refusalTTL     = 5 * time.Minute
	maxDriftFields = 3 // fields named in a message
)

// verdict is whether an object differs from its declaration.
type verdict struct {
	resourceVersion string   // the last resource version with this content
	content         [32]byte // of the object, without the fields that the server and controllers set
	digest          string   // of the declaration
	drift           string   // the fields that differ; empty: none
	refused         string   // the server refuses the declaration, and why: the drift is then that of declared fields
	foreign         []foreign
	until           time.Time
}

// verdicts is a cache by the uid of the object, so that an observation without changes makes no requests. The zero value is ready.
// The oldest entries are removed in bulk.
type verdicts struct {
	mu            sync.Mutex
	recent, older map[types.UID]verdict
}

func (v *verdicts) get(uid types.UID) (verdict, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if known, ok := v.recent[uid]; ok {
		return known, true
	}
	known, ok := v.older[uid]
	if ok {
		v.putLocked(uid, known)
	}
	return known, ok
}

func (v *verdicts) add(uid types.UID, known verdict) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.putLocked(uid, known)
}

func (v *verdicts) putLocked(uid types.UID, known verdict) {
	if v.recent == nil || len(v.recent) >= maxVerdicts {
		v.older, v.recent = v.recent, map[types.UID]verdict{}
	}
	v.recent[uid] = known
}

// markDrift marks the version of an object that has its target version but differs from its declaration.
func (ob *observation) markDrift(ctx context.Context, object *entities.Object, live *unstructured.Unstructured, d declared) error {
	if ob.in.FullVersion == "" || versionIn(live) != ob.in.FullVersion || live.GetDeletionTimestamp() != nil {
		return nil
	}
	found, err := ob.verdict(ctx, live, d)
	if err != nil {
		return err
	}
	if found.refused != "" && found.drift == "" {
		object.Message = joinTexts(problemOf(object), found.refused)
	}
	object.Foreign = foreignTexts(found.foreign)
	if found.drift == "" && ob.in.Payload.Kubernetes.RemoveForeign && len(found.foreign) > 0 {
		found.drift = "others added " + strings.Join(object.Foreign, ", ")
	}
	if found.drift == "" {
		object.AsDeclared = found.refused == "" && object.Status != entities.ObjectSucceeded
		return nil
	}
	object.Message = joinTexts(found.drift, problemOf(object)) // the cause first
	ob.markVersionDrifted(object.Versions)
	return nil
}

// markVersionDrifted marks the observed version among those of an object, or the first if its pods do not exist yet.
func (ob *observation) markVersionDrifted(versions []entities.ObjectVersion) {
	marked := 0
	for i := range versions {
		if versions[i].Version == ob.in.FullVersion {
			versions[i].Drifted = true
			marked++
		}
	}
	if marked == 0 && len(versions) > 0 {
		versions[0].Drifted = true
	}
}

// problemOf returns the message of an object, or "" if it is healthy.
func problemOf(object *entities.Object) string {
	if object.Status == entities.ObjectSucceeded {
		return ""
	}
	return object.Message
}

func joinTexts(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), "; ")
}

// verdict compares an object with its declaration, or returns the cached result.
func (ob *observation) verdict(ctx context.Context, live *unstructured.Unstructured, d declared) (verdict, error) {
	known, found := ob.verdicts.get(live.GetUID())
	usable := found && known.digest == d.digest && (known.refused == "" || ob.now().Before(known.until))
	if usable && known.resourceVersion == live.GetResourceVersion() {
		return known, nil
	}
	content := contentOf(live, d)
	if !usable || known.content != content {
		var err error
		var compared *unstructured.Unstructured
		if known, compared, err = ob.compareByDryRun(ctx, live, d); err != nil {
			return known, err
		}
		live, content, known.digest = compared, contentOf(compared, d), d.digest
	}
	known.resourceVersion, known.content = live.GetResourceVersion(), content
	ob.verdicts.add(live.GetUID(), known)
	return known, nil
}

// cacheAsDeclared caches the result of an apply: the object is as declared, so the next observation need not ask.
func (r *Runtime) cacheAsDeclared(applied *unstructured.Unstructured, d declared) {
	r.verdicts.add(applied.GetUID(), verdict{
		resourceVersion: applied.GetResourceVersion(), content: contentOf(applied, d), digest: d.digest, foreign: foreignIn(applied, d),
	})
}

// contentOf is a hash of the parts of an object that an apply of a declaration could change.
func contentOf(o *unstructured.Unstructured, d declared) [32]byte {
	text, err := json.Marshal(withoutPaths(declarable(o), d.omittedPaths(o)))
	if err != nil {
		return [32]byte{} // it came as JSON
	}
	return sha256.Sum256(text)
}

// compareByDryRun compares the result of a dry run of the declaration with the object. The watched object may be older than the one
// that the server compared with. So a difference counts only if the server's own object, read for this purpose, has it too. The
// returned object is the one that the verdict is about.
func (ob *observation) compareByDryRun(ctx context.Context, live *unstructured.Unstructured, d declared) (verdict, *unstructured.Unstructured, error) {
	action := fmt.Sprintf("compare %s %s with its declaration", d.GetKind(), d.GetName())
	r, err := ob.cluster.resource(ctx, d.GroupVersionKind())
	if err != nil {
		return verdict{}, live, readingError(action, err)
	}
	clients, err := ob.clientsFor(ctx, ob.in)
	if err != nil {
		return verdict{}, live, readingError(action, err)
	}
	at := clients.resourceClient(r, d.GetNamespace())
	for range 3 {
		sent, err := ob.dryRunObject(ctx, at, live, d)
		if err != nil {
			return verdict{}, live, readingError(action, err)
		}
		applied, err := at.Apply(ctx, d.GetName(), sent.Unstructured, metav1.ApplyOptions{
			FieldManager: FieldManager, Force: true, DryRun: []string{metav1.DryRunAll},
		})
		if apierrors.IsNotFound(err) { // the watch will show it in a moment
			return verdict{refused: "drift is unknown: " + err.Error(), until: ob.now()}, live, nil
		}
		if isRefusal(err) {
			return ob.compareRefused(ctx, at, sent, err)
		}
		if err != nil {
			return verdict{}, live, readingError(action, err)
		}
		found := dropDifferences(differences(live, applied), d.omittedPaths(live))
		if len(found) == 0 {
			return verdict{foreign: foreignIn(applied, d)}, live, nil
		}
		if d.scaler == "" && includesReplicas(found) {
			if d.scaler, _ = ob.findScaler(ctx, clients, d); d.scaler != "" {
				continue // the autoscaler has not written yet
			}
		}
		fresh, err := at.Get(ctx, d.GetName(), metav1.GetOptions{})
		if err != nil {
			return verdict{}, live, readingError(action, err)
		}
		if contentOf(fresh, d) == contentOf(live, d) {
			return verdict{drift: describeDrift(found, fresh), foreign: foreignIn(applied, d)}, live, nil
		}
		live = fresh
	}
	return verdict{}, live, &entities.ReadingError{Code: runtimes.CodeFetchFailed, Message: action + ": it changes faster than it can be read"}
}

// compareRefused compares the server's own object with a declaration whose dry run is refused.
func (ob *observation) compareRefused(ctx context.Context, at dynamic.ResourceInterface, d declared, refusal error) (verdict, *unstructured.Unstructured, error) {
	action := fmt.Sprintf("compare %s %s with its declaration", d.GetKind(), d.GetName())
	known := verdict{
		refused: "no declared field was changed by others, but the server refuses the declaration: " + refusal.Error(), until: ob.now().Add(refusalTTL),
	}
	fresh, err := at.Get(ctx, d.GetName(), metav1.GetOptions{})
	if err != nil {
		return known, nil, readingError(action, err)
	}
	found, err := refusedDrift(fresh, d)
	if err != nil {
		return known, nil, readingError(action, err)
	}
	known.drift, known.foreign = describeDrift(found, fresh), foreignIn(fresh, d)
	return known, fresh, nil
}

// dryRunObject is the declaration for the dry run: without the fields that others own in the live object.
func (ob *observation) dryRunObject(ctx context.Context, at dynamic.ResourceInterface, live *unstructured.Unstructured, d declared) (declared, error) {
	if d.watchedCopySuffices() {
		return d.withoutOthersFields(live)
	}
	complete, err := at.Get(ctx, d.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return d, nil
	}
	if err != nil {
		return d, err
	}
	return d.withoutOthersFields(complete)
}

// isRefusal reports whether the server answered and refused the object, for any caller and at any time.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}

// describeDrift is "spec.replicas 5, declared 2 (written by kubectl); …".
func describeDrift(found []difference, fresh *unstructured.Unstructured) string {
	var all []string
	for _, d := range found[:min(len(found), maxDriftFields)] {
		text := fmt.Sprintf("%s %s, declared %s", d.Path, d.Old, cmp.Or(d.New, "absent"))
		if d.Old == "" {
			text = fmt.Sprintf("%s is missing, declared %s", d.Path, d.New)
		}
		if writer := lastWriter(fresh, d.at); writer != "" {
			text += " (written by " + writer + ")"
		}
		all = append(all, text)
	}
	if more := len(found) - maxDriftFields; more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}
