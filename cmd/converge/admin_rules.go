package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities"
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
		Short: "Show or set who may do what with runtimes and with everything",
		Long: `Show the rules of the installation: who may pause and resume a runtime or everything, take
a lease back or let one go out of turn, and change these rules; and how callers prove who
they are. With FILE, one document of kind Installation, set them. Those that hold so far
say who may. What is no verb of them is free to all who can signal a workflow.`,
		Example: `  converge admin rules
  converge admin rules installation.yaml --reason "only the platform team pauses everything"`,
		Args: asUsed,
		RunE: running(o, runF, o.run, func(args []string) error {
			if len(args) > 0 {
				o.file = args[0]
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, kept with the change")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask before changing them")
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
	if err := o.f.confirm(ctx, o.yes, "set the rules of the installation to:\n"+rulesText(rules)+"\n"); err != nil {
		return err
	}
	act := o.f.newAct(o.reason)
	return o.f.actOnWhole(ctx, wholeInstallation(), protocol.Configure, act, protocol.ConfigureRequest{Act: act, Rules: rules})
}

func (o *rulesOptions) show(ctx context.Context) error {
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	var s protocol.InstallationStatus
	err = api.Query(ctx, protocol.InstallationID(), protocol.QueryStatus, &s)
	switch {
	case errors.Is(err, errNotFound):
		return fmt.Errorf("admin rules: %s", wholeInstallation().absent)
	case err != nil:
		return err
	case o.f.json():
		return o.f.screen().JSON(s.Rules)
	case s.Rules.Number == 0:
		return o.f.screen().Lines("none: whoever can signal a workflow may pause runtimes and everything; set some with: converge admin rules FILE")
	}
	r := s.Rules
	return o.f.screen().Lines(fmt.Sprintf("rules %d, set by %s at %s", r.Number, nameOfWho(r.By), r.At.Local().Format("2006-01-02 15:04 MST")), rulesText(r.Rules))
}

// nameOfWho marks who did not prove it.
func nameOfWho(who entities.Who) string {
	if who.Proven {
		return who.Name
	}
	return who.Name + "?"
}

// rulesText says in a line each who may what, and how callers prove who they are.
func rulesText(r entities.Rules) string {
	var lines []string
	if i := r.Identity; i != nil {
		text := "identity: tokens of " + i.Issuer + " for " + i.Audience
		if len(i.Required) > 0 {
			text += ", needed to " + strings.Join(i.Required, ", ")
		}
		lines = append(lines, text)
	}
	for _, g := range r.Grants {
		where := "everything and every runtime"
		if len(g.Channels) > 0 {
			where = strings.Join(g.Channels, ", ")
		}
		lines = append(lines, fmt.Sprintf("%s of %s: %s", strings.Join(g.Verbs, ", "), where, strings.Join(g.To, ", ")))
	}
	if len(lines) == 0 {
		return "nothing is restricted"
	}
	return strings.Join(lines, "\n")
}
