package secret

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes/kubernetes/api"
)

// Clusters reads Secrets of clusters, through the connections of a worker.
type Clusters struct {
	// Client connects to the cluster that def.Kubernetes names.
	Client func(ctx context.Context, def entities.RuntimeDefinition) (*api.Client, error)
}

// Fetch implements Store.
func (c Clusters) Fetch(ctx context.Context, v entities.Value) ([]byte, error) {
	client, err := c.Client(ctx, entities.RuntimeDefinition{Kubernetes: &entities.KubernetesRuntime{Context: v.Context}})
	if err != nil {
		return nil, fmt.Errorf("cannot be requested: %w", err)
	}
	s, err := client.Secrets(v.Namespace).Get(ctx, v.KubernetesSecret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, errors.New("does not exist")
	case apierrors.IsForbidden(err):
		return nil, errors.New("this worker's account in the cluster may not read")
	case err != nil:
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	value, ok := s.Data[v.Key]
	if !ok {
		return nil, errors.New("has no such key")
	}
	return value, nil
}
