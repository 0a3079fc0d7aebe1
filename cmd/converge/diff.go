package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/intent/incarnation"
)

type diffOptions struct {
	f           *Factory
	application string
	from, to    int64 // to 0: the newest
	store       string
	exitCode    bool
}

func newCmdDiff(f *Factory, runF func(context.Context, *diffOptions) error) *cobra.Command {
	o := &diffOptions{f: f}
	cmd := &cobra.Command{
		Use:   "diff [APP] A [B]",
		Short: "Compare two incarnations of an application",
		Long: `Compare two incarnations by number, the second being the newest when it is left out.
Payload changes are what a service receives: they open a release. Changed rules hold
at once and release nothing. APP may be dropped inside a directory that defines it.`,
		Example: `  converge diff shop 41 42
  converge diff shop 41 --exit-code`,
		Args: exactArgs(1, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(args); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	cmd.Flags().BoolVar(&o.exitCode, "exit-code", false, "exit 2 when they differ")
	return cmd
}

// parse tells the application from the numbers: a name never begins with a digit.
func (o *diffOptions) parse(args []string) (err error) {
	var names []string
	if _, e := strconv.ParseInt(args[0], 10, 64); e != nil {
		names, args = args[:1], args[1:]
	}
	if o.application, err = o.f.application(names); err != nil {
		return err
	}
	if len(args) == 0 || len(args) > 2 {
		return fmt.Errorf("usage: converge diff [APP] A [B]")
	}
	numbers := []*int64{&o.from, &o.to}
	for i, a := range args {
		if *numbers[i], err = strconv.ParseInt(a, 10, 64); err != nil || *numbers[i] < 1 {
			return fmt.Errorf("%q is no number of an incarnation; see: converge incarnations %s", a, o.application)
		}
	}
	return nil
}

func (o *diffOptions) run(ctx context.Context) error {
	h, err := o.f.history(ctx, o.application, o.store)
	if err != nil {
		return err
	}
	defer h.store.Close() // only read
	if o.to == 0 {
		o.to = h.status.Newest
	}
	from, err := h.incarnation(ctx, o.from)
	if err != nil {
		return err
	}
	to, err := h.incarnation(ctx, o.to)
	if err != nil {
		return err
	}
	d, err := incarnation.Diff(from, to)
	if err != nil {
		return err
	}
	if o.f.json() {
		err = o.f.screen().JSON(d)
	} else {
		_, err = fmt.Fprint(o.f.Out, d.String())
	}
	if err == nil && o.exitCode && !d.Empty() {
		return exit(exitFailed)
	}
	return err
}

// incarnation reads one by its number.
func (h *history) incarnation(ctx context.Context, number int64) (*incarnation.Incarnation, error) {
	record, err := h.number(ctx, number)
	if err != nil {
		return nil, err
	}
	return h.store.Incarnation(ctx, record.Hash)
}
