package compile

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/bundle"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
	"github.com/converge-engine/converge/intent/sources"
)

// kubernetesDraft is the merged Kubernetes configuration of a service in one channel.
type kubernetesDraft struct {
	at             string // path of the last layer that set it
	manifests      []located[string]
	kustomize      located[string]
	helm           *helmDraft
	patches        []located[config.ObjectPatch]
	prune, adopt   bool
	makesNamespace located[config.CreateNamespace]
	removeClaims   bool
	foreign        string
	annotations    string // the tool whose annotations are honoured
	ignore         located[[]config.IgnoredDifference]
}

// objects merges one layer: lists and single values replace.
func (d *draft) objects(in *strict.Decoder, at string, k *config.ServiceKubernetes) {
	if k == nil {
		return
	}
	if d.kubernetes == nil {
		d.kubernetes = &kubernetesDraft{}
	}
	merged := d.kubernetes
	merged.at = at
	if in.Has(at + ".manifests") {
		merged.manifests = locatedList(at+".manifests", k.Manifests)
	}
	if k.Kustomize != "" {
		merged.kustomize = located[string]{k.Kustomize, at + ".kustomize"}
	}
	merged.chart(in, at+".helm", k.Helm)
	if in.Has(at + ".patches") {
		merged.patches = nil
		for i, p := range k.Patches {
			merged.patches = append(merged.patches, located[config.ObjectPatch]{p, strict.Index(at+".patches", i)})
		}
	}
	if k.Prune != nil {
		merged.prune = *k.Prune
	}
	if k.Adopt != nil {
		merged.adopt = *k.Adopt
	}
	if k.CreateNamespace != nil {
		merged.makesNamespace = located[config.CreateNamespace]{*k.CreateNamespace, at + ".createNamespace"}
	}
	if k.RemoveClaims != nil {
		merged.removeClaims = *k.RemoveClaims
	}
	merged.foreign = cmp.Or(string(k.Foreign), merged.foreign)
	merged.annotations = cmp.Or(string(k.Annotations), merged.annotations)
	if in.Has(at + ".ignoreDifferences") {
		merged.ignore = located[[]config.IgnoredDifference]{k.IgnoreDifferences, at + ".ignoreDifferences"}
	}
}

func locatedList(at string, names []string) []located[string] {
	list := make([]located[string], 0, len(names))
	for i, name := range names {
		list = append(list, located[string]{name, strict.Index(at, i)})
	}
	return list
}

// objectSet compiles the objects of one service in one channel.
type objectSet struct {
	*serviceCompiler
	scope     *substitute.Scope
	draft     *kubernetesDraft
	ref       runtimeRef
	namespace string // resolved
	objects   []located[*sources.Object]
	failed    bool
}

// compileObjects checks the objects of a service in one channel and makes their bundle. Values that a release provides stay open.
func (s *serviceCompiler) compileObjects(scope *substitute.Scope, d *kubernetesDraft, ref runtimeRef) (*incarnation.Kubernetes, incarnation.ObjectList) {
	set := &objectSet{serviceCompiler: s, scope: scope, draft: d, ref: ref}
	set.resolveNamespace()
	doc := &incarnation.Kubernetes{
		Prune: d.prune, Adopt: d.adopt, CreateNamespace: d.makesNamespace.v.On,
		RemoveClaims: d.removeClaims, RemoveForeign: d.foreign == "remove", Ignore: s.ignoredDifferences(s.Decoder, d.ignore.at, d.ignore.v),
	}
	if d.makesNamespace.v.On {
		doc.NamespaceLabels, doc.NamespaceAnnotations = d.makesNamespace.v.Labels, d.makesNamespace.v.Annotations
	}
	set.gather()
	set.chart(doc)
	set.patch()
	set.honourAnnotations(doc)
	set.rejectDuplicates()
	set.checkSchemas()
	set.checkOwnNames()
	for _, o := range set.objects {
		for _, warning := range o.v.Warnings {
			s.warnings[warning] = true
		}
	}
	doc.Names = set.substitute(secretsOfKubernetes)
	if len(set.objects) == 0 && !set.failed && !s.inputs.Incomplete && !s.Faulty(d.at) {
		set.fail(d.at, strict.Fault{Code: "no-objects", Message: "the service has no objects", Expected: "manifests, a kustomization or a chart with at least one"})
	}
	return doc, set.bundle(doc)
}

// fail reports a problem at a path of the service.
func (b *objectSet) fail(at string, fault strict.Fault) {
	b.failed = true
	b.reportIn(b.Decoder, at, b.scope.DisplayName(), substitute.ScopedFault{InChannel: true, Fault: fault})
}

// failAt reports a problem at a path of an object: in its manifest, or where the service names the source that it was rendered from.
func (b *objectSet) failAt(o located[*sources.Object], path string, t substitute.ScopedFault) {
	b.failed = true
	if o.v.Origin == "" {
		b.reportIn(o.v.Decoder, path, b.scope.DisplayName(), t)
		return
	}
	t.Message = fmt.Sprintf("%s (%s): %s", o.v.Decoder.DisplayPath(path), o.v.Origin, t.Message)
	b.reportIn(b.Decoder, o.at, b.scope.DisplayName(), t)
}

