package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/protocol"
)

// deleteOptions are those of delete (A24).
type deleteOptions struct {
	f       *Factory
	service serviceName
	channel string
	reason  string
	yes     bool
}

func newCmdDelete(f *Factory, runF func(context.Context, *deleteOptions) error) *cobra.Command {
	o := &deleteOptions{f: f}
	cmd := &cobra.Command{
		Use:   "delete SVC [CHANNEL]",
		Short: "Take down one channel, or a service that is no longer declared",
		Long: `Take down what a service runs, in every channel. It must no longer be declared: a
service that vanishes from the configuration is left running, as orphaned, until this
is asked for. Its history stays.

With CHANNEL: take down what runs in that channel, which stays declared. Nothing enters it
until converge restart SVC CHANNEL brings back what was there.`,
		Example: `  converge delete shop/web --reason "replaced by shop/site" --yes
  converge delete shop/web canary --reason "it eats the orders"`,
		Args: asUsed,
		RunE: running(o, runF, o.run, func(args []string) error { return f.readService(args, &o.service, &o.channel) }),
	}
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, shown to everybody who asks")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask before taking it down")
	return cmd
}

func (o *deleteOptions) run(ctx context.Context) error {
	what := fmt.Sprintf("take down all that %s runs", o.service)
	if o.channel != "" {
		what += " in " + o.channel
	}
	if err := o.f.confirm(ctx, o.yes, what); err != nil {
		return err
	}
	return o.f.takeDown(ctx, []serviceName{o.service}, o.channel, o.reason)
}

// takeDown asks services to take down what they run, and prints a line for each.
func (f *Factory) takeDown(ctx context.Context, names []serviceName, channel, reason string) error {
	act := f.newAct(reason) // one, whose token serves it everywhere
	answers, err := each(ctx, names, func(ctx context.Context, n serviceName) (string, error) {
		var answer protocol.Answer
		err := f.act(ctx, n, protocol.Delete, act.RequestID, protocol.DeleteRequest{Act: act, Channel: channel}, &answer)
		return answer.Message, err
	})
	return f.answered(names, answers, err)
}

// removal is what `apply --remove` takes down once the configuration without it is published.
type removal struct {
	given  []string
	reason string
	yes    bool
	names  []serviceName
}

func (r *removal) flags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&r.given, "remove", nil, "take down this service, which is no longer declared (repeatable)")
	cmd.Flags().StringVar(&r.reason, "reason", "", "with --remove: why, shown to everybody who asks")
	cmd.Flags().BoolVarP(&r.yes, "yes", "y", false, "with --remove: do not ask")
}

// prepare reads what is to be removed and has it confirmed, before anything is published.
func (r *removal) prepare(ctx context.Context, f *Factory, dir string) error {
	application := publish.ApplicationIn(dir)
	for _, given := range r.given {
		if !strings.Contains(given, "/") && application != "" {
			given = application + "/" + given
		}
		n, err := f.parseService(given)
		if err != nil {
			return err
		}
		if application != "" && n.application != application {
			return fmt.Errorf("--remove %s: it is no service of %s", n, application)
		}
		r.names = append(r.names, n)
	}
	if len(r.names) == 0 {
		return nil
	}
	if f.givesToken() {
		return fmt.Errorf("--remove: a token serves one request, and publishing is one: leave it out, and then, with another token: converge delete %s", r.names[0])
	}
	words := make([]string, len(r.names))
	for i, n := range r.names {
		words[i] = n.String()
	}
	return f.confirm(ctx, r.yes, "take down all that "+strings.Join(words, ", ")+" runs")
}

// carryOut takes down what was named. A service that does not know yet that it is no longer declared
// would refuse.
func (r *removal) carryOut(ctx context.Context, f *Factory, notified bool) error {
	switch {
	case len(r.names) == 0:
		return nil
	case !notified:
		return fmt.Errorf("nothing is taken down: services are not notified yet; later: converge delete %s", r.names[0])
	}
	return f.takeDown(ctx, r.names, "", r.reason)
}
