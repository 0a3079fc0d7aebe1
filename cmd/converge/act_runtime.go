package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/protocol"
)

// runtimeOptions are the options of runtime pause and runtime resume.
type runtimeOptions struct {
	f       *Factory
	verb    string
	runtime string
	reason  string
	yes     bool
}

func newCmdRuntimePause(f *Factory, runF func(context.Context, *runtimeOptions) error) *cobra.Command {
	return newRuntimeCmd(f, protocol.Pause, runF, cobra.Command{
		Short: "Pause everything on a runtime",
		Long: `Pause everything on a runtime: it is still observed, but nothing is applied there. An apply
in progress finishes. Services that are added later are paused there too.`,
		Example: `  converge runtime pause eks-eu --yes --reason "cluster upgrade"`,
	})
}

func newCmdRuntimeResume(f *Factory, runF func(context.Context, *runtimeOptions) error) *cobra.Command {
	return newRuntimeCmd(f, protocol.Resume, runF, cobra.Command{
		Short: "End the pause of a runtime",
		Long: `End the pause of a runtime. Each pause ends only where it began: a service that was paused
individually stays paused.`,
		Example: `  converge runtime resume eks-eu`,
	})
}

func newRuntimeCmd(f *Factory, verb string, runF func(context.Context, *runtimeOptions) error, texts cobra.Command) *cobra.Command {
	o := &runtimeOptions{f: f, verb: verb}
	cmd := &texts
	cmd.Use, cmd.Args = verb+" RUNTIME", argsFromUse
	cmd.RunE = newRunE(o, runF, o.run, func(args []string) error {
		o.runtime = args[0]
		return checkName("a runtime", o.runtime)
	})
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, shown to other users")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "skip the confirmation")
	return cmd
}

// run pauses or resumes a runtime: while it is paused, nothing is applied there for any service (A16). A runtime without a limit
// on its applies has no workflow until its first pause. The workflow is started only if some service uses the runtime.
func (o *runtimeOptions) run(ctx context.Context) error {
	if err := o.f.confirm(ctx, o.yes, fmt.Sprintf("%s everything on runtime %s", o.verb, o.runtime)); err != nil {
		return err
	}
	act, w := o.f.newAct(o.reason), runtimeScope(o.runtime)
	if o.verb == protocol.Pause {
		if err := o.f.ensureRuntime(ctx, o.runtime, w.id); err != nil {
			return err
		}
	}
	return o.f.actOnScope(ctx, w, o.verb, act, act)
}

// ensureRuntime makes sure that a runtime that services use has its workflow.
func (f *Factory) ensureRuntime(ctx context.Context, name, id string) error {
	api, err := f.client(ctx)
	if err != nil {
		return err
	}
	var status protocol.RuntimeStatus
	if err := api.Query(ctx, id, protocol.QueryStatus, &status); !errors.Is(err, connection.ErrNotFound) {
		return err
	}
	used, err := f.usedRuntimes(ctx)
	if !slices.Contains(used, name) {
		return errors.Join(fmt.Errorf("no service uses runtime %s%s", name, read.Suggestion(name, used)), err)
	}
	return connection.StartRuntime(ctx, api, name)
}

// usedRuntimes lists the runtimes that services use, sorted. With an error it lists those of the services that answered.
func (f *Factory) usedRuntimes(ctx context.Context) (used []string, err error) {
	api, err := f.client(ctx)
	if err != nil {
		return nil, err
	}
	return read.UsedRuntimes(ctx, api)
}
