package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/protocol"
)

// incarnationPinOptions are the options of config pin and config unpin (D15).
type incarnationPinOptions struct {
	f           *Factory
	verb        string
	application string
	incarnation int64 // 0: unpin
	reason      string
	yes         bool
}

func newCmdPinIncarnation(f *Factory, runF func(context.Context, *incarnationPinOptions) error) *cobra.Command {
	return newIncarnationPinCmd(f, protocol.Pin, runF, cobra.Command{
		Use:   "pin APP INCARNATION",
		Short: "Pin an application to an incarnation",
		Long: `Move all services of an application to an incarnation, like a change of the configuration.
What is published afterwards waits until converge config unpin.`,
		Example: `  converge config pin shop 41 --reason "42 breaks checkout"`,
	})
}

func newCmdUnpinIncarnation(f *Factory, runF func(context.Context, *incarnationPinOptions) error) *cobra.Command {
	return newIncarnationPinCmd(f, protocol.Unpin, runF, cobra.Command{
		Use:     "unpin APP",
		Short:   "Unpin an application: its services move to the newest incarnation",
		Long:    `End the pin of an application: its services move to the newest incarnation.`,
		Example: `  converge config unpin shop`,
	})
}

func newIncarnationPinCmd(f *Factory, verb string, runF func(context.Context, *incarnationPinOptions) error, texts cobra.Command) *cobra.Command {
	o := &incarnationPinOptions{f: f, verb: verb}
	cmd := &texts
	cmd.Args = argsFromUse
	cmd.RunE = newRunE(o, runF, o.run, func(args []string) error {
		o.application = args[0]
		if err := checkName("an application", o.application); err != nil || len(args) == 1 {
			return err
		}
		var err error
		if o.incarnation, err = strconv.ParseInt(args[1], 10, 64); err != nil || o.incarnation < 1 {
			return fmt.Errorf("incarnation %q: expected a number, such as 41; see: converge config list %s", args[1], o.application)
		}
		return nil
	})
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, shown to other users")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "skip the confirmation if more than one service is affected")
	return cmd
}

func (o *incarnationPinOptions) run(ctx context.Context) error {
	names, err := o.f.servicesOf(ctx, o.application)
	if err != nil {
		return err
	}
	if err := o.f.confirmAll(ctx, o.yes, o.verb, names); err != nil {
		return err
	}
	act := o.f.newAct(o.reason)
	if o.verb == protocol.Unpin {
		return o.f.actOnScope(ctx, applicationScope(o.application), o.verb, act, act)
	}
	return o.f.actOnScope(ctx, applicationScope(o.application), o.verb, act, protocol.IncarnationPin{RequestMeta: act, Incarnation: o.incarnation})
}
