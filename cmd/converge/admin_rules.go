package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/compile"
)

type rulesOptions struct {
	f      *Factory
	file   string
	reason string
	yes    bool
}

func newCmdRules(f *Factory, runF func(context.Context, *rulesOptions) error) *cobra.Command {
	o := &rulesOptions{f: f}
	cmd := &cobra.Command{
		Use:   "rules [FILE]",
		Short: "Show or set installation-wide permissions and the baseline",
		Long: `Show the rules of the installation: who may pause and resume a runtime or everything,
revoke a lease or grant one out of order, publish a new application, and change these
rules; how callers prove who they are; and the baseline: protections, approvals and limits
that apply to every application and that none can loosen. With FILE, one document of kind
Installation, set them. The current rules decide who may do that. A verb that they do not
name is open to everyone who can signal a workflow. A new baseline takes effect at once,
also for applications that are already published.`,
		Example: `  converge admin rules
  converge admin rules installation.yaml --reason "only the platform team pauses everything"`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) error {
			if len(args) > 0 {
				o.file = args[0]
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, kept with the change")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "skip the confirmation")
	return cmd
}

func (o *rulesOptions) run(ctx context.Context) error {
	if o.file == "" {
		return o.show(ctx)
	}
	rules, err := compile.Rules(os.DirFS(filepath.Dir(o.file)), filepath.Base(o.file))
	if err != nil {
		return fmt.Errorf("admin rules: nothing was changed:\n%w", err)
	}
	question := "set the rules of the installation to:\n" + linesText(explain.Rules(rules))
	if change := o.baselineChange(ctx, rules); change != "" {
		question += "changes of the baseline: " + change + "\n"
	}
	if err := o.f.confirm(ctx, o.yes, question); err != nil {
		return err
	}
	act := o.f.newAct(o.reason)
	return o.f.actOnScope(ctx, installationScope(), protocol.Configure, act, protocol.ConfigureRequest{RequestMeta: act, Rules: rules})
}

// baselineChange describes what changes for all applications, if the current state is known. The workflow reports it again in its answer.
func (o *rulesOptions) baselineChange(ctx context.Context, rules entities.Rules) string {
	var s protocol.InstallationStatus
	api, err := o.f.client(ctx)
	if err == nil {
		err = api.Query(ctx, protocol.InstallationID(), protocol.QueryStatus, &s)
	}
	if err != nil {
		return ""
	}
	return entities.BaselineChange(s.Rules.Baseline, rules.Baseline)
}

func (o *rulesOptions) show(ctx context.Context) error {
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	var s protocol.InstallationStatus
	err = api.Query(ctx, protocol.InstallationID(), protocol.QueryStatus, &s)
	switch {
	case errors.Is(err, connection.ErrNotFound):
		return fmt.Errorf("admin rules: %s", installationScope().missing)
	case err != nil:
		return err
	case o.f.structured():
		return o.f.screen().Document(s.Rules)
	case s.Rules.Number == 0:
		return o.f.screen().Lines("none: everyone who can signal a workflow may pause runtimes and everything; set rules with: converge admin rules FILE")
	}
	r := s.Rules
	lines := []string{fmt.Sprintf("rules %d, set by %s at %s", r.Number, explain.Who(r.By), r.At.Local().Format("2006-01-02 15:04 MST"))}
	return o.f.screen().Lines(append(lines, explain.Rules(r.Rules)...)...)
}