var namespaceRE = strict.Pattern(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func (b *objectSet) resolveNamespace() {
	addresses := *b.scope
	addresses.AddressOnly = true
	namespace, t := addresses.Text(b.ref.namespace)
	if t != nil || namespace == "" {
		return // already reported
	}
	b.namespace = namespace
	if !namespaceRE().MatchString(namespace) && b.runtimes[b.ref.name].Kind == entities.RuntimeKubernetes {
		b.failed = true
		b.reportIn(b.config.Application.Decoder, b.ref.path+".namespace", b.scope.DisplayName(), substitute.ScopedFault{InChannel: true, Fault: strict.Fault{
			Code: "bad-name", Message: fmt.Sprintf("invalid namespace %q", strict.Clip(namespace)),
			Expected: "lower-case letters, digits and hyphens between them, at most 63",
		}})
	}
}

// gather collects the objects of all sources in the order of their declaration.
func (b *objectSet) gather() {
	from := b.inputs
	taken := map[string]bool{} // a file that two entries include counts once
	for _, entry := range b.draft.manifests {
		clean, fault := config.LocalFile(entry.v)
		if fault != nil {
			continue // already reported
		}
		for _, file := range from.Listed[path.Join(path.Dir(b.File), clean)] {
			if taken[file] {
				continue
			}
			taken[file] = true
			for _, o := range from.Manifests[file] {
				b.objects = append(b.objects, located[*sources.Object]{o, entry.at})
			}
		}
	}
	if clean, fault := config.LocalFile(b.draft.kustomize.v); fault == nil && b.draft.kustomize.v != "" {
		if built := from.Built[path.Join(path.Dir(b.File), clean)]; built != nil {
			b.add(built, b.draft.kustomize.at)
		}
	}
}

func (b *objectSet) add(from *sources.Built, at string) {
	for _, o := range from.Objects {
		b.objects = append(b.objects, located[*sources.Object]{o, at})
	}
}

// substitute tries every text of the objects and records the names that they use. Secret is the advice for texts with secrets.
func (b *objectSet) substitute(secret string) []string {
	names := map[string]bool{}
	for _, o := range b.objects {
		for _, text := range o.v.Texts {
			v, t := b.scope.Expand(text.Text)
			if t == nil && v.Kind == entities.ParamSecret {
				t = &substitute.ScopedFault{Fault: secretInObject(secret)}
			}
			if t != nil && t.Param == "" { // otherwise reported at the parameter
				b.failAt(o, text.Path, *t)
			}
			for _, found := range substitute.Pattern.FindAllStringSubmatch(text.Text, -1) {
				names[strings.TrimSpace(found[1])] = true
			}
		}
	}
	return strict.Keys(names)
}

const secretsOfKubernetes = "a Kubernetes Secret that the object refers to"

func secretInObject(expected string) strict.Fault {
	return strict.Fault{
		Code: "secret-in-object", Message: "a secret of the worker cannot become part of an object",
		Expected: expected,
	}
}

// bundle sorts the objects, makes or reuses their bundle, and lists them.
func (b *objectSet) bundle(doc *incarnation.Kubernetes) incarnation.ObjectList {
	list := incarnation.ObjectList{}
	sorted := slices.Clone(b.objects)
	slices.SortStableFunc(sorted, func(x, y located[*sources.Object]) int {
		return strings.Compare(x.v.SortKey(), y.v.SortKey())
	})
	kinds := map[string]int{}
	for _, o := range sorted {
		kinds[o.v.ID()]++
	}
	key, size, secret := strings.Builder{}, 0, false
	var data [][]byte
	for _, o := range sorted {
		id := o.v.ID()
		if kinds[id] > 1 {
			id = o.v.Kind + "." + o.v.Group + strings.TrimPrefix(id, o.v.Kind)
		}
		list[id] = b.digestOf(o.v)
		secret = secret || isSecret(o.v)
		key.WriteString(o.v.Digest)
		size += len(o.v.Data) + len(",\n")
		data = append(data, o.v.Data)
	}
	if size > bundle.MaxBytes {
		b.fail(b.draft.at, strict.Fault{Code: "too-large", Message: fmt.Sprintf("the objects of the service have %d bytes", size), Expected: fmt.Sprintf("at most %d", bundle.MaxBytes)})
		return list
	}
	made, ok := b.bundles[key.String()]
	if !ok {
		made = bundle.New(data)
		if secret {
			made = bundle.NewSecret(data, b.config.Options.SecretDigest)
		}
		b.bundles[key.String()] = made
	}
	doc.Bundle = made.Digest()
	return list
}

// isSecret reports whether an object holds readable secrets. SOPS cipher text is not secret; it is in the repository, too.
func isSecret(o *sources.Object) bool { return o.Group == "" && o.Kind == "Secret" && !o.Encrypted }

// digestOf returns the digest of an object. The digest of a Secret does not allow an attacker to confirm a guess.
func (c *compiler) digestOf(o *sources.Object) string {
	if digest := c.config.Options.SecretDigest; digest != nil && isSecret(o) {
		return digest(o.Data)
	}
	return o.Digest
}

// allBundles lists the bundles by digest.
func (c *compiler) allBundles() []bundle.Bundle {
	byDigest := map[string]bundle.Bundle{}
	for _, b := range c.bundles {
		byDigest[b.Digest()] = b
	}
	return strict.Map(strict.Keys(byDigest), func(digest string) bundle.Bundle { return byDigest[digest] })
}

// objectKey identifies an object in a cluster.
type objectKey struct{ runtime, group, kind, namespace, name string }

// objectOwner identifies the service, channel and source that declare an object, and the service that takes it over.
type objectOwner struct{ service, channel, source, movedTo string }

// clusterKinds lists cluster-scoped kinds by group. Their objects ignore the namespace of a manifest, so a second channel on the same
// cluster would declare the same object. The scope of other kinds is known only to the cluster.
var clusterKinds = map[string][]string{
	"":                             {"Namespace", "Node", "PersistentVolume"},
	"admissionregistration.k8s.io": {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"},
	"apiextensions.k8s.io":         {"CustomResourceDefinition"},
	"apiregistration.k8s.io":       {"APIService"},
	"networking.k8s.io":            {"IngressClass"},
	"node.k8s.io":                  {"RuntimeClass"},
	"rbac.authorization.k8s.io":    {"ClusterRole", "ClusterRoleBinding"},
	"scheduling.k8s.io":            {"PriorityClass"},
	"storage.k8s.io":               {"CSIDriver", "CSINode", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"},
}

// rejectDuplicates rejects an object that two sources of the service declare, and one that another service, or the same service in another
// channel, declares for the same cluster and namespace (D11).
func (b *objectSet) rejectDuplicates() {
	own := map[objectKey]*sources.Object{}
	for _, o := range b.objects {
		key, ok := b.keyOf(o.v)
		if !ok {
			continue
		}
		if earlier := own[key]; earlier != nil {
			b.failAt(o, o.v.NamedAt, substitute.ScopedFault{Fault: strict.Fault{
				Code: "duplicate-object", Message: fmt.Sprintf("%s/%s is declared twice, first in %s", key.kind, key.name, earlier.Source), Expected: "one declaration",
			}})
			continue
		}
		own[key] = o.v
		b.recordOwner(key, o)
	}
}

func (b *objectSet) recordOwner(key objectKey, o located[*sources.Object]) {
	service := string(b.Spec.Name)
	earlier, declared := b.objectOwners[key]
	switch {
	case !declared:
		b.objectOwners[key] = objectOwner{service, b.scope.Channel, o.v.Source, o.v.MovedTo()}
	case earlier.channel == b.scope.Channel && earlier.service != service && (earlier.movedTo == service || o.v.MovedTo() == earlier.service):
		// It moves between the two.
	case earlier.service != service:
		b.failAt(o, o.v.NamedAt, substitute.ScopedFault{InChannel: true, Fault: strict.Fault{
			Code: "duplicate-object", Message: fmt.Sprintf("%s of runtime %s is declared by service %q too, in %s,", key, key.runtime, earlier.service, earlier.source),
			Expected: "one service to declare it, or the annotation converge/moved-to on the one that hands it over",
		}})
	default:
		b.failAt(o, o.v.NamedAt, substitute.ScopedFault{InChannel: true, Fault: strict.Fault{
			Code: "duplicate-object", Message: fmt.Sprintf("%s of runtime %s belongs to release channel %s, and cannot be declared again", key, key.runtime, earlier.channel),
			Expected: conflictHint(o.v),
		}})
	}
}

// conflictHint returns how two channels on one cluster can avoid the conflict.
func conflictHint(o *sources.Object) string {
	if o.Group == sources.GroupECS {
		return "a separate name such as " + o.Name + "-${{ channel }}"
	}
	if o.Kind == "CustomResourceDefinition" {
		return "the definition in one release channel only; includeCRDs: false omits those of a chart"
	}
	return "another namespace, or a separate name such as " + o.Name + "-${{ channel }}"
}

// keyOf returns the identity of an object in its cluster; false if its name is not known, which is reported elsewhere.
func (b *objectSet) keyOf(o *sources.Object) (objectKey, bool) {
	name, t := b.scope.Text(o.Name)
	if t != nil {
		return objectKey{}, false
	}
	namespace, t := b.scope.Text(o.Namespace)
	if t != nil {
		return objectKey{}, false
	}
	switch {
	case slices.Contains(clusterKinds[o.Group], o.Kind):
		namespace = ""
	case namespace == "":
		namespace = b.namespace
	}
	return objectKey{b.ref.name, o.Group, o.Kind, namespace, name}, true
}

// String is Deployment/web in namespace shop.
func (k objectKey) String() string {
	if k.namespace == "" {
		return k.kind + "/" + k.name
	}
	return fmt.Sprintf("%s/%s in namespace %s", k.kind, k.name, k.namespace)
}
