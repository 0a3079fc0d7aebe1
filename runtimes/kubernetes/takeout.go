package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/converge-engine/converge/runtimes"
)

// Server-side apply keeps what others wrote and what the server filled in. Together with the declaration that can be invalid: a second
// port of the same name, two handlers of one probe, a rollingUpdate beside the strategy Recreate. Such fields are taken out of the
// object: they become ours in managedFields, and the apply that follows removes them, since they are not declared. Both happen in one
// write of the object's content. Only fields where the server sees the fault are taken out, first the nearest ones. A field that
// another tool declares stays.

// maxTakeOuts limits the dry runs that search for the fields to take out of one object.
const maxTakeOuts = 8

// takenField is a field to take out of a live object, with its writers. A field without writers is a default of the server.
type takenField struct {
	path fieldpath.Path
	by   []string
}

func (f takenField) String() string { return plainPath(f.path.String()) }

// origin is "written by kubectl-edit" or "a default of the server".
func (f takenField) origin() string {
	if len(f.by) == 0 {
		return "a default of the server"
	}
	return "written by " + strings.Join(f.by, ", ")
}

// takeOut finds the fields with which the server refuses a declaration, and tries the object without them by a dry run.
type takeOut struct {
	apply    *apply
	trial    *trial
	live     *unstructured.Unstructured // complete
	over     *overlay
	causes   [][]string // where the server sees a fault: names of fields, without positions in lists
	taken    []takenField
	declared []string // fields next to a fault that other tools declare
}

// takeOutRefused tries a refused object without the fields that stand against its declaration. dry is the object afterwards; nil if the
// server refuses it still, or if there are no such fields. others are fields next to a fault that other tools declare, for people.
func (a *apply) takeOutRefused(ctx context.Context, t *trial, refusal error) (dry *unstructured.Unstructured, others string, err error) {
	s := &takeOut{apply: a, trial: t}
	if s.live, err = a.clients.resourceClient(t.resource, t.GetNamespace()).Get(ctx, t.GetName(), metav1.GetOptions{}); err != nil {
		return nil, "", explain(ctx, "read the fields of "+idOf(t.Unstructured).String(), err)
	}
	if s.over, err = overlayOf(s.live, t.declared); err != nil {
		return nil, "", runtimes.Permanent(err)
	}
	s.causes = causesOf(refusal)
	for tries, level := 0, 0; tries < maxTakeOuts && level <= s.depth(); level++ {
		if !s.extend(level) {
			continue
		}
		tries++
		dry, refusal = s.try(ctx)
		if refusal == nil {
			t.takenOut = s.taken
			return dry, "", nil
		}
		s.causes = append(s.causes, causesOf(refusal)...)
	}
	slices.Sort(s.declared)
	return nil, strings.Join(slices.Compact(s.declared), ", "), nil
}

// depth is the length of the longest path among the causes.
func (s *takeOut) depth() (depth int) {
	for _, cause := range s.causes {
		depth = max(depth, len(cause))
	}
	return depth
}

// extend adds the fields that are within so many levels of a fault; false: there are no more.
func (s *takeOut) extend(level int) (extended bool) {
	for _, p := range s.over.undeclared {
		known := func(f takenField) bool { return f.path.Equals(p) }
		scope := s.scopeOf(p, level)
		if slices.ContainsFunc(s.taken, known) || scope < 0 {
			continue
		}
		f, declarer := s.take(p)
		switch {
		case declarer == "":
			s.taken, extended = append(s.taken, f), true
		case level == 0 || level == 1 && scope > 1:
			s.declared = append(s.declared, declarer)
		}
	}
	return extended
}

// scopeOf is the length of the path so many levels above a fault, if that contains a field or is below it; -1 otherwise.
func (s *takeOut) scopeOf(p fieldpath.Path, level int) int {
	names := namesOf(p)
	if names[0] == "metadata" || slices.Equal(names, []string{"spec", "replicas"}) || isWithinPaths(plainPath(p.String()), s.trial.omittedPaths(s.live)) {
		return -1 // they make no object invalid, or belong to a person or an autoscaler
	}
	written, longest := len(entriesAt(s.live, p)) > 0, -1
	for _, cause := range s.causes {
		scope := cause[:max(0, len(cause)-level)]
		if len(scope) < 2 && !written {
			continue // defaults of a whole spec, such as an allocated address, are no members of a union
		}
		if n := min(len(scope), len(names)); slices.Equal(scope[:n], names[:n]) {
			longest = max(longest, len(scope))
		}
	}
	return longest
}

