package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Pods are replaced when their template changes, so the template does not contain the version. It carries a stamp: a digest of the
// template and of the configuration that its pods use. The workload records the version of each stamp. So a version that changes
// neither replaces no pods, a rollback finds the pods of its template, and the stamp of a pod determines its version.

// templateAnnotations is the path of the annotations of a pod template.
func templateAnnotations() []string { return []string{"spec", "template", "metadata", "annotations"} }

// templateAnnotation is an annotation of an object's pod template; empty if there is none.
func templateAnnotation(o *unstructured.Unstructured, name string) string {
	annotations, _, _ := unstructured.NestedStringMap(o.Object, templateAnnotations()...)
	return annotations[name]
}

// templateStamp is the stamp of a workload's new pods: in the template, or recorded if that has no marks (marks.go). Empty: none.
func templateStamp(o *unstructured.Unstructured) string {
	if isUnmarked(o) {
		return o.GetAnnotations()[AnnotationUnmarked]
	}
	return templateAnnotation(o, AnnotationTemplate)
}

// podStamp is the stamp of a pod, or of the pods of a ReplicaSet. A view keeps no other annotation of them.
func podStamp(o *unstructured.Unstructured) string {
	if stamp, slim := o.GetAnnotations()[annotationPodStamp]; slim {
		return stamp
	}
	if o.GetKind() == "Pod" {
		return o.GetAnnotations()[AnnotationTemplate]
	}
	return templateStamp(o)
}

// isWorkload reports whether a change of an object's template replaces pods.
func isWorkload(o *unstructured.Unstructured) bool {
	return workloadOf[o.GroupVersionKind().GroupKind()] != plain
}

// podAnnotations are the annotations of a pod template. A Job cannot be changed, so it has none, unless it is recreated for each version.
// In other kinds a change of the template replaces no pods, so it may contain the version.
func (d *declared) podAnnotations(template map[string]any, version map[string]string, configs map[id]string) map[string]string {
	switch kind := idOf(d.Unstructured).kind; {
	case isWorkload(d.Unstructured):
		return map[string]string{AnnotationTemplate: digestOf(template, d.usedConfigs(template, configs))}
	case kind == kindJob && !mayRecreate(d.Unstructured):
		return nil
	}
	return version
}

