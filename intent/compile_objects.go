package intent

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// kubernetesDraft is what the layers of a service add up to for its objects in one channel.
type kubernetesDraft struct {
	at             string // where it was given last
	manifests      []placed[string]
	kustomize      placed[string]
	helm           *helmDraft
	prune, adopt   bool
	makesNamespace bool
}

// objects merges one layer: lists and single values replace.
func (d *draft) objects(in *strict.Decoder, at string, k *ServiceKubernetes) {
	if k == nil {
		return
	}
	if d.kubernetes == nil {
		d.kubernetes = &kubernetesDraft{}
	}
	merged := d.kubernetes
	merged.at = at
	if in.Has(at + ".manifests") {
		merged.manifests = placedList(at+".manifests", k.Manifests)
	}
	if k.Kustomize != "" {
		merged.kustomize = placed[string]{k.Kustomize, at + ".kustomize"}
	}
	merged.chart(in, at+".helm", k.Helm)
	if k.Prune != nil {
		merged.prune = *k.Prune
	}
	if k.Adopt != nil {
		merged.adopt = *k.Adopt
	}
	if k.CreateNamespace != nil {
		merged.makesNamespace = *k.CreateNamespace
	}
}

func placedList(at string, names []string) []placed[string] {
	list := make([]placed[string], 0, len(names))
	for i, name := range names {
		list = append(list, placed[string]{name, strict.Index(at, i)})
	}
	return list
}

// objectSet compiles the objects of one service in one channel.
type objectSet struct {
	*serviceCompiler
	scope     *scope
	draft     *kubernetesDraft
	ref       placeRef
	namespace string // resolved
	objects   []placed[*object]
	faulty    bool
}

// compileObjects checks the objects of a service in one channel and makes their bundle. What a
// release gives stays open.
func (s *serviceCompiler) compileObjects(scope *scope, d *kubernetesDraft, ref placeRef) (*kubernetesDoc, objectList) {
	set := &objectSet{serviceCompiler: s, scope: scope, draft: d, ref: ref}
	set.resolveNamespace()
	doc := &kubernetesDoc{Prune: d.prune, Adopt: d.adopt, CreateNamespace: d.makesNamespace}
	set.gather()
	set.chart(doc)
	set.unique()
	set.substitute(doc)
	if len(set.objects) == 0 && !set.faulty && !s.inputs.incomplete && !s.Faulty(d.at) {
		set.fail(d.at, Fault{Code: "no-objects", Message: "the service is made of no objects", Expected: "manifests, a kustomization or a chart with at least one"})
	}
	return doc, set.bundle(doc)
}

// fail reports a fault at a path of the service.
func (b *objectSet) fail(at string, fault Fault) {
	b.faulty = true
	b.reportIn(b.Decoder, at, b.scope.channel, trouble{inChannel: true, Fault: fault})
}

// failAt reports trouble at a path of an object: where its manifest stands, or where the service
// names what it was rendered from.
func (b *objectSet) failAt(o placed[*object], path string, t trouble) {
	b.faulty = true
	if o.v.origin == "" {
		b.reportIn(o.v.decoder, path, b.scope.channel, t)
		return
	}
	t.Message = fmt.Sprintf("%s (%s): %s", o.v.decoder.Shown(path), o.v.origin, t.Message)
	b.reportIn(b.Decoder, o.at, b.scope.channel, t)
}

var namespaceRE = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func (b *objectSet) resolveNamespace() {
	addresses := *b.scope
	addresses.addressOnly = true
	namespace, t := addresses.text(b.ref.namespace)
	if t != nil || namespace == "" {
		return // told
	}
	b.namespace = namespace
	if !namespaceRE.MatchString(namespace) && b.runtimes[b.ref.name].Kind == entities.RuntimeKubernetes {
		b.faulty = true
		b.reportIn(b.config.application.Decoder, b.ref.path+".namespace", b.scope.channel, trouble{inChannel: true, Fault: Fault{
			Code: "bad-name", Message: fmt.Sprintf("%q is no name of a namespace", strict.Clip(namespace)),
			Expected: "lower-case letters, digits and hyphens between them, at most 63",
		}})
	}
}