// take is a field to take out. declarer is not empty if another tool declares it, or a controller writes it through a subresource: then
// only an adoption takes it.
func (s *takeOut) take(p fieldpath.Path) (f takenField, declarer string) {
	f = takenField{path: p}
	for _, entry := range entriesAt(s.live, p) {
		if entry.Manager == FieldManager {
			continue
		}
		c := conflict{field: f.String(), owner: entry.Manager, operation: entry.Operation, subresource: entry.Subresource}
		if !c.isManualEdit() && !s.apply.hasNewConsent(s.trial, s.live) {
			return f, c.String()
		}
		f.by = append(f.by, entry.Manager)
	}
	slices.Sort(f.by)
	f.by = slices.Compact(f.by)
	return f, ""
}

// try tries the object with its declaration and without the taken fields. No apply can do both in one dry run, so it tries a patch.
func (s *takeOut) try(ctx context.Context) (*unstructured.Unstructured, error) {
	after := (&unstructured.Unstructured{Object: s.over.merged}).DeepCopy()
	for _, f := range s.taken {
		removePath(after.Object, f.path)
	}
	patch, err := replacePatch(s.live, after)
	if err != nil {
		return nil, err
	}
	options := metav1.PatchOptions{FieldManager: FieldManager, DryRun: []string{metav1.DryRunAll}}
	return s.apply.clients.resourceClient(s.trial.resource, s.trial.GetNamespace()).Patch(ctx, s.trial.GetName(), types.JSONPatchType, patch, options)
}

var positions = regexp.MustCompile(`\[[^\]]*\]`)

// causesOf are the fields that a refusal names, without positions in lists and keys of maps.
func causesOf(err error) (fields [][]string) {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	for _, cause := range status.Status().Details.Causes {
		if field := positions.ReplaceAllString(cause.Field, ""); field != "" && field != "<nil>" {
			fields = append(fields, strings.Split(field, "."))
		}
	}
	return fields
}

// namesOf are the names of the fields of a path, without the elements of lists.
func namesOf(p fieldpath.Path) (names []string) {
	for _, element := range p {
		if element.FieldName != nil {
			names = append(names, *element.FieldName)
		}
	}
	return names
}

// takeOver makes the fields that are taken out ours in the managedFields of the live object; the apply that follows removes them.
func (a *apply) takeOver(ctx context.Context, t *trial) error {
	action := "take fields that are not declared out of " + idOf(t.Unstructured).String()
	return a.patchManagers(ctx, t, action, func(live *unstructured.Unstructured) ([]byte, error) { return takeOverPatch(live, t.takenOut) })
}

// takeOverPatch is the patch of managedFields that gives fields to Converge, and takes them from all others.
func takeOverPatch(live *unstructured.Unstructured, taken []takenField) ([]byte, error) {
	entries, ours := []metav1.ManagedFieldsEntry{}, -1
	for _, entry := range live.GetManagedFields() {
		set, kept := setOf(entry), &fieldpath.Set{}
		for _, p := range pathsOf(set) {
			if !slices.ContainsFunc(taken, func(f takenField) bool { return hasPrefix(p, f.path) }) {
				kept.Insert(p)
			}
		}
		isOurs := entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
		if isOurs {
			ours = len(entries)
			for _, f := range taken {
				kept.Insert(f.path)
			}
		}
		if kept.Empty() {
			continue
		}
		if !kept.Equals(set) {
			if err := setFields(&entry, kept); err != nil {
				return nil, err
			}
		}
		entries = append(entries, entry)
	}
	if ours < 0 {
		entry, err := newEntry(live, taken)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	return json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": entries},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
	})
}

// newEntry is an entry of managedFields that gives fields to Converge, for an object that it has not applied yet.
func newEntry(live *unstructured.Unstructured, taken []takenField) (metav1.ManagedFieldsEntry, error) {
	set := &fieldpath.Set{}
	for _, f := range taken {
		set.Insert(f.path)
	}
	entry := metav1.ManagedFieldsEntry{
		Manager: FieldManager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: live.GetAPIVersion(), FieldsType: "FieldsV1",
	}
	return entry, setFields(&entry, set)
}

func setFields(entry *metav1.ManagedFieldsEntry, set *fieldpath.Set) error {
	text, err := set.ToJSON()
	if err != nil {
		return err
	}
	entry.FieldsV1 = metav1.NewFieldsV1(string(text))
	return nil
}

// takenOutText says what an apply takes out of an object, for a plan.
func (t *trial) takenOutText() string {
	var texts []string
	for _, f := range t.takenOut {
		texts = append(texts, fmt.Sprintf("%s (%s)", f, f.origin()))
	}
	return "the server refuses the declaration together with these fields, so they are taken out: " + strings.Join(texts, ", ")
}
