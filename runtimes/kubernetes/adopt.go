package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/converge-engine/converge/runtimes"
)

// Adoption makes the fields that another tool declared of an object ours. Converge first moves the tool's fields in managedFields to
// its own name. The apply that follows then removes those that are not declared here, as the tool would have done. This happens
// once: the consent is applied with the object, and a consent that is already on the live object has no further effect.

// declarers are the field managers of common declarative tools. The consent of an object can name more.
var declarers = []string{
	"kubectl-client-side-apply", "kubectl", "kubectl-create", "kubectl-replace", "kubectl-last-applied", "before-first-apply",
	"helm", "Helm",
	"argocd-controller", "argocd-application-controller",
	"kustomize-controller", "helm-controller", "flux-client-side-apply", "flux",
}

// consentOf is the consent of an object to be adopted: "true", or names of further field managers, separated by commas. A changed
// value is a new consent. Empty: none.
func consentOf(o *unstructured.Unstructured) string {
	if text := o.GetAnnotations()[AnnotationAdopt]; text != "false" {
		return text
	}
	return ""
}

// hasNewConsent reports whether an object may be adopted now: it has a consent, and did not have the same one at the last apply.
func (a *apply) hasNewConsent(t *trial, live *unstructured.Unstructured) bool {
	if isInventory(t.Unstructured, a.owner) {
		return a.adopt
	}
	consent := consentOf(t.Unstructured)
	return consent != "" && (!a.isOwned(live) || consentOf(live) != consent)
}

// adoption is what an adoption takes over.
type adoption struct {
	managers []string // whose fields Converge takes over, by name
	removed  int      // number of their fields that are removed, since they are not declared here
}

// planAdoption finds out what an adoption takes over. dry is the object after the apply alone.
func (a *apply) planAdoption(ctx context.Context, t *trial, dry *unstructured.Unstructured) *trial {
	if t.live == nil || t.outcome != changed && t.outcome != unchanged && t.outcome != dryRunUnsupported || !a.hasNewConsent(t, t.live) {
		return t
	}
	t.adoption = &adoption{}
	taken, kept := &fieldpath.Set{}, &fieldpath.Set{}
	for _, entry := range t.live.GetManagedFields() {
		switch {
		case isDeclarer(entry, t.Unstructured):
			t.adoption.managers = append(t.adoption.managers, entry.Manager)
			taken = taken.Union(setOf(entry))
		case entry.Manager != FieldManager || entry.Operation != metav1.ManagedFieldsOperationApply:
			kept = kept.Union(setOf(entry))
		}
	}
	slices.Sort(t.adoption.managers)
	t.adoption.managers = slices.Compact(t.adoption.managers)
	if t.outcome == dryRunUnsupported || len(t.takenOut) > 0 { // no dry run shows the managedFields after the apply
		return t
	}
	t.outcome = changed // the consent at least: it has an effect once
	if err := a.tryWithout(ctx, t, dry, taken, kept); err != nil {
		return t.refuse(err)
	}
	return t
}

// tryWithout tries an object in its state after apply and adoption: without the fields that were taken from others and are not
// declared here. No single dry run covers both steps, so it tries a patch.
func (a *apply) tryWithout(ctx context.Context, t *trial, dry *unstructured.Unstructured, taken, kept *fieldpath.Set) error {
	for _, entry := range dry.GetManagedFields() {
		if entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply {
			kept = kept.Union(setOf(entry))
		}
	}
	removed := onlyIn(taken, kept)
	if len(removed) == 0 {
		return nil
	}
	after := dry.DeepCopy()
	for _, p := range removed {
		removePath(after.Object, p)
	}
	patch, err := replacePatch(t.live, after)
	if err != nil {
		return runtimes.Permanent(err)
	}
	options := metav1.PatchOptions{FieldManager: FieldManager, DryRun: []string{metav1.DryRunAll}}
	tried, err := a.clients.resourceClient(t.resource, t.GetNamespace()).Patch(ctx, t.GetName(), types.JSONPatchType, patch, options)
	if err != nil {
		return explain(ctx, "adopt "+idOf(t.Unstructured).String(), err)
	}
	before := len(t.fields)
	t.fields = compare(t.live, tried)
	t.adoption.removed = max(0, len(t.fields)-before)
	return nil
}

// onlyIn are the paths of a set that are not in another set, and have nothing of it below them.
func onlyIn(taken, kept *fieldpath.Set) (paths []fieldpath.Path) {
	var others []string
	kept.Iterate(func(p fieldpath.Path) { others = append(others, p.String()) })
	taken.Iterate(func(p fieldpath.Path) {
		at := p.String()
		within := func(other string) bool {
			rest, ok := strings.CutPrefix(other, at)
			return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
		}
		if !isKey(p) && !slices.ContainsFunc(others, within) {
			paths = append(paths, p.Copy())
		}
	})
	return paths
}

// replacePatch is a patch that gives an object the declarable fields of another one.
func replacePatch(live, after *unstructured.Unstructured) ([]byte, error) {
	var patch []map[string]any
	put := func(at string, old, now map[string]any, name string) {
		value, declared := now[name]
		_, exists := old[name]
		switch {
		case declared:
			patch = append(patch, map[string]any{"op": "add", "path": at + name, "value": value})
		case exists:
			patch = append(patch, map[string]any{"op": "remove", "path": at + name})
		}
	}
	for _, name := range keysOf(live.Object, after.Object) {
		if name != "metadata" && name != "status" && name != "apiVersion" && name != "kind" {
			put("/", live.Object, after.Object, name)
		}
	}
	for _, name := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
		put("/metadata/", nestedMap(live.Object, "metadata"), nestedMap(after.Object, "metadata"), name)
	}
	return json.Marshal(patch)
}

