package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file completes arguments and flags in a shell: `converge completion bash` prints the script that asks for them.

// completionTimeout limits how long a person waits for a completion. Without an answer there is none.
const completionTimeout = 300 * time.Millisecond

// completers complete the words of usage lines. They get the arguments before the word.
var completers = map[string]func(ctx context.Context, f *Factory, before []string) ([]string, error){
	"SVC": func(ctx context.Context, f *Factory, _ []string) ([]string, error) { return f.completeServices(ctx) },
	"APP": func(ctx context.Context, f *Factory, _ []string) ([]string, error) {
		return f.completeApplications(ctx)
	},
	"RUNTIME": func(ctx context.Context, f *Factory, _ []string) ([]string, error) { return f.usedRuntimes(ctx) },
	"CHANNEL": completeFromStatus(func(s protocol.Status, _ []string) (names []string) {
		for _, c := range s.Channels {
			names = append(names, c.Name)
		}
		return names
	}),
	"VERSION": completeFromStatus(func(s protocol.Status, _ []string) (names []string) {
		for _, r := range s.Releases {
			names = append(names, r.Version)
		}
		return names
	}),
	"TOPIC": completeFromStatus(func(s protocol.Status, before []string) (names []string) {
		for _, a := range explain.OpenApprovals([]protocol.Status{s}) {
			if len(before) < 2 || a.Version == before[1] {
				names = append(names, a.Topic)
			}
		}
		return names
	}),
	"CONDITION": completeFromStatus(func(s protocol.Status, before []string) (names []string) {
		for _, c := range s.Channels {
			for _, k := range c.Conditions {
				if k.Bypassable && slices.Contains(before, c.Name) {
					names = append(names, k.ID)
				}
			}
		}
		return names
	}),
}

// flagValues are the values of flags that have only a few.
var flagValues = map[string][]string{
	"output":           outputFormats,
	"run plan/format":  graphFormats,
	"run show/format":  graphFormats,
	"release/strategy": {"latest", "train", "immediate"},
	"logs/kind":        {"apply", "fetch", "extension"},
	"worker/log-level": {"debug", "info", "warn", "error"},
	"config init/from": {"ecs", "meta", "helm", "kustomize", "manifests", "argocd", "flux"},
}

// addCompletion completes the arguments of each command by its usage line, and its flags.
func addCompletion(f *Factory, cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		addCompletion(f, c)
	}
	if !cmd.HasParent() {
		_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputFormats, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
		return
	}
	if cmd.Runnable() && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = f.completeArgs
	}
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	for name, values := range flagValues {
		if of, flag, ok := strings.Cut(name, "/"); ok && of == path {
			_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // a test has each flag
		}
	}
	if cmd.Flags().Lookup("channel") != nil {
		_ = cmd.RegisterFlagCompletionFunc("channel", func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			return f.complete(cmd.Context(), []string{"CHANNEL"}, args, word) // the flag exists
		})
	}
}

// completeArgs completes the next argument of a command.
func (f *Factory) completeArgs(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	return f.complete(cmd.Context(), placeholders(cmd, len(expandJoint(args))), expandJoint(args), word)
}

// placeholders are the words for one argument in the forms of a usage line, such as SVC and APP.
func placeholders(cmd *cobra.Command, argument int) (words []string) {
	for _, form := range usageForms(cmd) {
		if argument < len(form) {
			words = append(words, strings.Split(strings.Trim(form[argument], "[]."), "|")...)
		} else if last := len(form) - 1; last >= 0 && strings.HasSuffix(form[last], "...") {
			words = append(words, strings.TrimSuffix(form[last], "..."))
		}
	}
	return words
}

// usageForms are the forms of a command's usage line, in words, without the name of the command. A "|" with spaces around it separates two.
func usageForms(cmd *cobra.Command) (forms [][]string) {
	for form := range strings.SplitSeq(strings.TrimPrefix(cmd.Use, cmd.Name()), " | ") {
		form, _, _ = strings.Cut(form, "--")
		forms = append(forms, strings.Fields(strings.TrimPrefix(strings.TrimSpace(form), cmd.Name()+" ")))
	}
	return forms
}

// complete returns the completions of a word for which one of several placeholders stands. Files and directories are completed by the shell.
func (f *Factory) complete(ctx context.Context, placeholders, before []string, word string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	directive := cobra.ShellCompDirectiveNoFileComp
	var found []string
	for _, p := range placeholders {
		if slices.Contains([]string{"DIR", "FILE", "SOURCE"}, p) {
			directive = cobra.ShellCompDirectiveDefault
		}
		if complete, ok := completers[p]; ok {
			names, _ := complete(ctx, f, before) // a server that does not answer completes nothing
			found = append(found, names...)
		}
	}
	slices.Sort(found)
	return slices.DeleteFunc(slices.Compact(found), func(name string) bool { return !strings.HasPrefix(name, word) }), directive
}

// completeFromStatus completes a word from the status of the service that the first argument names.
func completeFromStatus(words func(s protocol.Status, before []string) []string) func(context.Context, *Factory, []string) ([]string, error) {
	return func(ctx context.Context, f *Factory, before []string) ([]string, error) {
		if len(before) == 0 {
			return nil, nil
		}
		n, err := f.parseService(before[0])
		if err != nil {
			return nil, err
		}
		s, err := f.status(ctx, n)
		if err != nil {
			return nil, err
		}
		return words(s, before), nil
	}
}

// completeServices lists the services, those of the working directory's application also without it.
func (f *Factory) completeServices(ctx context.Context) (words []string, err error) {
	api, err := f.client(ctx)
	if err != nil {
		return nil, err
	}
	all, err := api.Services(ctx, "")
	here := f.applicationHere()
	for _, n := range all {
		words = append(words, n.String())
		if n.Application == here {
			words = append(words, n.Service)
		}
	}
	return words, err
}

func (f *Factory) completeApplications(ctx context.Context) ([]string, error) {
	api, err := f.client(ctx)
	if err != nil {
		return nil, err
	}
	return api.Applications(ctx)
}
