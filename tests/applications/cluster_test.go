package applications_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/converge-engine/converge/tests/kubetest"
)

// soon is the deadline of what follows within seconds.
const soon = 2 * time.Minute

// cluster reads and changes objects of any kind without Converge.
type cluster struct {
	*kubetest.Cluster

	t          *testing.T
	client     dynamic.Interface
	discovered discovery.DiscoveryInterface
	mapper     *restmapper.DeferredDiscoveryRESTMapper
	before     map[string]any // the spec of the edited object
}

func newCluster(t *testing.T, own *kubetest.Cluster) *cluster {
	t.Helper()
	client, err := dynamic.NewForConfig(own.Config)
	require.NoError(t, err)
	discovered, err := discovery.NewDiscoveryClientForConfig(own.Config)
	require.NoError(t, err)
	return &cluster{Cluster: own, t: t, client: client, discovered: discovered}
}

func (c *cluster) at(t *testing.T) *cluster {
	at := *c
	at.t, at.mapper = t, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.discovered))
	return &at
}

// objects is where objects of a kind are, in their own namespace or in this one.
func (c *cluster) objects(kind schema.GroupVersionKind, namespace string) dynamic.ResourceInterface {
	c.t.Helper()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		c.mapper.Reset()
		mapping, err = c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	require.NoError(c.t, err)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return c.client.Resource(mapping.Resource).Namespace(namespace)
	}
	return c.client.Resource(mapping.Resource)
}

func namespaceOf(o *unstructured.Unstructured, otherwise string) string {
	if o.GetNamespace() != "" {
		return o.GetNamespace()
	}
	return otherwise
}

// make creates objects, once their namespace is there.
func (c *cluster) make(namespace, text string) {
	c.t.Helper()
	kubetest.WaitFor(c.t, soon, func() (bool, string) {
		_, err := c.Client.CoreV1().Namespaces().Get(c.t.Context(), namespace, metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	for _, object := range parsed(c.t, []byte(text)) {
		_, err := c.objects(object.GroupVersionKind(), namespace).Create(c.t.Context(), object, metav1.CreateOptions{})
		require.NoError(c.t, err)
	}
}

// has requires that each declared object is there as declared: an apply of it by another client would
// change nothing.
func (c *cluster) has(namespace string, declared []*unstructured.Unstructured) {
	c.t.Helper()
	require.NotEmpty(c.t, declared)
	for _, object := range declared {
		name := object.GetKind() + "/" + object.GetName()
		objects := c.objects(object.GroupVersionKind(), namespaceOf(object, namespace))
		kubetest.WaitFor(c.t, soon, func() (bool, string) { // a controller may write it in between
			live, err := objects.Get(c.t.Context(), object.GetName(), metav1.GetOptions{})
			if err != nil {
				return false, name + ": " + err.Error()
			}
			applied, err := objects.Apply(c.t.Context(), object.GetName(), object, metav1.ApplyOptions{FieldManager: "reader", Force: true, DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				return false, name + ": " + err.Error()
			}
			was, would := content(c.t, live), content(c.t, applied)
			return was == would, fmt.Sprintf("%s is\n%s\nand would be\n%s", name, was, would)
		})
	}
}

// content is an object without what each write changes.
func content(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	o = o.DeepCopy()
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	o.SetGeneration(0)
	text, err := json.Marshal(o.Object)
	require.NoError(t, err)
	return string(text)
}

// edits are what a person changes of an object, by its type.
var edits = map[string]struct {
	schema.GroupVersionKind
	patch string
}{
	"Deployment": {schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, editedImage},
	"DaemonSet":  {schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}, editedImage},
	"CustomResourceDefinition": {
		schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		`[{"op": "replace", "path": "/spec/names/shortNames", "value": ["edited"]}]`,
	},
}

const editedImage = `[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "registry.shop.dev/edited:1"}]`

func (c *cluster) edited(namespace, object string) (in dynamic.ResourceInterface, name, patch string) {
	c.t.Helper()
	kind, name, _ := strings.Cut(object, "/")
	edit := edits[kind]
	return c.objects(edit.GroupVersionKind, namespace), name, edit.patch
}

// edit changes an object as a person does.
func (c *cluster) edit(namespace, object string) {
	c.t.Helper()
	objects, name, patch := c.edited(namespace, object)
	live, err := objects.Get(c.t.Context(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	c.before = live.Object["spec"].(map[string]any)
	_, err = objects.Patch(c.t.Context(), name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl-edit"})
	require.NoError(c.t, err)
}

// awaitRepair waits until the edited object is as it was before.
func (c *cluster) awaitRepair(namespace, object string) {
	c.t.Helper()
	objects, name, _ := c.edited(namespace, object)
	want, err := json.Marshal(c.before)
	require.NoError(c.t, err)
	kubetest.WaitFor(c.t, soon, func() (bool, string) {
		live, err := objects.Get(c.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		spec, err := json.Marshal(live.Object["spec"])
		return err == nil && string(spec) == string(want), string(spec)
	})
}

// left are the objects of all types with the label of an application, without those that go with their owner.
func (c *cluster) left(application string) (all []string) {
	c.t.Helper()
	_, lists, err := c.discovered.ServerGroupsAndResources()
	if !discovery.IsGroupDiscoveryFailedError(err) { // an API may be served by pods, which nobody runs here
		require.NoError(c.t, err)
	}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists) {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(c.t, err)
		for _, resource := range list.APIResources {
			found, err := c.client.Resource(group.WithResource(resource.Name)).List(c.t.Context(), metav1.ListOptions{LabelSelector: "converge/application=" + application})
			if apierrors.IsNotFound(err) { // its definition goes
				continue
			}
			require.NoError(c.t, err)
			for _, o := range found.Items {
				if len(o.GetOwnerReferences()) == 0 && o.GetKind() != "EndpointSlice" && o.GetKind() != "Endpoints" {
					all = append(all, o.GetKind()+"/"+o.GetName())
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
