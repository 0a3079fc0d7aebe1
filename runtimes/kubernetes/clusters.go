package kubernetes

import (
	"context"
	"errors"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/converge-engine/converge/entities"
)

// Clusters are the connections of one worker, shared by all runtimes that name the same cluster in
// the same way. The zero value is ready.
type Clusters struct {
	mu  sync.Mutex
	all map[string]*cluster
}

// Close ends every watch and closes the connections.
func (c *Clusters) Close() {}

func (c *Clusters) cluster(entities.RuntimeDefinition) *cluster { return &cluster{} }

// cluster is one API server. It connects when first used; an error of connecting is met again, and
// mended without a restart, at the next use.
type cluster struct {
	views *views
}

// clients are what a connected cluster is spoken to with.
type clients struct {
	config  *rest.Config
	dynamic dynamic.Interface
	typed   clientset.Interface
}

func (c *cluster) connect(context.Context) (*clients, error) { return nil, errors.ErrUnsupported }

// resource is a kind as the API server serves it.
type resource struct {
	schema.GroupVersionResource
	kind       schema.GroupVersionKind
	namespaced bool
}

// resource finds how a kind is served. An unknown kind is asked for again, but not at every call, so
// that a CustomResourceDefinition that was just applied is found; the error is then a
// *meta.NoKindMatchError.
func (c *cluster) resource(context.Context, schema.GroupVersionKind) (resource, error) {
	return resource{}, errors.ErrUnsupported
}

// at is the client of a resource in a namespace ("" for cluster-scoped ones).
func (c *clients) at(r resource, namespace string) dynamic.ResourceInterface {
	if !r.namespaced {
		return c.dynamic.Resource(r.GroupVersionResource)
	}
	return c.dynamic.Resource(r.GroupVersionResource).Namespace(namespace)
}

var _ = metav1.NamespaceAll
