package kubernetes

import (
	"context"
	"errors"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// Observe implements runtimes.Runtime from what is watched.
func (r *Runtime) Observe(context.Context, runtimes.Instance) ([]entities.Object, error) {
	return nil, errors.ErrUnsupported
}