// isDeclarer reports whether an entry is of a tool from which an object is adopted. Fields that were written through a subresource
// do not count as declared.
func isDeclarer(entry metav1.ManagedFieldsEntry, wanted *unstructured.Unstructured) bool {
	return entry.Subresource == "" && entry.Manager != FieldManager &&
		(slices.Contains(declarers, entry.Manager) || slices.Contains(annotationList(wanted, AnnotationAdopt), entry.Manager))
}

// isKey reports whether a field is the key of its list element. Without the key no other field of the element can be found.
func isKey(p fieldpath.Path) bool {
	if len(p) < 2 || p[len(p)-1].FieldName == nil || p[len(p)-2].Key == nil {
		return false
	}
	return slices.ContainsFunc(*p[len(p)-2].Key, func(key value.Field) bool { return key.Name == *p[len(p)-1].FieldName })
}

// removePath removes a field, or an element of a list, from a value.
func removePath(tree any, at fieldpath.Path) any {
	switch v := tree.(type) {
	case map[string]any:
		if at[0].FieldName == nil {
			return v
		}
		name := *at[0].FieldName
		if inner, ok := v[name]; !ok || len(at) == 1 {
			delete(v, name)
		} else {
			v[name] = removePath(inner, at[1:])
		}
		return v
	case []any:
		i := slices.IndexFunc(v, func(each any) bool { return isElement(each, at[0]) })
		switch {
		case i < 0:
		case len(at) == 1:
			return slices.Delete(v, i, i+1)
		default:
			v[i] = removePath(v[i], at[1:])
		}
		return v
	}
	return tree
}

// isElement reports whether an element of a list is the one that a path names, by its keys or by its value.
func isElement(element any, at fieldpath.PathElement) bool {
	if at.Value != nil {
		return reflect.DeepEqual(element, (*at.Value).Unstructured())
	}
	fields, ok := element.(map[string]any)
	if at.Key == nil || !ok {
		return false
	}
	return !slices.ContainsFunc(*at.Key, func(key value.Field) bool {
		actual, exists := fields[key.Name]
		return exists && !reflect.DeepEqual(actual, key.Value.Unstructured())
	})
}

// migrate moves the fields that a tool declared of an object to our name.
func (a *apply) migrate(ctx context.Context, t *trial) error {
	return a.patchManagers(ctx, t, "adopt "+idOf(t.Unstructured).String(), func(live *unstructured.Unstructured) ([]byte, error) {
		return migration(live, t.Unstructured)
	})
}

// patchManagers patches the managedFields of a live object; no patch: nothing changes. It writes only over the object as it was read.
func (a *apply) patchManagers(ctx context.Context, t *trial, action string, patchFor func(live *unstructured.Unstructured) ([]byte, error)) error {
	at := a.clients.resourceClient(t.resource, t.GetNamespace())
	for n := 1; ; n++ {
		live, err := at.Get(ctx, t.GetName(), metav1.GetOptions{})
		if err != nil {
			return explain(ctx, action, err)
		}
		if err := a.checkOwnership(ctx, t, live); err != nil {
			return err // another writer created it a moment ago
		}
		patch, err := patchFor(live)
		if err != nil {
			return runtimes.Permanent(&problem{action: action, reason: err.Error(), err: err})
		}
		if patch == nil {
			return nil
		}
		_, err = at.Patch(ctx, t.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
		if err == nil || !isConflict(err) || n == maxConflictRetries {
			return explain(ctx, action, err)
		}
	}
}

// migration is the patch of managedFields that makes the declared fields of other tools ours; nil if there are none.
func migration(live, wanted *unstructured.Unstructured) ([]byte, error) {
	live = live.DeepCopy()
	entries, names := live.GetManagedFields(), sets.New[string]()
	for i, entry := range entries {
		if isDeclarer(entry, wanted) {
			entries[i].Operation = metav1.ManagedFieldsOperationUpdate // applied fields migrate in the same way as updated ones
			names.Insert(entry.Manager)
		}
	}
	if names.Len() == 0 {
		return nil, nil
	}
	live.SetManagedFields(entries)
	for _, name := range sets.List(names) {
		if err := csaupgrade.UpgradeManagedFields(live, sets.New(name), FieldManager); err != nil {
			return nil, err
		}
	}
	return json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": live.GetManagedFields()},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
	})
}

// String is the adoption in the form of a plan.
func (a *adoption) String() string {
	text := "no fields of other tools are taken over"
	if len(a.managers) > 0 {
		text = "it is adopted from " + strings.Join(a.managers, ", ")
	}
	switch {
	case a.removed == 1:
		text += "; 1 field of theirs is not declared and is removed"
	case a.removed > 1:
		text += fmt.Sprintf("; %d fields of theirs are not declared and are removed", a.removed)
	}
	return text
}

// adoptHint is the advice for an object of another owner.
const adoptHint = `to adopt it, set adopt, or on the object the annotation ` + AnnotationAdopt + `: "true"; otherwise delete it`

// conflictHint is the advice for a field that another tool declares. A used consent has no further effect.
func (a *apply) conflictHint(t *trial, fields []string) string {
	advice := "set adopt to take it over"
	if consentOf(t.Unstructured) != "" {
		advice = "adopt it again with another value of the annotation " + AnnotationAdopt
	}
	return "remove the field from one side, " + advice + ", or leave it to the other owner: " + ignoreDeclaration(t.declared, fields)
}
