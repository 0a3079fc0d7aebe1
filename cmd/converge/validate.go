package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/origin"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/store"
)

// sourceOptions are those of verbs that read a source and nothing else.
type sourceOptions struct {
	f             *Factory
	source        string
	store         string
	allowCommands bool
}

func newCmdValidate(f *Factory, runF func(context.Context, *sourceOptions) error) *cobra.Command {
	return newSourceCmd(f, runF, (*sourceOptions).validate, cobra.Command{
		Use:   "validate [SOURCE]",
		Short: "Validate a configuration",
		Long: `Validate a configuration and print all errors at once: file, line, column, and what was
expected. No server is needed.

` + sourceUsage,
		Example: `  converge config validate examples/hello
  converge config validate --output json`,
	})
}

func newCmdCompile(f *Factory, runF func(context.Context, *sourceOptions) error) *cobra.Command {
	return newSourceCmd(f, runF, (*sourceOptions).compile, cobra.Command{
		Use:   "compile [SOURCE]",
		Short: "Compile a configuration and print its hash",
		Long: `Compile a configuration into an incarnation, without publishing it, and print its hash:
the same sources give the same hash. --output json exports it.

` + sourceUsage,
		Example: `  converge config compile examples/hello
  converge config compile examples/hello --output json > incarnation.json`,
	})
}

func newSourceCmd(f *Factory, runF func(context.Context, *sourceOptions) error, run func(*sourceOptions, context.Context) error, texts cobra.Command) *cobra.Command {
	o := &sourceOptions{f: f}
	cmd := &texts
	cmd.Args = argsFromUse
	cmd.RunE = newRunE(o, runF, func(ctx context.Context) error { return run(o, ctx) }, parseDirArg(&o.source))
	cmd.Flags().StringVar(&o.store, "store", "", "store with the runtimes that other applications define (CONVERGE_STORE)")
	cmd.Flags().BoolVar(&o.allowCommands, "allow-commands", false, allowCommandsUsage)
	return cmd
}

func (o *sourceOptions) validate(ctx context.Context) error {
	compiled, err := o.compiled(ctx, "")
	if err != nil {
		return err
	}
	if o.f.structured() {
		return o.f.screen().Document([]config.Problem{})
	}
	inc := compiled.Incarnation
	text := fmt.Sprintf("%s is valid: %s, %s", inc.Application(), entities.Count(len(inc.Services()), "service"), entities.Count(len(inc.Channels()), "release channel"))
	for _, library := range inc.Imports() {
		text += fmt.Sprintf(", library %s %d", library.Name, library.Version)
	}
	return o.f.screen().Lines(text)
}

func (o *sourceOptions) compile(ctx context.Context) error {
	compiled, err := o.compiled(ctx, "; nothing compiled")
	if err != nil {
		return err
	}
	if o.f.structured() {
		_, err = fmt.Fprintf(o.f.Out, "%s\n", compiled.Incarnation.Bytes())
		return err
	}
	return o.f.screen().Lines(compiled.Incarnation.Hash())
}

// compiled compiles the directory. It returns the problems of the configuration, or reports how to find out whether a runtime belongs
// to another application.
func (o *sourceOptions) compiled(ctx context.Context, consequence string) (*compile.Compiled, error) {
	tree, err := o.f.fetch(ctx, o.source)
	if err != nil {
		return nil, err
	}
	compiled, err := o.f.compileTree(ctx, tree, o.store, o.allowCommands)
	if err == nil {
		for _, warning := range compiled.Warnings {
			o.f.note("warning: %s", warning)
		}
		return compiled, nil
	}
	var found config.Problems
	foreignRuntime := func(p config.Problem) bool { return p.Code == compile.UnknownRuntime }
	if errors.As(err, &found) && slices.ContainsFunc(found, foreignRuntime) && first(o.store, o.f.Env("CONVERGE_STORE")) == "" {
		consequence += "; to use runtimes that other applications define, name the store of those applications: --store URL"
	}
	return nil, o.f.problems(err, consequence)
}

func newCmdSchema(f *Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration",
		Long: `Print the JSON Schema of the configuration, for completion and checking in editors.
Name it in the first line of a file:

  # yaml-language-server: $schema=./converge.schema.json`,
		Example: `  converge config schema > converge.schema.json`,
		Args:    argsFromUse,
		RunE: func(*cobra.Command, []string) error {
			_, err := f.Out.Write(config.JSONSchema())
			return err
		},
	}
}

// compileTree compiles a tree without a server. Only a store that the user names is read for the runtimes of other applications.
func (f *Factory) compileTree(ctx context.Context, tree origin.Tree, location string, allowCommands bool) (compiled *compile.Compiled, err error) {
	err = f.withSources(ctx, tree, location, allowCommands, func(options config.Options) error {
		config, err := compile.LoadWith(tree.Dir, options)
		if err == nil {
			compiled, err = compile.Compile(config)
		}
		return err
	})
	return compiled, err
}

// withSources reads a tree with data from a store, if one is named.
func (f *Factory) withSources(ctx context.Context, tree origin.Tree, location string, allowCommands bool, read func(config.Options) error) error {
	options := config.Options{Within: tree.Root, RunCommand: publish.Commands(ctx, allowCommands)}
	if location = first(location, f.Env("CONVERGE_STORE")); location != "" {
		store, err := store.Open(ctx, location)
		if err != nil {
			return err
		}
		defer store.Close() // only read
		if options.Runtimes, err = store.Runtimes(ctx); err != nil {
			return err
		}
		rules, err := store.Rules(ctx)
		if err != nil {
			return err
		}
		options.RuntimesOf, options.Published = rules.RuntimesOf(), store.Imports(ctx)
		if options.SecretDigest, err = store.SecretDigest(ctx); err != nil {
			return err
		}
	}
	return read(options)
}

// problems prints everything that is wrong with a configuration: as text on stderr, one line each and a count, or as a JSON list on
// stdout. It returns other errors unchanged.
func (f *Factory) problems(err error, consequence string) error {
	var found config.Problems
	if !errors.As(err, &found) {
		return err
	}
	if f.structured() {
		if err := f.screen().Document(found); err != nil {
			return err
		}
		return exit(outcome.Error)
	}
	f.note("%s\n%s%s", found.Error(), entities.Count(len(found), "error"), consequence)
	return exit(outcome.Error)
}
