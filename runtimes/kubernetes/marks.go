package kubernetes

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

// The marks of a pod template are what Converge adds to it: the labels of the instance, and the stamp (templates.go). Marks alone
// replace no pods: they enter a template, or change in it, only together with a change that replaces the pods anyway. So a template with
// the same content keeps the marks that it has. Those are none if the workload was adopted (AnnotationUnmarked records its stamp), and
// those of an earlier owner or namespace if it moved.

// markLabels are the labels among the marks.
var markLabels = []string{LabelApplication, LabelService, LabelChannel, LabelInstance, LabelPartOf}

// templateLabels are the labels of an object's pod template.
func templateLabels(o *unstructured.Unstructured) map[string]string {
	found, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
	return found
}

// hasNoMarks reports whether a pod template has no mark at all.
func hasNoMarks(o *unstructured.Unstructured) bool {
	found := templateLabels(o)
	return templateAnnotation(o, AnnotationTemplate) == "" &&
		!slices.ContainsFunc(markLabels, func(name string) bool { _, ok := found[name]; return ok })
}

// isUnmarked reports whether a workload was adopted, and its template has no marks yet.
func isUnmarked(o *unstructured.Unstructured) bool {
	return isWorkload(o) && o.GetAnnotations()[AnnotationUnmarked] != "" && hasNoMarks(o)
}

// marksOf are the labels among the marks of a live template. They are complete, or there are none; ok is false for other ones, which
// somebody changed.
func marksOf(live *unstructured.Unstructured) (marks map[string]string, ok bool) {
	found := templateLabels(live)
	if _, complete := ownerOf(found); !complete || found[LabelPartOf] == "" {
		return nil, hasNoMarks(live)
	}
	marks = map[string]string{}
	for _, name := range markLabels {
		marks[name] = found[name]
	}
	return marks, true
}

// keepsMarks reports whether an apply of a declaration leaves the content of a live template as it is. A Job's template cannot change.
func (d *declared) keepsMarks(live *unstructured.Unstructured) bool {
	if idOf(d.Unstructured).kind == kindJob {
		return !mayRecreate(d.Unstructured)
	}
	stamp := templateStamp(live)
	return isWorkload(d.Unstructured) && stamp != "" && stamp == templateStamp(d.Unstructured) &&
		templateAnnotation(live, AnnotationRestarted) == templateAnnotation(d.Unstructured, AnnotationRestarted)
}

// keepMarks gives the template the marks of the live one, if its content is the same. changed is false if it has them.
func (d *declared) keepMarks(live *unstructured.Unstructured) (changed bool, err error) {
	marks, ok := marksOf(live)
	if !ok || !d.keepsMarks(live) || maps.Equal(marks, onlyMarks(templateLabels(d.Unstructured))) {
		return false, nil
	}
	if len(marks) == 0 {
		return true, d.unmark()
	}
	d.Unstructured = d.DeepCopy()
	return true, merge(d.Object, marks, []string{"spec", "template", "metadata", "labels"})
}

func onlyMarks(all map[string]string) map[string]string {
	marks := map[string]string{}
	for _, name := range markLabels {
		if value, ok := all[name]; ok {
			marks[name] = value
		}
	}
	return marks
}

// unmark takes the marks out of the template. A workload records its stamp.
func (d *declared) unmark() error {
	stamp := templateStamp(d.Unstructured)
	d.Unstructured = d.DeepCopy()
	for _, name := range markLabels {
		unstructured.RemoveNestedField(d.Object, "spec", "template", "metadata", "labels", name)
	}
	unstructured.RemoveNestedField(d.Object, append(templateAnnotations(), AnnotationTemplate)...)
	for _, field := range []string{"labels", "annotations"} {
		if at := []string{"spec", "template", "metadata", field}; len(nestedMap(d.Object, at...)) == 0 {
			unstructured.RemoveNestedField(d.Object, at...)
		}
	}
	if !isWorkload(d.Unstructured) {
		return nil
	}
	return merge(d.Object, map[string]string{AnnotationUnmarked: stamp}, []string{"metadata", "annotations"})
}

// tryUnmarked tries to adopt a workload with its template as it runs, without marks. It returns nil if the pods are replaced anyway,
// by the template or by their configuration, or if there is nothing to adopt; the workload is then tried with marks.
func (a *apply) tryUnmarked(ctx context.Context, t *trial, d declared) *trial {
	if t.live == nil || !isWorkload(d.Unstructured) || !hasNoMarks(t.live) || isUnmarked(t.live) || !a.hasNewConsent(t, t.live) || a.changesConfig(ctx, d) {
		return nil
	}
	if err := errors.Join(d.unmark(), d.encode()); err != nil {
		return nil
	}
	tried := &trial{declared: d, origin: t.origin, resource: t.resource, live: t.live}
	dry, err := a.dryRunOver(ctx, tried, d)
	a.judge(ctx, tried, d, dry, err)
	switch {
	case tried.outcome == dryRunUnsupported:
		return tried
	case tried.outcome != changed && tried.outcome != unchanged || len(tried.templateFields()) > 0:
		return nil
	}
	return tried
}

// changesConfig reports whether an apply changes the content of a ConfigMap or a Secret that the pods of a workload use.
func (a *apply) changesConfig(ctx context.Context, d declared) bool {
	spec := nestedMap(d.Object, "spec", "template", "spec")
	for _, ref := range references(spec) {
		at := slices.IndexFunc(a.objects, func(o declared) bool {
			return o.GetAPIVersion() == "v1" && o.GetKind() == ref.kind && o.GetName() == ref.name && o.GetNamespace() == d.GetNamespace()
		})
		if at < 0 {
			continue
		}
		t := a.try(ctx, a.objects[at])
		if t.outcome == unchanged {
			continue
		}
		if t.outcome != changed || slices.ContainsFunc(t.fields, isContent) {
			return true
		}
	}
	return false
}

// isContent reports whether a changed field of a ConfigMap or a Secret is one that its users see.
func isContent(f runtimes.FieldChange) bool {
	return strings.HasPrefix(f.Path, "data") || strings.HasPrefix(f.Path, "binaryData")
}
