package compile

import (
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/apischema"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
	"github.com/converge-engine/converge/intent/sources"
)

// unhonoured are the objects that carry an annotation of another tool that has no effect here.
type unhonoured map[unhonouredAnnotation][]*sources.Object

type unhonouredAnnotation struct{ name, reason string }

// honourAnnotations gives objects the meaning that their annotations have for the tool that the service names, and warns of each that has no
// effect.
func (b *objectSet) honourAnnotations(doc *incarnation.Kubernetes) {
	ignored := unhonoured{}
	defined := b.definedKinds()
	kept := b.objects[:0:0]
	for _, o := range b.objects {
		if o.v.HookOfArgoCD && b.draft.annotations != sources.ArgoCD {
			b.failAt(o, o.v.NamedAt, substitute.ScopedFault{Fault: sources.GeneratedNameFault(`"name", or kubernetes.annotations: argocd, which makes it a hook`)})
			continue
		}
		for _, tool := range []string{sources.ArgoCD, sources.Flux} {
			servedFirst := apischema.IsBuiltin(o.v.Group) || defined[[2]string{o.v.Group, o.v.Kind}]
			if o.v = b.honour(doc, o, tool, servedFirst, ignored); o.v == nil {
				break
			}
		}
		if o.v != nil {
			kept = append(kept, o)
		}
	}
	b.objects = kept
	for annotation, objects := range ignored {
		b.warnings[fmt.Sprintf("%s of %s is not honoured%s", annotation.name, objectsText(objects), annotation.reason)] = true // a set
	}
}

// definedKinds are the groups and kinds of the definitions among the objects.
func (b *objectSet) definedKinds() map[[2]string]bool {
	defined := map[[2]string]bool{}
	for _, o := range b.objects {
		if isDefinition(o.v) {
			if custom := b.custom.parse(o.v); custom != nil {
				defined[[2]string{custom.Group, custom.Kind}] = true
			}
		}
	}
	return defined
}

// honour returns an object after the annotations of one tool; nil: it is left out. servedFirst is as in sources.Object.Honour.
func (b *objectSet) honour(doc *incarnation.Kubernetes, o located[*sources.Object], tool string, servedFirst bool, ignored unhonoured) *sources.Object {
	h, err := o.v.Honour(tool, servedFirst)
	if err != nil {
		return o.v // it was made from the same JSON
	}
	for _, name := range strict.Keys(h.Refused) {
		if b.draft.annotations == tool || !slices.Contains(h.Changes, name) {
			ignored.add(name, ": "+h.Refused[name], o.v)
		}
	}
	if b.draft.annotations != tool {
		for _, name := range h.Changes {
			ignored.add(name, "; set kubernetes.annotations: "+tool+", or use the annotations of Converge", o.v)
		}
		return o.v
	}
	if h.CreateOnly {
		pointers, err := o.v.Pointers()
		if err == nil {
			doc.Ignore = append(doc.Ignore, entities.IgnoredDifference{Group: o.v.Group, Kind: o.v.Kind, Name: o.v.Name, JSONPointers: pointers})
		}
	}
	if h.Excluded != "" {
		b.exclude(doc, o, h.Excluded)
	}
	return h.Object
}

// exclude records that an object is left alone. Its name must be known before a release.
func (b *objectSet) exclude(doc *incarnation.Kubernetes, o located[*sources.Object], reason string) {
	addresses := *b.scope
	addresses.AddressOnly = true
	name, unknownName := addresses.Text(o.v.Name)
	namespace, unknownNamespace := addresses.Text(o.v.Namespace)
	if unknownName != nil || unknownNamespace != nil {
		b.failAt(o, o.v.NamedAt, substitute.ScopedFault{Fault: strict.Fault{
			Code: "no-substitution", Message: "the name of an object that is left alone depends on the release", Expected: "a name that only the release channel determines",
		}})
		return
	}
	doc.Excluded = append(doc.Excluded, entities.ExcludedObject{Group: o.v.Group, Kind: o.v.Kind, Namespace: namespace, Name: name, Reason: reason})
}

func (u unhonoured) add(name, reason string, o *sources.Object) {
	at := unhonouredAnnotation{name, reason}
	u[at] = append(u[at], o)
}

// objectsText is "Job/migrate and 3 other objects".
func objectsText(all []*sources.Object) string {
	switch len(all) {
	case 1:
		return all[0].ID()
	case 2:
		return all[0].ID() + " and " + all[1].ID()
	}
	return fmt.Sprintf("%s and %d other objects", all[0].ID(), len(all)-1)
}
