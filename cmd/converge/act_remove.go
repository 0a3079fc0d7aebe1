package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/preview"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// deleteOptions are those of delete (A24).
type deleteOptions struct {
	f       *Factory
	service connection.ServiceName
	channel string
	reason  string
	yes     bool
	dryRun  bool
}

func newCmdDelete(f *Factory, runF func(context.Context, *deleteOptions) error) *cobra.Command {
	o := &deleteOptions{f: f}
	cmd := &cobra.Command{
		Use:   "delete SVC [CHANNEL]",
		Short: "Delete what runs in a channel, or an undeclared service",
		Long: `Delete what a service runs, in every channel. The service must no longer be declared: one
that disappears from the configuration keeps running, as orphaned, until it is deleted.
Its history is kept.

With CHANNEL: delete what runs in that channel, which stays declared. Nothing is deployed
there until converge restart SVC CHANNEL restores it.

With --dry-run: show what would be removed (-), what would be left in place (o) and why,
and what the server would refuse (!), as the workers see it, and change nothing. If delete
would be refused now, the reason is shown too, and the exit status is 1.`,
		Example: `  converge channel delete shop/web --reason "replaced by shop/site" --yes
  converge channel delete shop/web canary --reason "it eats the orders"
  converge channel delete shop/web canary --dry-run`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) error { return f.parseServiceArgs(args, &o.service, &o.channel) }),
	}
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, shown to other users")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "skip the confirmation")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what would be removed and what would stay; change nothing")
	return cmd
}

func (o *deleteOptions) run(ctx context.Context) error {
	if o.dryRun {
		return o.preview(ctx)
	}
	what := fmt.Sprintf("delete everything that %s runs", o.service)
	if o.channel != "" {
		what += " in " + o.channel
	}
	if !o.yes && o.f.CanPrompt { // a question only if the answer matters
		if err := o.refusal(ctx); err != nil {
			return err
		}
	}
	if err := o.f.confirm(ctx, o.yes, what); err != nil {
		return err
	}
	return o.f.deleteServices(ctx, []connection.ServiceName{o.service}, o.channel, o.reason)
}

// refusal returns why the service would refuse the deletion now, if it would.
func (o *deleteOptions) refusal(ctx context.Context) error {
	s := &state.State{}
	err := o.f.query(ctx, o.service, protocol.QueryState, s)
	if err != nil {
		return err
	}
	if who := (entities.Who{Name: o.f.by()}); o.channel == "" {
		_, err = s.Delete(who, o.reason, o.f.Now())
	} else {
		_, err = s.TakeDown(o.channel, who, o.reason, o.f.Now())
	}
	if err != nil {
		return &connection.RefusedError{Reason: err.Error()}
	}
	return nil
}

// preview shows what the deletion would remove.
func (o *deleteOptions) preview(ctx context.Context) error {
	s := &state.State{}
	if err := o.f.query(ctx, o.service, protocol.QueryState, s); err != nil {
		return err
	}
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	c, _ := api.Temporal()
	plan, err := (&preview.Planner{Client: c, By: o.f.by()}).Removal(ctx, s, o.channel)
	var refused *preview.Refused
	switch {
	case errors.As(err, &refused):
		return &connection.RefusedError{Reason: refused.Reason}
	case err != nil:
		return err
	}
	if o.f.structured() {
		err = o.f.screen().Document(plan)
	} else {
		text := planText{screen: o.f.screen(), plan: plan, deletes: true}
		err = text.screen.WriteText(text.String())
	}
	if err == nil && (plan.Failed > 0 || plan.Totals.Refused > 0 || plan.Services[0].Refused != "") {
		return exit(outcome.Error)
	}
	return err
}

// deleteServices tells services to remove their instances, and prints a line for each.
func (f *Factory) deleteServices(ctx context.Context, names []connection.ServiceName, channel, reason string) error {
	act := f.actOn(reason, names)
	answers, err := read.Each(ctx, names, func(ctx context.Context, n connection.ServiceName) (protocol.Answer, error) {
		var answer protocol.Answer
		err := f.act(ctx, n, protocol.Delete, act.RequestID, protocol.DeleteRequest{RequestMeta: act, Channel: channel}, &answer)
		return answer, err
	})
	return f.printAnswers(names, answers, err)
}

// removal is what `apply --remove` removes after the configuration without it is published.
type removal struct {
	values []string
	reason string
	yes    bool
	names  []connection.ServiceName
}

func (r *removal) flags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&r.values, "remove", nil, "delete this service, which is no longer declared (repeatable)")
	cmd.Flags().StringVar(&r.reason, "reason", "", "with --remove: reason, shown to other users")
	cmd.Flags().BoolVarP(&r.yes, "yes", "y", false, "with --remove: skip the confirmation")
}

// prepare determines what to remove, and asks for confirmation, before anything is published.
func (r *removal) prepare(ctx context.Context, f *Factory, dir string) error {
	application := publish.ApplicationIn(dir)
	for _, given := range r.values {
		if !strings.Contains(given, "/") && application != "" {
			given = application + "/" + given
		}
		n, err := f.parseService(given)
		if err != nil {
			return err
		}
		if application != "" && n.Application != application {
			return fmt.Errorf("--remove %s: not a service of %s", n, application)
		}
		r.names = append(r.names, n)
	}
	if len(r.names) == 0 {
		return nil
	}
	if f.hasExplicitToken() {
		return fmt.Errorf("--remove: a token is valid for one request, which publishing uses: publish without --remove, and then, with another token: converge channel delete %s", r.names[0])
	}
	names := make([]string, len(r.names))
	for i, n := range r.names {
		names[i] = n.String()
	}
	return f.confirm(ctx, r.yes, "delete everything that "+strings.Join(names, ", ")+" runs")
}

// run removes the named services. A service that does not yet know that it is no longer declared would refuse.
func (r *removal) run(ctx context.Context, f *Factory, notified bool) error {
	switch {
	case len(r.names) == 0:
		return nil
	case !notified:
		return fmt.Errorf("nothing was deleted: services are not notified yet; run later: converge channel delete %s", r.names[0])
	}
	return f.deleteServices(ctx, r.names, "", r.reason)
}
