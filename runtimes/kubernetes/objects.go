package kubernetes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// declared is one object in its target state: with namespace, and with the labels and annotations of its instance, for workloads
// also in the pod template.
type declared struct {
	*unstructured.Unstructured
	wave   int
	digest string // of the applied object and of the fields that are left to others: the subject of a verdict about drift
	text   []byte // the object in its applied form

	ignoredPaths    []path                       // fields that are declared to belong to others (ignored_fields.go)
	ignoredManagers []entities.IgnoredDifference // the same, by field manager
	scaler          string                       // the object that scales it: HorizontalPodAutoscaler/web
	scalerGone      bool                         // its earlier autoscaler is gone
}

// id names an object in the cluster, in any version of its kind.
type id struct {
	kind            schema.GroupKind
	namespace, name string
}

// String is the name of an object in messages: "Deployment shop/web".
func (i id) String() string {
	if i.namespace == "" {
		return i.kind.Kind + " " + i.name
	}
	return i.kind.Kind + " " + i.namespace + "/" + i.name
}

// declare makes the objects of an instance from its payload, in the order of their waves. It asks the server only for the scope of
// kinds. A kind that is not served yet counts as namespaced, unless its definition is among the objects. An object that no apply
// could use is a permanent error.
func (r *Runtime) declare(ctx context.Context, in runtimes.Request) ([]declared, error) {
	if in.Payload == nil || in.Payload.Kubernetes == nil {
		return nil, nil
	}
	objects := make([]declared, 0, len(in.Payload.Kubernetes.Objects))
	var wrong []error
	for i, raw := range in.Payload.Kubernetes.Objects {
		o, err := parse(raw)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("object %d of the payload: %w", i+1, err))
			continue
		}
		objects = append(objects, o)
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, runtimes.Permanent(err)
	}
	scopes := definedScopes(objects)
	for i := range objects {
		if err := r.setNamespace(ctx, objects[i].Unstructured, namespaceOf(in), scopes); err != nil {
			return nil, err
		}
	}
	configs := configsOf(objects)
	findScalers(objects)
	for i := range objects {
		objects[i].setIgnored(slices.Concat(r.ignoreDifferences(), in.Payload.Kubernetes.Ignore))
		if err := objects[i].finish(in, configs); err != nil {
			return nil, runtimes.Permanent(fmt.Errorf("%s: %w", idOf(objects[i].Unstructured), err))
		}
	}
	if err := unique(objects); err != nil {
		return nil, runtimes.Permanent(err)
	}
	slices.SortStableFunc(objects, compareOrder)
	return objects, nil
}

// serverFields are the fields of metadata that only a server sets.
var serverFields = []string{"managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink"}

// parse decodes an object and drops the fields that only a server sets.
func parse(raw json.RawMessage) (declared, error) {
	o := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(raw, &o.Object); err != nil { // whole numbers keep their digits
		return declared{}, fmt.Errorf("no JSON object: %w", err)
	}
	switch {
	case o.GetAPIVersion() == "" || o.GetKind() == "":
		return declared{}, errors.New("has no apiVersion or no kind")
	case o.GetName() == "":
		return declared{}, fmt.Errorf("%s %s has no name; a generated name would create another object with every apply", o.GetAPIVersion(), o.GetKind())
	}
	if _, err := schema.ParseGroupVersion(o.GetAPIVersion()); err != nil {
		return declared{}, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
	}
	for _, field := range serverFields {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	if builtIn(o.GroupVersionKind().Group) {
		dropNulls(o.Object)
	}
	if err := plainSecret(o); err != nil {
		return declared{}, err
	}
	wave, err := waveOf(o)
	return declared{Unstructured: o, wave: wave}, err
}

// builtIn reports whether a group is part of Kubernetes. In other groups a null may be required.
func builtIn(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// dropNulls removes fields that are null. Charts write them for "not set". An apply with them would claim the field, and take it
// from the controller that fills it in (the caBundle of a webhook).
func dropNulls(value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			if inner == nil {
				delete(v, name)
			} else {
				dropNulls(inner)
			}
		}
	case []any:
		for _, inner := range v {
			dropNulls(inner)
		}
	}
}

// definedScopes are the kinds that the objects define, and whether they are namespaced.
func definedScopes(objects []declared) map[schema.GroupKind]bool {
	scopes := map[schema.GroupKind]bool{}
	for _, o := range objects {
		if idOf(o.Unstructured).kind != kindDefinition {
			continue
		}
		scopes[definedBy(o.Unstructured)] = nestedMap(o.Object, "spec")["scope"] != "Cluster"
	}
	return scopes
}

// definedBy is the kind that a CustomResourceDefinition defines.
func definedBy(o *unstructured.Unstructured) schema.GroupKind {
	group, _ := nestedMap(o.Object, "spec")["group"].(string)
	kind, _ := nestedMap(o.Object, "spec", "names")["kind"].(string)
	return schema.GroupKind{Group: group, Kind: kind}
}

