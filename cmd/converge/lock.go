package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/origin"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/charts"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
)

// lockOptions are those of the verb that writes converge.lock.
type lockOptions struct {
	f             *Factory
	dir           string
	store         string
	update        bool
	allowCommands bool
	capabilities  bool
	runtimes      []string
}

func newCmdLock(f *Factory, runF func(context.Context, *lockOptions) error) *cobra.Command {
	o := &lockOptions{f: f}
	cmd := &cobra.Command{
		Use:   "lock [DIR]",
		Short: "Lock the versions and digests of charts",
		Long: `Resolve the charts that services name by repository and version, or by oci:// and version,
and write version and digest of each to converge.lock in the directory. Compiling uses
only the charts in this file, so commit it. What is locked stays as it is; --update
resolves all of it again, newer versions of ranges included, and prints what changed.

With --capabilities: let the workers query the clusters of the configuration's runtimes
for their version and their APIs, and write these to the file, for charts to see them as
.Capabilities; compiling queries no cluster. What a runtime declares itself (kubeVersion,
apiVersions) takes precedence. Charts stay as they are locked.

Credentials are those of docker login and of netrc.`,
		Example: `  converge config lock examples/kubernetes
  converge config lock --update
  converge config lock --capabilities --runtime eks-eu --update`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, parseDirArg(&o.dir)),
	}
	cmd.Flags().StringVar(&o.store, "store", "", "store with the libraries that are imported (CONVERGE_STORE)")
	cmd.Flags().BoolVar(&o.update, "update", false, "resolve locked charts again")
	cmd.Flags().BoolVar(&o.capabilities, "capabilities", false, "capture the capabilities of the runtimes' clusters")
	cmd.Flags().StringArrayVar(&o.runtimes, "runtime", nil, "with --capabilities: only of this runtime (repeatable)")
	cmd.Flags().BoolVar(&o.allowCommands, "allow-commands", false, allowCommandsUsage)
	return cmd
}

func (o *lockOptions) run(ctx context.Context) error {
	if o.capabilities {
		return o.capture(ctx)
	}
	if len(o.runtimes) > 0 {
		return errors.New("--runtime requires --capabilities")
	}
	var locked compile.Locked
	err := o.f.withSources(ctx, origin.Tree{}, o.store, o.allowCommands, func(options config.Options) (err error) {
		locked, err = compile.Lock(ctx, o.dir, options, o.update)
		return err
	})
	if err != nil {
		return o.f.problems(err, "; nothing written")
	}
	return o.print(locked)
}

// capture has the workers report the properties of clusters.
func (o *lockOptions) capture(ctx context.Context) error {
	application := publish.ApplicationIn(o.dir)
	location, err := o.f.storeOf(ctx, application, o.dir, o.store)
	if err != nil {
		return err
	}
	var locked compile.Locked
	err = o.f.withSources(ctx, origin.Tree{}, location, o.allowCommands, func(options config.Options) (err error) {
		locked, err = compile.LockCapabilities(o.dir, options, compile.Capture{Runtimes: o.runtimes, Refresh: o.update, Fetch: func(all []entities.RuntimeDefinition) ([]charts.Capabilities, error) {
			return o.clusterCapabilities(ctx, application, location, all)
		}})
		return err
	})
	if err != nil {
		return o.f.problems(err, "; nothing written")
	}
	return o.print(locked)
}

func (o *lockOptions) clusterCapabilities(ctx context.Context, application, location string, all []entities.RuntimeDefinition) ([]charts.Capabilities, error) {
	api, err := o.f.client(ctx)
	if err != nil {
		return nil, err
	}
	planner, err := (&planOptions{f: o.f}).planner(ctx, api, application, location)
	if err != nil {
		return nil, err
	}
	defer planner.Store.Close()
	found, err := planner.Capabilities(ctx, application, all)
	if err != nil {
		return nil, err
	}
	var out []charts.Capabilities
	for _, definition := range all {
		c := found[definition.Name]
		out = append(out, charts.CapabilitiesOf(definition.Name, c.KubeVersion, c.APIs))
	}
	return out, nil
}

func (o *lockOptions) print(locked compile.Locked) error {
	if o.f.structured() {
		return o.f.screen().Document(struct {
			Charts   int      `json:"charts"`
			Runtimes int      `json:"runtimes,omitempty"`
			Changes  []string `json:"changes"`
			Written  bool     `json:"written"`
		}{locked.Charts, locked.Runtimes, append([]string{}, locked.Changes...), locked.Written})
	}
	summary := entities.Count(locked.Charts, "chart")
	if locked.Runtimes > 0 {
		summary += " and the capabilities of " + entities.Count(locked.Runtimes, "runtime")
	}
	last := fmt.Sprintf("converge.lock has %s, as before", summary)
	switch {
	case locked.Written:
		last = fmt.Sprintf("converge.lock has %s now; commit it", summary)
	case locked.Charts+locked.Runtimes == 0 && o.capabilities:
		last = "nothing to lock: the configuration has no runtime on Kubernetes"
	case locked.Charts+locked.Runtimes == 0:
		last = "nothing to lock: no service names a chart by repository or registry"
	}
	return o.f.screen().Lines(append(locked.Changes, last)...)
}
