package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/intent/config"
)

type publishOptions struct {
	f             *Factory
	source        string
	store         string
	causes        []string
	dryRun        bool
	allowCommands bool
	takeOver      bool
	removal       removal
}

func newCmdPublish(f *Factory, runF func(context.Context, *publishOptions) error) *cobra.Command {
	o := &publishOptions{f: f}
	cmd := &cobra.Command{
		Use:        "publish [SOURCE]",
		SuggestFor: []string{"apply"},
		Short:      "Publish a configuration as the newest incarnation",
		Long: `Compile a configuration and publish it as the newest incarnation of its application,
completely or not at all. Rules take effect at once; what a service runs changes through
its release channels. Rules that become less strict are printed before publishing, since
waiting releases no longer have to pass them: the history of each service records who
published it. Content that is already the newest is not published again.

` + sourceUsage + `
For a repository, the commits since the newest incarnation are kept as causes.`,
		Example: `  converge config publish examples/hello --dry-run
  converge config publish examples/hello
  converge config publish 'git::https://github.com/acme/shop//deploy?ref=main'`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, parseDirArg(&o.source)),
	}
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	cmd.Flags().StringArrayVar(&o.causes, "cause", nil, "cause of the change, kept with the incarnation (repeatable)")
	cmd.Flags().BoolVar(&o.allowCommands, "allow-commands", false, allowCommandsUsage)
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "compile and compare, publish nothing")
	o.removal.flags(cmd)
	cmd.Flags().BoolVar(&o.takeOver, "take-over", false, "publish although the application came from another directory or store")
	return cmd
}

const storeUsage = "incarnation store: a URL or a directory (default: CONVERGE_STORE, then the one in use, then DIR/.converge/store)"

func (o *publishOptions) run(ctx context.Context) error {
	tree, err := o.f.fetch(ctx, o.source)
	if err != nil {
		return err
	}
	api, err := o.f.client(ctx)
	if err != nil {
		if _, compileErr := o.f.compileTree(ctx, tree, o.store, o.allowCommands); errors.As(compileErr, new(config.Problems)) {
			return o.f.problems(compileErr, "; nothing published") // mistakes are reported even without a server
		}
		return err
	}
	if err := o.removal.prepare(ctx, o.f, tree.Dir); err != nil {
		return err
	}
	store, err := o.f.storeFor(ctx, tree, o.store)
	if err != nil {
		return err
	}
	token := ""
	if !o.dryRun {
		token = o.f.authToken()
	}
	if o.f.tokenErr != nil {
		return o.f.tokenErr
	}
	c, namespace := api.Temporal()
	options := publish.Options{
		Client: c, Namespace: namespace, StoreURL: store, By: o.f.by(), Token: token, Causes: o.causes, TakeOver: o.takeOver, DryRun: o.dryRun, AllowCommands: o.allowCommands,
		Before: func(r publish.Result) error { o.f.noteWarnings(r); return nil },
	}.Of(tree)
	result, err := o.f.publish(ctx, options)
	if err := o.f.printPublished(result, err); err != nil {
		return err
	}
	if !o.dryRun && !result.Notified {
		o.f.note("not every service was notified yet; is a worker running that reads the store %s?", result.Store)
	}
	if o.dryRun {
		return nil
	}
	return o.removal.run(ctx, o.f, result.Notified)
}

// publish publishes the source. It leaves out the login if the installation could not verify it.
func (f *Factory) publish(ctx context.Context, options publish.Options) (publish.Result, error) {
	if f.signs() {
		api, err := f.client(ctx)
		if err != nil {
			return publish.Result{}, err
		}
		options.Sign = func(ctx context.Context, workflowID, verb string, payload any) (any, error) {
			return f.signed(ctx, api, workflowID, verb, payload)
		}
	}
	result, err := publish.Publish(ctx, options)
	if f.loginUnusable(err) {
		f.note("the application declares no token issuer: published as %s, without your login", options.By)
		options.Token, options.Sign, options.Before = "", nil, nil
		result, err = publish.Publish(ctx, options)
	}
	return result, err
}

func (f *Factory) printPublished(result publish.Result, err error) error {
	var rejected *publish.Rejected
	switch {
	case errors.As(err, &rejected) && f.structured():
		return f.problems(err, "")
	case errors.As(err, &rejected):
		f.note("%s", rejected)
		return exit(outcome.Error)
	case err != nil:
		return err
	case f.structured():
		return f.screen().Document(result)
	}
	if result.DryRun {
		f.noteWarnings(result)
	}
	if d := result.Difference; d != nil {
		if _, err := io.WriteString(f.Out, d.String()); err != nil {
			return err
		}
	}
	return f.screen().Lines(result.String())
}

// noteWarnings prints warnings before a configuration takes effect: which checks it relaxes, and what the baseline of the installation
// requires of it.
func (f *Factory) noteWarnings(r publish.Result) {
	if f.structured() {
		return // it is part of the JSON document
	}
	for _, warning := range r.Warnings {
		f.note("warning: %s", warning)
	}
	if r.SecretsInClear {
		f.note("the Secrets of %s are stored unencrypted: set a key in CONVERGE_STORE_KEY, for this command and all workers", r.Application)
	}
	for _, change := range r.Runtimes {
		f.note("%s", change)
	}
	for _, d := range r.Baseline {
		f.note("%s", d)
	}
	for _, l := range r.Loosened {
		f.note("less strict: %s", l)
	}
}
