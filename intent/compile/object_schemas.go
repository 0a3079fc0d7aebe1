package compile

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/apischema"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
	"github.com/converge-engine/converge/intent/sources"
)

// customKinds are the kinds of CustomResourceDefinitions of the application, and the objects that may be of them. All services are compiled
// before the objects are checked, since the definition may be in any service of the same cluster.
type customKinds struct {
	definitions map[customKind]*apischema.Custom
	objects     []customObject
	parsed      map[*sources.Object]*apischema.Custom // the same definition in several release channels
	checked     map[checkedObject]apischema.Result
}

type customKind struct{ runtime, group, kind string }

type customObject struct {
	set    *objectSet
	object located[*sources.Object]
}

type checkedObject struct {
	object *sources.Object
	custom *apischema.Custom
}

func newCustomKinds() *customKinds {
	return &customKinds{definitions: map[customKind]*apischema.Custom{}, parsed: map[*sources.Object]*apischema.Custom{}, checked: map[checkedObject]apischema.Result{}}
}

// checkSchemas reports what the cluster does not have, and names that are invalid in the release channel, and collects custom kinds.
func (b *objectSet) checkSchemas() {
	for _, o := range b.objects {
		b.reportFound(o, apischema.Result{Uses: o.v.Uses, Names: o.v.Open})
		switch {
		case o.v.Encrypted:
		case isDefinition(o.v):
			if custom := b.custom.parse(o.v); custom != nil {
				b.custom.definitions[customKind{b.ref.name, custom.Group, custom.Kind}] = custom
			}
		case strings.Contains(o.v.Group, "."):
			b.custom.objects = append(b.custom.objects, customObject{b, o})
		}
	}
}

func isDefinition(o *sources.Object) bool {
	return o.Group == "apiextensions.k8s.io" && o.Kind == "CustomResourceDefinition"
}

// parse reads a definition; nil if it defines no kind.
func (k *customKinds) parse(o *sources.Object) *apischema.Custom {
	custom, parsed := k.parsed[o]
	if !parsed {
		custom = apischema.NewCustom(o.Fields())
		k.parsed[o] = custom
	}
	return custom
}

// checkCustomKinds checks the objects of all services whose kinds the application defines.
func (c *compiler) checkCustomKinds() {
	for _, each := range c.custom.objects {
		o := each.object.v
		custom := c.custom.definitions[customKind{each.set.ref.name, o.Group, o.Kind}]
		if custom == nil {
			continue
		}
		key := checkedObject{o, custom}
		found, checked := c.custom.checked[key]
		if !checked {
			found = custom.Check(o.Decoder, o.Fields())
			c.custom.checked[key] = found
		}
		each.set.reportFound(each.object, found)
	}
}

// reportFound reports what a check by a schema finds. If the version of the cluster is not known, a field that only some supported versions
// have is a warning.
func (b *objectSet) reportFound(o located[*sources.Object], found apischema.Result) {
	for _, p := range found.Problems {
		b.failAt(o, p.Path, substitute.ScopedFault{Fault: p.Fault})
	}
	minor := apischema.Minor(b.clusterVersion())
	for _, use := range found.Uses {
		fault, isWarning := use.Fault(minor)
		switch {
		case fault == nil:
		case isWarning:
			b.warnings[o.v.Warning(use.Path, fault.Message)] = true
		default:
			b.failAt(o, use.Path, substitute.ScopedFault{InChannel: minor != 0 && fault.Code == apischema.CodeVersion, Fault: *fault})
		}
	}
	for _, name := range found.Names {
		text, t := b.scope.Text(name.Text)
		if t != nil || config.HasSubstitution(text) {
			continue // reported elsewhere, or only a release knows it
		}
		if fault := name.Fault(text); fault != nil {
			b.failAt(o, name.Path, substitute.ScopedFault{InChannel: true, Fault: *fault})
		}
	}
}

// maxObjectName is the longest name of an object in bytes.
const maxObjectName = 253

// checkOwnNames checks the names that Converge writes: the labels of the namespace that it creates, and its record of the objects, a
// ConfigMap with the names of the application, the service, the release channel and the runtime of a fleet.
func (b *objectSet) checkOwnNames() {
	namespace := b.draft.makesNamespace
	for _, p := range apischema.CheckMetadata(namespace.at, namespace.v.Labels, namespace.v.Annotations) {
		b.fail(p.Path, p.Fault)
	}
	name := strings.Join([]string{"converge", b.scope.Application, b.scope.Service, b.scope.Channel, b.scope.Instance}, ".")
	if longer := len(name) - maxObjectName; longer > 0 {
		b.fail("name", strict.Fault{
			Code: "bad-name", Message: fmt.Sprintf("the ConfigMap %s would have a name of %d characters", strict.Clip(name), len(name)),
			Expected: fmt.Sprintf("names of the application, the service, the release channel and the runtime that are %d shorter together", longer),
		})
	}
}

// clusterVersion is the version of Kubernetes of the runtime: the declared one, otherwise the captured one; "" if it is unknown.
func (b *objectSet) clusterVersion() string {
	cluster := b.runtimes[b.ref.name].Kubernetes
	if cluster == nil {
		return ""
	}
	captured, _ := b.inputs.Captured.CapabilitiesOf(b.ref.name)
	return cmp.Or(cluster.KubeVersion, captured.KubeVersion)
}