// gather collects the objects of all sources, in the order in which they are named.
func (b *objectSet) gather() {
	from := b.inputs
	taken := map[string]bool{} // a file that two entries lead to counts once
	for _, entry := range b.draft.manifests {
		clean, fault := localFile(entry.v)
		if fault != nil {
			continue // told
		}
		for _, file := range from.listed[path.Join(path.Dir(b.File), clean)] {
			if taken[file] {
				continue
			}
			taken[file] = true
			for _, o := range from.manifests[file] {
				b.objects = append(b.objects, placed[*object]{o, entry.at})
			}
		}
	}
	if clean, fault := localFile(b.draft.kustomize.v); fault == nil && b.draft.kustomize.v != "" {
		if built := from.built[path.Join(path.Dir(b.File), clean)]; built != nil {
			b.add(built, b.draft.kustomize.at)
		}
	}
}

func (b *objectSet) add(from *built, at string) {
	for _, o := range from.objects {
		b.objects = append(b.objects, placed[*object]{o, at})
	}
}

// substitute tries every text of the objects and notes which names they use.
func (b *objectSet) substitute(doc *kubernetesDoc) {
	names := map[string]bool{}
	for _, o := range b.objects {
		for _, text := range o.v.texts {
			v, t := b.scope.expand(text.text)
			if t == nil && v.kind == entities.ParamSecret {
				t = &trouble{Fault: secretInObject()}
			}
			if t != nil && t.param == "" { // else it is told where the parameter is
				b.failAt(o, text.path, *t)
			}
			for _, found := range substitution.FindAllStringSubmatch(text.text, -1) {
				names[strings.TrimSpace(found[1])] = true
			}
		}
	}
	doc.Names = strict.Keys(names)
}

func secretInObject() Fault {
	return Fault{
		Code: "secret-in-object", Message: "a secret of the worker cannot become part of an object",
		Expected: "a Kubernetes Secret that the object refers to",
	}
}

// bundle puts the objects in order, makes or finds their bundle, and lists them.
func (b *objectSet) bundle(doc *kubernetesDoc) objectList {
	list := objectList{}
	sorted := slices.Clone(b.objects)
	slices.SortStableFunc(sorted, func(x, y placed[*object]) int {
		return strings.Compare(x.v.sortKey(), y.v.sortKey())
	})
	kinds := map[string]int{}
	for _, o := range sorted {
		kinds[o.v.id()]++
	}
	key, size := strings.Builder{}, 0
	var data [][]byte
	for _, o := range sorted {
		id := o.v.id()
		if kinds[id] > 1 {
			id = o.v.kind + "." + o.v.group + strings.TrimPrefix(id, o.v.kind)
		}
		list[id] = o.v.digest[:12]
		key.WriteString(o.v.digest)
		size += len(o.v.data) + len(",\n")
		data = append(data, o.v.data)
	}
	if size > maxBundle {
		b.fail(b.draft.at, Fault{Code: "too-large", Message: fmt.Sprintf("the objects of the service have %d bytes", size), Expected: fmt.Sprintf("at most %d", maxBundle)})
		return list
	}
	made, ok := b.bundles[key.String()]
	if !ok {
		made = newBundle(data)
		b.bundles[key.String()] = made
	}
	doc.Bundle = made.Digest()
	return list
}

// allBundles lists the bundles made, by digest.
func (c *compiler) allBundles() []Bundle {
	byDigest := map[string]Bundle{}
	for _, b := range c.bundles {
		byDigest[b.Digest()] = b
	}
	var all []Bundle
	for _, digest := range strict.Keys(byDigest) {
		all = append(all, byDigest[digest])
	}
	return all
}
