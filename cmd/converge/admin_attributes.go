package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/worker"
)

type attributesOptions struct{ f *Factory }

func newCmdSearchAttributes(f *Factory, runF func(context.Context, *attributesOptions) error) *cobra.Command {
	o := &attributesOptions{f: f}
	return &cobra.Command{
		Use:   "search-attributes",
		Short: "Add the search attributes that workers need",
		Long: `Add to the Temporal namespace the search attributes that it lacks. A worker does this when
it starts; this command is for a server where workers may not: run it with credentials that
may. It can be run again at any time. On Temporal Cloud use tcld.`,
		Example: `  converge admin search-attributes --profile prod`,
		Args:    argsFromUse,
		RunE:    newRunE(o, runF, o.run, func([]string) error { return nil }),
	}
}

func (o *attributesOptions) run(ctx context.Context) error {
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	c, namespace := api.Temporal()
	added, err := worker.EnsureSearchAttributes(ctx, c, namespace)
	switch {
	case err != nil:
		return err
	case len(added) == 0:
		o.f.note("namespace %s has all search attributes", namespace)
	default:
		o.f.note("added to namespace %s: %s", namespace, strings.Join(added, ", "))
	}
	return nil
}
