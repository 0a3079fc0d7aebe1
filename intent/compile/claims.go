package compile

import (
	"fmt"
	"slices"

	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
	"github.com/converge-engine/converge/intent/sources"
)

// claimKey names an object in a cluster.
type claimKey struct{ runtime, group, kind, namespace, name string }

// claim is who declares it.
type claim struct{ service, channel, source string }

// clusterKinds are the kinds, by group, whose objects belong to no namespace whatever a manifest
// says: a second channel on the same cluster would declare the same object. Of kinds that are not
// listed the cluster alone knows.
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

// unique refuses an object that two sources of the service declare, and one that another service, or
// the same one in another channel, declares for the same cluster and namespace (D11).
func (b *objectSet) unique() {
	own := map[claimKey]*sources.Object{}
	for _, o := range b.objects {
		key, ok := b.claimKey(o.v)
		if !ok {
			continue
		}
		if earlier := own[key]; earlier != nil {
			b.failAt(o, "metadata.name", substitute.Trouble{Fault: strict.Fault{
				Code: "duplicate-object", Message: fmt.Sprintf("%s/%s is declared twice, first in %s", key.kind, key.name, earlier.Source), Expected: "one declaration",
			}})
			continue
		}
		own[key] = o.v
		b.claim(key, o)
	}
}

func (b *objectSet) claim(key claimKey, o placed[*sources.Object]) {
	service := string(b.Spec.Name)
	earlier, taken := b.claims[key]
	switch {
	case !taken:
		b.claims[key] = claim{service, b.scope.Channel, o.v.Source}
	case earlier.service != service:
		b.failAt(o, "metadata.name", substitute.Trouble{InChannel: true, Fault: strict.Fault{
			Code:     "duplicate-object",
			Message:  fmt.Sprintf("%s of runtime %s is declared by service %q too, in %s,", key, key.runtime, earlier.service, earlier.source),
			Expected: "one service to declare it",
		}})
	default:
		b.failAt(o, "metadata.name", substitute.Trouble{InChannel: true, Fault: strict.Fault{
			Code:     "duplicate-object",
			Message:  fmt.Sprintf("%s of runtime %s belongs to release channel %s, and cannot be declared again", key, key.runtime, earlier.channel),
			Expected: onceOnly(o.v),
		}})
	}
}

// onceOnly says how two channels on one cluster stay out of each other's way.
func onceOnly(o *sources.Object) string {
	if o.Kind == "CustomResourceDefinition" {
		return "it in one release channel only; includeCRDs: false leaves out those of a chart"
	}
	return "another namespace, or a name of its own such as " + o.Name + "-${{ channel }}"
}

// claimKey names an object in its cluster; false when its name cannot be told, which is reported
// elsewhere.
func (b *objectSet) claimKey(o *sources.Object) (claimKey, bool) {
	name, t := b.scope.Text(o.Name)
	if t != nil {
		return claimKey{}, false
	}
	namespace, t := b.scope.Text(o.Namespace)
	if t != nil {
		return claimKey{}, false
	}
	switch {
	case slices.Contains(clusterKinds[o.Group], o.Kind):
		namespace = ""
	case namespace == "":
		namespace = b.namespace
	}
	return claimKey{b.ref.name, o.Group, o.Kind, namespace, name}, true
}

// String is Deployment/web in namespace shop.
func (k claimKey) String() string {
	if k.namespace == "" {
		return k.kind + "/" + k.name
	}
	return fmt.Sprintf("%s/%s in namespace %s", k.kind, k.name, k.namespace)
}
