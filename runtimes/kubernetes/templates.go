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

// Pods are replaced when their template changes, so no version stands there: a template carries a stamp that says what is in it
// and in the configuration that its pods use, and the workload says in which version that is. So a version that changes neither
// replaces no pod, one that goes back finds the pods that it left, and pods are of a version by the stamp that they carry.

// templateAnnotations are where the annotations of a pod template are.
func templateAnnotations() []string { return []string{"spec", "template", "metadata", "annotations"} }

// templateSays is an annotation of an object's pod template; empty when there is none.
func templateSays(o *unstructured.Unstructured, name string) string {
	annotations, _, _ := unstructured.NestedStringMap(o.Object, templateAnnotations()...)
	return annotations[name]
}

// templateStamp is the stamp that a workload's new pods get; empty when they get none.
func templateStamp(o *unstructured.Unstructured) string { return templateSays(o, AnnotationTemplate) }

// madeStamp is the stamp of a pod, or of the pods of a ReplicaSet. A view keeps only this of their annotations.
func madeStamp(o *unstructured.Unstructured) string {
	if stamp, slim := o.GetAnnotations()[annotationMade]; slim {
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

// stamped are the annotations of a pod template. A Job cannot be changed, so it carries none, unless it is made again for each
// version; and no pod is replaced for the template of any other kind, so that may say the version.
func (d *declared) stamped(template map[string]any, version map[string]string, configs map[id]string) map[string]string {
	switch kind := idOf(d.Unstructured).kind; {
	case isWorkload(d.Unstructured):
		return map[string]string{AnnotationTemplate: digestOf(template, d.used(template, configs))}
	case kind == kindJob && !recreates(d.Unstructured):
		return nil
	}
	return version
}

// digestOf is 64 bits of what is in some values. It stays the same in every later Converge: pods are replaced when it changes.
func digestOf(values ...any) string {
	text, err := json.Marshal(values) // with sorted keys
	if err != nil {
		return "" // it came as JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// configsOf are the ConfigMaps and Secrets among objects, with the digest of what is in them.
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

// used are those of the configurations that pods of a template refer to: "ConfigMap settings" with its digest.
func (d *declared) used(template map[string]any, configs map[id]string) map[string]string {
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

// referring are the fields of a pod's spec that refer to configuration, and the one in them that names it.
var referring = map[string]reference{
	"configMap":       {"ConfigMap", "name"}, // a volume, or a source of a projected one
	"configMapKeyRef": {"ConfigMap", "name"},
	"configMapRef":    {"ConfigMap", "name"},
	"secretKeyRef":    {"Secret", "name"},
	"secretRef":       {"Secret", "name"},
}

// references finds what the spec of a pod refers to, anywhere in its volumes and containers.
func references(value any) (all []reference) {
	switch v := value.(type) {
	case []any:
		for _, each := range v {
			all = append(all, references(each)...)
		}
	case map[string]any:
		for _, field := range keysOf(v) {
			inner, _ := v[field].(map[string]any)
			at, ok := referring[field]
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

// over is an object as it is applied over the one that is there: it notes of which version the pods were that it replaces. What a
// Job says of its runs stays, and so does the version in its template, which cannot change. The object itself is not changed.
func (d declared) over(live *unstructured.Unstructured) (declared, error) {
	if live == nil {
		return d, nil
	}
	var note, template map[string]string
	switch {
	case isWorkload(d.Unstructured):
		note = annotation(AnnotationEarlier, earlierOf(live, templateStamp(d.Unstructured)))
	case idOf(d.Unstructured).kind == kindJob:
		note = annotation(AnnotationRuns, live.GetAnnotations()[AnnotationRuns])
		if templateSays(d.Unstructured, AnnotationVersion) == "" {
			template = annotation(AnnotationVersion, templateSays(live, AnnotationVersion))
		}
	}
	if len(note)+len(template) == 0 {
		return d, nil
	}
	d.Unstructured = d.DeepCopy()
	err := errors.Join(merge(d.Object, template, templateAnnotations()), merge(d.Object, note, []string{"metadata", "annotations"}))
	return d, errors.Join(err, d.encode())
}

// annotation is one with its text, unless it says nothing.
func annotation(name, text string) map[string]string {
	if text == "" {
		return nil
	}
	return map[string]string{name: text}
}

// templateField begins the path of each field of a pod template, and stampField is the one that is not of what is declared.
const (
	templateField = "spec.template."
	stampField    = templateField + "metadata.annotations[" + AnnotationTemplate + "]"
)

// beginAnew is what is said of a workload whose template changes in nothing but its stamp.
const beginAnew = "its pods begin anew: configuration that they use changes"

// forConfig reports whether an object changes so that its pods get other configuration.
func (t *trial) forConfig() bool {
	stamps, others := 0, 0
	for _, f := range t.fields {
		switch {
		case f.Path == stampField:
			stamps++
		case strings.HasPrefix(f.Path, templateField):
			others++
		}
	}
	return t.outcome == changed && isWorkload(t.Unstructured) && stamps > 0 && others == 0
}

// maxEarlier bounds the templates of which is noted what they were. Pods of still earlier ones are of an unknown version.
const maxEarlier = 8

// earlierOf is what an object says of earlier templates, once its own has that stamp: "STAMP VERSION, …", newest first.
func earlierOf(live *unstructured.Unstructured, stamp string) string {
	pairs := listed(live, AnnotationEarlier)
	if was := templateStamp(live); was != stamp && was != "" && versionIn(live) != "" {
		pairs = append([]string{was, versionIn(live)}, pairs...)
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

// naming says of which version the pods of a stamp are; of another stamp nobody knows.
type naming map[string]string

// namesOf are the versions of the pods that a workload may have: by what it says itself, and, where the watch has not brought
// that yet, by what is declared for a version.
func namesOf(live *unstructured.Unstructured, d declared, version string) naming {
	names := naming{templateStamp(d.Unstructured): version}
	for pair := range slices.Chunk(listed(live, AnnotationEarlier), 2) {
		if len(pair) == 2 {
			names[pair[0]] = pair[1]
		}
	}
	names[templateStamp(live)] = versionIn(live)
	return names
}
