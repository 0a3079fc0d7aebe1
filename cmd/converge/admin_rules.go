package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
	question := "set the rules of the installation to:\n" + rulesText(rules) + "\n"
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
	return o.f.screen().Lines(fmt.Sprintf("rules %d, set by %s at %s", r.Number, explain.Who(r.By), r.At.Local().Format("2006-01-02 15:04 MST")), rulesText(r.Rules))
}

// rulesText lists, one per line, who has which permissions, and how callers prove their identity.
func rulesText(r entities.Rules) string {
	var lines []string
	if r.Board != "" {
		lines = append(lines, "board: "+r.Board)
	}
	if i := r.Identity; i != nil {
		text := "identity: tokens of " + i.Issuer + " for " + i.Audience
		if len(i.Required) > 0 {
			text += ", required to " + strings.Join(i.Required, ", ")
		}
		lines = append(lines, text)
	}
	for _, g := range r.Grants {
		where := "everything and every runtime"
		if slices.Equal(g.Verbs, []string{protocol.Publish}) {
			where = "any new application"
		}
		if slices.Equal(g.Verbs, []string{protocol.PublishLibrary}) {
			where = "any library"
		}
		if len(g.Channels) > 0 {
			where = strings.Join(g.Channels, ", ")
		}
		lines = append(lines, fmt.Sprintf("%s of %s: %s", strings.Join(g.Verbs, ", "), where, strings.Join(g.To, ", ")))
	}
	lines = append(lines, baselineText(r.Baseline)...)
	if len(lines) == 0 {
		return "nothing is restricted"
	}
	return strings.Join(lines, "\n")
}

// baselineText lists, one per line, what every application gets.
func baselineText(b *entities.Baseline) (lines []string) {
	if b == nil {
		return nil
	}
	for _, c := range b.Checks {
		lines = append(lines, fmt.Sprintf("%s (%s)%s", c.ID, c.Kind, whereText(c.Where)))
	}
	for _, a := range b.Approvals {
		by := "anyone"
		if len(a.Approvers) > 0 {
			by = strings.Join(a.Approvers, ", ")
		}
		text := fmt.Sprintf("%s from %d of %s", a.ID, a.MinApprovers, by)
		if a.NotReleaser {
			text += " except the releaser"
		}
		lines = append(lines, text+whereText(a.Where))
	}
	if len(b.Bypass) > 0 {
		lines = append(lines, "bypassed by "+strings.Join(b.Bypass, ", "))
	}
	if len(b.Required) > 0 {
		lines = append(lines, "proof of identity required in every application to "+strings.Join(b.Required, ", "))
	}
	if n := b.Limits.Services; n > 0 {
		lines = append(lines, fmt.Sprintf("at most %d services in an application", n))
	}
	if n := b.Limits.Channels; n > 0 {
		lines = append(lines, fmt.Sprintf("at most %d release channels in an application", n))
	}
	if len(b.Limits.RuntimesOf) > 0 {
		lines = append(lines, "only runtimes of "+strings.Join(b.Limits.RuntimesOf, ", "))
	}
	for n := range lines {
		lines[n] = "baseline: " + lines[n]
	}
	return lines
}

// whereText names the channels that a rule covers.
func whereText(w entities.ChannelSelector) string {
	text := ""
	for _, part := range []struct {
		what  string
		names []string
	}{{" in channels ", w.Channels}, {" on runtimes ", w.Runtimes}, {" of applications ", w.Applications}} {
		if len(part.names) > 0 {
			text += part.what + strings.Join(part.names, ", ")
		}
	}
	return cmp.Or(text, " everywhere")
}
