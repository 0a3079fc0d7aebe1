package custom

import (
	"context"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/runtimes"
)

// Remove implements runtimes.Remover by running the remove command (A24). It gets the environment and
// the files of an apply of what is there, and has to succeed when nothing is left to do. Its exit codes
// mean what they mean for apply. A runtime without the command cannot take anything down.
func (r *Runtime) Remove(ctx context.Context, in runtimes.Instance) error {
	cmd := r.def.Custom.Remove
	if cmd == nil {
		return runtimes.Permanent(fmt.Errorf("remove %s/%s from %s: runtime %s has no remove command", in.Application, in.Service, in.Channel, r.def.Name))
	}
	if in.Payload == nil {
		return ctx.Err()
	}
	res := r.run(ctx, call{
		doing:   fmt.Sprintf("remove %s/%s from %s", in.Application, in.Service, in.Channel),
		timeout: first(cmd.Timeout, r.def.Timing.ApplyTimeout, defaultApplyTimeout),
		argv:    cmd.Argv,
		remove:  true,
	}, in)
	if res.err != nil || res.out.ExitCode == 0 {
		return res.err
	}
	err := res.exited()
	if res.signal == "" && len(cmd.RetryableExitCodes) > 0 && !slices.Contains(cmd.RetryableExitCodes, res.out.ExitCode) {
		err = runtimes.Permanent(err)
	}
	return err
}
