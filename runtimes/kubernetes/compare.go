package kubernetes

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

const (
	maxDifferences = 100 // reported fields of one object
	maxValue       = 256 // bytes of a value
)

// compare lists the fields that an apply (the server's dry run) would change in an object, at most 100, by path. Fields that the
// server or other writers maintain do not count: status, managedFields, resourceVersion, generation, the revisions that workload
// controllers count, and our own records of templates, runs and consents. Values of Secrets are masked. A nil object has no
// fields. Fields of others do not count either.
func compare(live, applied *unstructured.Unstructured, theirs ...path) []runtimes.FieldChange {
	var changes []runtimes.FieldChange
	for _, d := range dropDifferences(differences(live, applied), theirs) {
		changes = append(changes, d.FieldChange)
	}
	return changes
}

// difference is one field that differs, with its path in parts.
type difference struct {
	runtimes.FieldChange
	at path
}

func differences(live, applied *unstructured.Unstructured) []difference {
	c := &comparison{secret: isSecret(live) || isSecret(applied)}
	c.values(nil, declarable(live), declarable(applied))
	sort.SliceStable(c.found, func(a, b int) bool { return c.found[a].Path < c.found[b].Path })
	return c.found
}

func isSecret(o *unstructured.Unstructured) bool {
	return o != nil && o.GetKind() == "Secret" && o.GetAPIVersion() == "v1"
}

// declarable is an object without the fields that are never declared. The object itself is not changed.
func declarable(o *unstructured.Unstructured) map[string]any {
	if o == nil || o.Object == nil {
		return nil
	}
	kept := maps.Clone(o.Object)
	delete(kept, "status")
	metadata := maps.Clone(nestedMap(o.Object, "metadata"))
	for _, name := range serverFields {
		delete(metadata, name)
	}
	if existing := nestedMap(metadata, "annotations"); existing != nil {
		annotations := maps.Clone(existing)
		delete(annotations, annotationRevision)
		delete(annotations, annotationTemplate)
		delete(annotations, AnnotationEarlier)
		delete(annotations, AnnotationUnmarked)
		delete(annotations, AnnotationRuns)
		delete(annotations, AnnotationAdopt)
		delete(annotations, AnnotationTakenFrom)
		metadata["annotations"] = annotations
		if len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	kept["metadata"] = metadata
	return kept
}

type comparison struct {
	secret bool
	found  []difference
}

// values compares two values; nil is an absent one.
func (c *comparison) values(at path, old, now any) {
	if len(c.found) == maxDifferences || reflect.DeepEqual(old, now) {
		return
	}
	oldMap, oldIsMap := old.(map[string]any)
	nowMap, nowIsMap := now.(map[string]any)
	oldList, oldIsList := old.([]any)
	nowList, nowIsList := now.([]any)
	switch {
	case oldIsMap && nowIsMap, (oldIsMap || nowIsMap) && (old == nil || now == nil) && c.expands(at):
		c.maps(at, oldMap, nowMap)
	case oldIsList && nowIsList && allMaps(oldList) && allMaps(nowList):
		c.lists(at, oldList, nowList)
	default:
		c.add(at, old, now)
	}
}

// expands reports whether a map that exists on only one side is listed field by field: the object itself, and masked maps.
func (c *comparison) expands(at path) bool {
	return len(at) == 0 || c.secret && (at.String() == "data" || at.String() == "stringData" || at[0].field == "metadata")
}

func (c *comparison) maps(at path, old, now map[string]any) {
	for _, name := range keysOf(old, now) {
		c.values(at.with(part{field: name}), old[name], now[name])
	}
}

// lists compares lists of maps by the key of their elements, so that an added container is one difference and does not change all
// elements after it.
func (c *comparison) lists(at path, old, now []any) {
	key := keyOf(old, now)
	if key == "" {
		for i := range max(len(old), len(now)) {
			c.values(at.with(part{index: i, isIndex: true}), element(old, i), element(now, i))
		}
		return
	}
	oldNames, oldBy := byKey(old, key)
	nowNames, nowBy := byKey(now, key)
	before := len(c.found)
	for _, name := range keysOf(oldBy, nowBy) {
		c.values(at.with(part{key: key, value: name}), oldBy[name], nowBy[name])
	}
	if len(c.found) == before && !slices.Equal(oldNames, nowNames) {
		c.add(at.with(part{field: "order"}), strings.Join(oldNames, ", "), strings.Join(nowNames, ", "))
	}
}

func (c *comparison) add(at path, old, now any) {
	if len(c.found) == maxDifferences {
		return
	}
	d := difference{at: at}
	d.Path, d.Old, d.New = at.String(), jsonText(old), jsonText(now)
	if c.secret && isMasked(at) {
		d.Old, d.New = mask(old, "***"), mask(now, "***")
		if old != nil && now != nil {
			d.New = "*** (changed)"
		}
	}
	c.found = append(c.found, d)
}

// isMasked reports whether a field of a Secret must not be shown: its data, and the copy that kubectl keeps in an annotation.
func isMasked(at path) bool {
	switch at[0].field {
	case "data", "stringData":
		return true
	case "metadata":
		return len(at) < 3 || at[1].field == "annotations" && at[2].field == "kubectl.kubernetes.io/last-applied-configuration"
	}
	return false
}

func mask(value any, text string) string {
	if value == nil {
		return ""
	}
	return text
}

func jsonText(value any) string {
	if value == nil {
		return ""
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "(cannot be shown)" // it came as JSON
	}
	return runtimes.Clip(string(text), maxValue)
}

func allMaps(list []any) bool {
	return !slices.ContainsFunc(list, func(each any) bool { _, ok := each.(map[string]any); return !ok })
}

func element(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// keyOf finds the field that is the key in both lists: all elements have it, each with another value.
func keyOf(lists ...[]any) string {
	for _, key := range []string{"name", "containerPort", "port", "mountPath", "devicePath", "ip"} {
		if !slices.ContainsFunc(lists, func(list []any) bool { names, by := byKey(list, key); return by == nil || len(by) != len(names) }) {
			return key
		}
	}
	return ""
}

// byKey maps the elements of a list by key; elements is nil if an element has no key.
func byKey(list []any, key string) (names []string, elements map[string]any) {
	elements = map[string]any{}
	for _, each := range list {
		value := each.(map[string]any)[key]
		switch value.(type) {
		case string, int64, float64:
		default:
			return nil, nil
		}
		name := fmt.Sprint(value)
		names = append(names, name)
		elements[name] = each
	}
	return names, elements
}

func keysOf(all ...map[string]any) []string {
	var keys []string
	for _, m := range all {
		keys = slices.AppendSeq(keys, maps.Keys(m))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// path is the position of a field: names of fields, and elements of lists by key or by index.
type path []part

type part struct {
	field      string
	key, value string
	index      int
	isIndex    bool
}

func (p path) with(next part) path { return append(slices.Clip(p), next) }

// String is spec.template.spec.containers[name=web].image.
func (p path) String() string {
	var b strings.Builder
	for _, at := range p {
		switch {
		case at.isIndex:
			b.WriteString("[" + strconv.Itoa(at.index) + "]")
		case at.key != "":
			b.WriteString("[" + at.key + "=" + at.value + "]")
		case strings.ContainsAny(at.field, "./[]"):
			b.WriteString("[" + at.field + "]")
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(at.field)
		}
	}
	return b.String()
}
