package kubernetes

import (
	"context"
	"errors"

	"github.com/converge-engine/converge/runtimes"
)

// Plan implements runtimes.Planner by the server's dry run.
func (r *Runtime) Plan(context.Context, runtimes.Instance) ([]runtimes.Change, error) {
	return nil, errors.ErrUnsupported
}