// defines reports whether another one of the objects defines the kind of an object.
func defines(objects []declared, d declared) bool {
	_, ok := definedScopes(objects)[d.GroupVersionKind().GroupKind()]
	return ok
}

// setNamespace sets the namespace of an object of a namespaced kind, and removes it from the others.
func (r *Runtime) setNamespace(ctx context.Context, o *unstructured.Unstructured, defaultNamespace string, scopes map[schema.GroupKind]bool) error {
	namespaced, known := scopes[o.GroupVersionKind().GroupKind()]
	if !known {
		found, err := r.cluster.resource(ctx, o.GroupVersionKind())
		if err != nil && !meta.IsNoMatchError(err) {
			return err
		}
		namespaced = err != nil || found.namespaced
	}
	switch {
	case !namespaced:
		unstructured.RemoveNestedField(o.Object, "metadata", "namespace")
	case o.GetNamespace() == "":
		o.SetNamespace(defaultNamespace)
	}
	return nil
}

// finish sets labels and annotations, and computes the digest.
func (d *declared) finish(in runtimes.Request, configs map[id]string) error {
	labels := labelsOf(in.Owner)
	labels[LabelPartOf] = setID(inventoryName(in.Owner), namespaceOf(in))
	annotations := map[string]string{}
	if in.FullVersion != "" {
		annotations[AnnotationVersion] = in.FullVersion
	}
	if isHook(d.Unstructured) {
		annotations[AnnotationRecreate] = "true"
	}
	if path := templateOf(d.GroupVersionKind().GroupKind()); path != nil {
		if template, found, _ := unstructured.NestedMap(d.Object, path...); found {
			at := append(slices.Clone(path), "metadata")
			stamp := d.podAnnotations(template, annotations, configs)
			if err := errors.Join(merge(d.Object, labels, append(at, "labels")), merge(d.Object, stamp, append(at, "annotations"))); err != nil {
				return err
			}
		}
	}
	if in.Payload.Kubernetes.Adopt && d.GetAnnotations()[AnnotationAdopt] == "" {
		annotations = maps.Clone(annotations)
		annotations[AnnotationAdopt] = "true"
	}
	err := errors.Join(
		merge(d.Object, labels, []string{"metadata", "labels"}), merge(d.Object, annotations, []string{"metadata", "annotations"}), d.setRestartedAt(in),
	)
	if err != nil {
		return err
	}
	return d.encode()
}

// encode stores the object in its sent form, and its digest.
func (d *declared) encode() error {
	text, err := json.Marshal(d.Object) // with sorted keys
	if err != nil {
		return err
	}
	sum := sha256.Sum256(fmt.Append(text, d.ignoredPaths, d.ignoredManagers))
	d.digest, d.text = hex.EncodeToString(sum[:]), text
	return nil
}

// setRestartedAt writes the time of the last restart into the pod template of a permanent workload, as `kubectl rollout restart` does.
// Another time replaces the pods. Every later apply has the same time, so that its absence does not replace them.
func (d *declared) setRestartedAt(in runtimes.Request) error {
	if in.Restarted.IsZero() || !isWorkload(d.Unstructured) {
		return nil
	}
	at := map[string]string{AnnotationRestarted: in.Restarted.UTC().Format(time.RFC3339)}
	return merge(d.Object, at, []string{"spec", "template", "metadata", "annotations"})
}

func merge(o map[string]any, add map[string]string, at []string) error {
	if len(add) == 0 {
		return nil
	}
	existing, _, err := unstructured.NestedFieldNoCopy(o, at...)
	if err != nil {
		return err
	}
	all, ok := existing.(map[string]any)
	if !ok && existing != nil {
		return fmt.Errorf("%v is not a mapping", at)
	}
	if all == nil {
		all = map[string]any{}
	}
	for name, value := range add {
		all[name] = value
	}
	return unstructured.SetNestedField(o, all, at...)
}

// templateOf is the path of the pod template in a kind. Custom kinds are not changed: their controllers define spec.template.
func templateOf(kind schema.GroupKind) []string {
	switch {
	case workloadOf[kind] != plain, kind == kindJob, kind == schema.GroupKind{Kind: "ReplicationController"}:
		return []string{"spec", "template"}
	case kind == schema.GroupKind{Group: "batch", Kind: "CronJob"}:
		return []string{"spec", "jobTemplate", "spec", "template"}
	}
	return nil
}

func unique(objects []declared) error {
	var duplicates []error
	seen := map[id]bool{}
	for _, o := range objects {
		if key := idOf(o.Unstructured); seen[key] {
			duplicates = append(duplicates, fmt.Errorf("%s is declared twice", key))
		} else {
			seen[key] = true
		}
	}
	return errors.Join(duplicates...)
}

