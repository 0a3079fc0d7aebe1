package kubernetes

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/runtimes"
)

// declared is one object as it shall be: namespace, labels and annotations of its instance set, and
// in workloads (anything with spec.template) those of the pod template too.
type declared struct {
	*unstructured.Unstructured
	wave   int
	digest string // of the object as it is applied: what a verdict about drift is about
}

// id names an object in the cluster, whatever the version of its kind.
type id struct {
	kind            schema.GroupKind
	namespace, name string
}

// declare makes the objects of an instance from its payload, in the order of their waves. It asks
// the server only how kinds are scoped; a kind that it does not serve yet counts as namespaced.
func (r *Runtime) declare(context.Context, runtimes.Instance) ([]declared, error) {
	return nil, errors.ErrUnsupported
}
