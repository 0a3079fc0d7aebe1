package kubernetes

import (
	"context"
	"errors"

	"github.com/converge-engine/converge/runtimes"
)

// Apply implements runtimes.Runtime by server-side apply.
func (r *Runtime) Apply(context.Context, runtimes.Instance) (runtimes.Output, error) {
	return runtimes.Output{}, errors.ErrUnsupported
}