func compareOrder(a, b declared) int {
	return cmp.Or(
		cmp.Compare(a.wave, b.wave),
		cmp.Compare(a.rank(), b.rank()),
		cmp.Compare(a.GetAPIVersion()+a.GetKind(), b.GetAPIVersion()+b.GetKind()),
		cmp.Compare(a.GetNamespace(), b.GetNamespace()),
		cmp.Compare(a.GetName(), b.GetName()),
	)
}

var (
	kindNamespace  = schema.GroupKind{Kind: "Namespace"}
	kindDefinition = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	kindPolicy     = schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}
	kindJob        = schema.GroupKind{Group: "batch", Kind: "Job"}
	kindClaim      = schema.GroupKind{Kind: "PersistentVolumeClaim"}
)

// firstWave is the wave of objects that contain or define others.
const firstWave = math.MinInt

// rank orders the objects of one wave by their kinds. Among the first are policies about definitions, before these.
func (d declared) rank() int {
	if d.wave == firstWave && d.GetKind() == kindPolicy.Kind {
		return -1
	}
	return rankOf(d.GetKind())
}

// isDefinitionPolicy reports whether an object is a policy about CustomResourceDefinitions, such as that of the Gateway API against older
// ones. It comes before them, so that those of a version are admitted by its own policy, and not by that of the version which it replaces.
// A policy with parameters does not: their kind may be one of those that are defined.
func isDefinitionPolicy(o *unstructured.Unstructured) bool {
	if o.GroupVersionKind().GroupKind() != kindPolicy || nestedMap(o.Object, "spec", "paramKind") != nil {
		return false
	}
	rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "matchConstraints", "resourceRules")
	return slices.ContainsFunc(rules, func(rule any) bool {
		fields, _ := rule.(map[string]any)
		groups, _, _ := unstructured.NestedStringSlice(fields, "apiGroups")
		return slices.Contains(groups, kindDefinition.Group)
	})
}

// waveOf reads the wave of an object. Namespaces and CustomResourceDefinitions always come first, and policies about definitions unless
// they have a wave.
func waveOf(o *unstructured.Unstructured) (int, error) {
	if kind := o.GroupVersionKind().GroupKind(); kind == kindNamespace || kind == kindDefinition {
		return firstWave, nil
	}
	text, ok := o.GetAnnotations()[AnnotationWave]
	switch {
	case !ok && isDefinitionPolicy(o):
		return firstWave, nil
	case !ok:
		return 0, nil
	}
	wave, err := strconv.ParseInt(text, 10, 32) // as in the compiler of payloads; hooks of charts have extreme weights
	if err != nil {
		return 0, fmt.Errorf("%s: annotation %s is %q; expected a whole number", idOf(o), AnnotationWave, text)
	}
	return int(wave), nil
}

// rankOf orders the kinds of one wave so that referenced objects come first. Unknown kinds come last: they are mostly custom ones,
// whose controllers find the rest.
func rankOf(kind string) int {
	order := [...]string{
		"Namespace", "CustomResourceDefinition", "PriorityClass", "RuntimeClass", "StorageClass", "IngressClass", "NetworkPolicy",
		"ResourceQuota", "LimitRange", "PodDisruptionBudget", "ServiceAccount", "Secret", "ConfigMap",
		"PersistentVolume", "PersistentVolumeClaim", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
		"Service", "DaemonSet", "Pod", "ReplicationController", "ReplicaSet", "Deployment", "StatefulSet",
		"HorizontalPodAutoscaler", "Job", "CronJob", "Ingress", "APIService",
		"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
	}
	if at := slices.Index(order[:], kind); at >= 0 {
		return at
	}
	return len(order)
}

// plainSecret moves the stringData of a Secret into its data, as the server would. The server does not record which keys came from
// stringData: a key that is no longer declared would stay for ever, without being visible. Values are checked here, because the
// server's error would show them.
func plainSecret(o *unstructured.Unstructured) error {
	if o.GroupVersionKind() != (schema.GroupVersionKind{Version: "v1", Kind: "Secret"}) {
		return nil
	}
	data := map[string]any{}
	for _, field := range []string{"data", "stringData"} {
		values, ok := o.Object[field].(map[string]any)
		if !ok && o.Object[field] != nil {
			return fmt.Errorf("%s: %s is not a mapping", idOf(o), field)
		}
		for _, key := range keysOf(values) {
			text, ok := values[key].(string)
			switch {
			case values[key] == nil:
			case !ok:
				return fmt.Errorf("%s: %s.%s is not a string; put it in quotes", idOf(o), field, key)
			case field == "stringData":
				text = base64.StdEncoding.EncodeToString([]byte(text))
			default:
				if _, err := base64.StdEncoding.DecodeString(text); err != nil {
					return fmt.Errorf("%s: data.%s is not base64; stringData takes plain text", idOf(o), key)
				}
			}
			data[key] = text
		}
	}
	if _, plain := o.Object["stringData"]; plain {
		delete(o.Object, "stringData")
		o.Object["data"] = data
	}
	return nil
}
