package kubernetes

import (
	"context"

	clientset "k8s.io/client-go/kubernetes"

	"github.com/converge-engine/converge/entities"
)

// Client is the shared connection to the cluster that def.Kubernetes names, relative to def.Dir, for
// those who need another kind of object than an instance's: commands that run as Jobs. It sends
// nothing. An error, of a kubeconfig that is not there for one, may be gone at the next call.
func (c *Clusters) Client(ctx context.Context, def entities.RuntimeDefinition) (clientset.Interface, error) {
	connected, err := c.cluster(def).connect(ctx)
	if err != nil {
		return nil, err
	}
	return connected.typed, nil
}