// digestOf is a digest of 64 bits of some values. Later releases of Converge must compute the same one: pods are replaced when it
// changes.
func digestOf(values ...any) string {
	text, err := json.Marshal(values) // with sorted keys
	if err != nil {
		return "" // it came as JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// configsOf are the ConfigMaps and Secrets among objects, with a digest of their contents.
func configsOf(objects []declared) map[id]string {
	configs := map[id]string{}
	for _, d := range objects {
		if d.GetAPIVersion() == "v1" && (d.GetKind() == "ConfigMap" || d.GetKind() == "Secret") {
			configs[idOf(d.Unstructured)] = contentDigest(d.Unstructured)
		}
	}
	return configs
}

func contentDigest(config *unstructured.Unstructured) string {
	return digestOf(config.Object["data"], config.Object["binaryData"])
}

// usedConfigs are the configurations to which the pods of a template refer: "ConfigMap settings" with its digest.
func (d *declared) usedConfigs(template map[string]any, configs map[id]string) map[string]string {
	found := map[string]string{}
	for _, ref := range references(template["spec"]) {
		at := id{kind: schema.GroupKind{Kind: ref.kind}, namespace: d.GetNamespace(), name: ref.name}
		if digest, ok := configs[at]; ok {
			found[ref.kind+" "+ref.name] = digest
		}
	}
	return found
}

// reference is a ConfigMap or a Secret by its name.
type reference struct{ kind, name string }

// configFields are the fields of a pod's spec that refer to configuration, each with its field for the name.
var configFields = map[string]reference{
	"configMap":       {"ConfigMap", "name"}, // a volume, or a source of a projected one
	"configMapKeyRef": {"ConfigMap", "name"},
	"configMapRef":    {"ConfigMap", "name"},
	"secretKeyRef":    {"Secret", "name"},
	"secretRef":       {"Secret", "name"},
}

// references finds the configuration to which the spec of a pod refers, anywhere in its volumes and containers.
func references(value any) (all []reference) {
	switch v := value.(type) {
	case []any:
		for _, each := range v {
			all = append(all, references(each)...)
		}
	case map[string]any:
		for _, field := range keysOf(v) {
			inner, _ := v[field].(map[string]any)
			at, ok := configFields[field]
			if field == "secret" { // a volume says secretName, a source of a projected one name
				at, ok = reference{"Secret", "name"}, true
				if _, volume := inner["secretName"]; volume {
					at.name = "secretName"
				}
			}
			if name, _ := inner[at.name].(string); ok && name != "" {
				all = append(all, reference{at.kind, name})
			}
			all = append(all, references(v[field])...)
		}
	}
	return all
}

// appliedOver is an object as it is applied over the live one: it records the version of the pods that it replaces. The recorded runs of a
// Job stay, and so does the version in its template, which cannot change. The object itself is not changed.
func (d declared) appliedOver(live *unstructured.Unstructured) (declared, error) {
	if live == nil {
		return d, nil
	}
	kept, err := d.keepMarks(live)
	if err != nil {
		return d, err
	}
	var note, template map[string]string
	switch {
	case isWorkload(d.Unstructured):
		note = earlierNotes(live, d.Unstructured)
	case idOf(d.Unstructured).kind == kindJob:
		note = annotation(AnnotationRuns, live.GetAnnotations()[AnnotationRuns])
		if templateAnnotation(d.Unstructured, AnnotationVersion) == "" {
			template = annotation(AnnotationVersion, templateAnnotation(live, AnnotationVersion))
		}
	}
	if len(note)+len(template) == 0 && !kept {
		return d, nil
	}
	d.Unstructured = d.DeepCopy()
	err = errors.Join(merge(d.Object, template, templateAnnotations()), merge(d.Object, note, []string{"metadata", "annotations"}))
	return d, errors.Join(err, d.encode())
}

// earlierNotes are the records about earlier templates: their stamps, and that of a template without marks whose pods are replaced now.
func earlierNotes(live, wanted *unstructured.Unstructured) map[string]string {
	notes := map[string]string{}
	if earlier := earlierOf(live, templateStamp(wanted)); earlier != "" {
		notes[AnnotationEarlier] = earlier
	}
	if isUnmarked(live) && !isUnmarked(wanted) {
		notes[AnnotationUnmarked] = templateStamp(live)
	}
	return notes
}

// annotation is a map with one annotation, or none if the text is empty.
func annotation(name, text string) map[string]string {
	if text == "" {
		return nil
	}
	return map[string]string{name: text}
}

// maxEarlier limits the recorded templates. Pods of older templates have an unknown version.
const maxEarlier = 8

// earlierOf is the record of earlier templates for an object whose new stamp is given: "STAMP VERSION, …", newest first.
func earlierOf(live *unstructured.Unstructured, stamp string) string {
	pairs := annotationList(live, AnnotationEarlier)
	if previous := templateStamp(live); previous != stamp && previous != "" && versionIn(live) != "" {
		pairs = append([]string{previous, versionIn(live)}, pairs...)
	}
	var kept []string
	seen := map[string]bool{stamp: true}
	for pair := range slices.Chunk(pairs, 2) {
		if len(pair) == 2 && !seen[pair[0]] && len(kept) < maxEarlier {
			seen[pair[0]] = true
			kept = append(kept, pair[0]+" "+pair[1])
		}
	}
	return strings.Join(kept, ", ")
}

// versionsByStamp maps stamps to versions; the version of another stamp is unknown.
type versionsByStamp map[string]string

// versionsByStampOf are the versions of the pods of a workload: from its own record, and, if the watch has not shown that yet, from the
// declaration of a version.
func versionsByStampOf(live *unstructured.Unstructured, d declared, version string) versionsByStamp {
	names := versionsByStamp{templateStamp(d.Unstructured): version}
	for pair := range slices.Chunk(annotationList(live, AnnotationEarlier), 2) {
		if len(pair) == 2 {
			names[pair[0]] = pair[1]
		}
	}
	names[templateStamp(live)] = versionIn(live)
	return names
}
