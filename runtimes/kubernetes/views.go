package kubernetes

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

// views are the watched objects of one cluster: one informer per kind, restricted to objects with
// our labels, over all namespaces where the server allows it and per namespace where not.
type views struct{}

// view is one kind as it is watched.
type view struct{}

// view begins to watch a resource when nobody did, and waits until it was listed. The error is a
// *entities.ReadingError, also when what was listed once can no longer be watched: what is cached
// then is old, and old is unknown.
func (c *cluster) view(context.Context, resource, string) (*view, error) {
	return nil, errors.ErrUnsupported
}

// get is an object of ours, nil when there is none. It is shared: not to be changed. managedFields
// are not kept.
func (v *view) get(namespace, name string) *unstructured.Unstructured { return nil }

// of lists the objects of an instance.
func (v *view) of(runtimes.Owner) []*unstructured.Unstructured { return nil }

// Watch implements runtimes.Watcher.
func (r *Runtime) Watch(hint func(runtimes.Owner)) (stop func()) { return func() {} }
