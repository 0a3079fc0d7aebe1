package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
)

// incarnations returns the incarnations of an application, from the store that it names unless the caller gives another.
func (f *Factory) incarnations(ctx context.Context, application, location string) (*read.Incarnations, error) {
	if err := checkName("an application", application); err != nil {
		return nil, err
	}
	api, err := f.client(ctx)
	if err != nil {
		return nil, err
	}
	return read.OpenIncarnations(ctx, api, application, f.stores(location))
}

type incarnationsOptions struct {
	f           *Factory
	application string
	store       string
	last        int
	export      int64
}

func newCmdIncarnations(f *Factory, runF func(context.Context, *incarnationsOptions) error) *cobra.Command {
	o := &incarnationsOptions{f: f}
	cmd := &cobra.Command{
		Use:   "list [APP]",
		Short: "List the published configurations of an application",
		Long: `List the incarnations of an application, newest first: number, hash, age, author, source
and causes; or write one of them as JSON, for other tools. APP may be omitted inside a
directory that defines it.`,
		Example: `  converge config list shop --last 5
  converge config list shop --export 42 > incarnation-42.json`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) (err error) {
			o.application, err = f.application(args)
			return err
		}),
	}
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	cmd.Flags().Int64Var(&o.export, "export", 0, "write the incarnation with this number as JSON")
	cmd.Flags().IntVar(&o.last, "last", 20, "number of incarnations to show; 0 for all")
	return cmd
}

// application returns the first argument, or the application of the working directory.
func (f *Factory) application(args []string) (string, error) {
	if len(args) > 0 {
		return args[0], checkName("an application", args[0])
	}
	name := f.applicationHere()
	if name == "" {
		return "", fmt.Errorf("no application given, and the working directory defines none; expected its name")
	}
	return name, nil
}

// exportJSON exports one incarnation (D7).
func (o *incarnationsOptions) exportJSON(ctx context.Context, h *read.Incarnations) error {
	incarnation, err := h.Read(ctx, o.export)
	if err != nil {
		return err
	}
	_, err = o.f.Out.Write(append(incarnation.Bytes(), '\n'))
	return err
}

func (o *incarnationsOptions) run(ctx context.Context) error {
	h, err := o.f.incarnations(ctx, o.application, o.store)
	if err != nil {
		return err
	}
	defer h.Store.Close() // only read
	if o.export != 0 {
		return o.exportJSON(ctx, h)
	}
	all, err := h.All(ctx, o.last)
	if err != nil {
		return err
	}
	if o.f.structured() {
		return o.f.screen().Document(all)
	}
	t := show.Table{Header: []string{"NUMBER", "HASH", "SERVICES", "AGE", "BY", "FROM", "CAUSE"}, Right: 4}
	for _, i := range all {
		t.Rows = append(t.Rows, incarnationRow(i, o.f.Now()))
	}
	return o.f.screen().Table(t)
}

func incarnationRow(i protocol.Incarnation, now time.Time) []string {
	cause := entities.Visible(first(i.Causes...))
	if more := len(i.Causes) - 1; more > 0 {
		cause += fmt.Sprintf(" (+%d)", more)
	}
	return []string{
		strconv.FormatInt(i.Number, 10), i.Hash[:min(12, len(i.Hash))], strconv.Itoa(i.Services),
		explain.Duration(now.Sub(i.At)), i.By, sourceOf(i.Origin), cause,
	}
}

// sourceOf returns the source of an incarnation.
func sourceOf(o protocol.Origin) string {
	from := o.Path
	if hex := o.Hex(); hex != "" {
		from += "@" + hex[:min(12, len(hex))]
	}
	if o.Dirty {
		from += " dirty"
	}
	return from
}

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
		Long: `Compare two incarnations by number; B defaults to the newest. Payload changes are what a
service receives: they open a release. Changed rules take effect at once and release
nothing. The commits that led from A to B are listed first, if the configuration comes
from a repository. APP may be omitted inside a directory that defines it.`,
		Example: `  converge config diff shop 41 42
  converge config diff shop 41 --exit-code`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, o.parse),
	}
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	cmd.Flags().BoolVar(&o.exitCode, "exit-code", false, "exit with status 2 if they differ")
	return cmd
}

// parse distinguishes the application from the numbers: a name never begins with a digit.
func (o *diffOptions) parse(args []string) (err error) {
	var names []string
	if _, e := strconv.ParseInt(args[0], 10, 64); e != nil {
		names, args = args[:1], args[1:]
	}
	if o.application, err = o.f.application(names); err != nil {
		return err
	}
	if len(args) == 0 || len(args) > 2 {
		return fmt.Errorf("usage: converge config diff [APP] A [B]")
	}
	numbers := []*int64{&o.from, &o.to}
	for i, a := range args {
		if *numbers[i], err = strconv.ParseInt(a, 10, 64); err != nil || *numbers[i] < 1 {
			return fmt.Errorf("%q is not an incarnation number; see: converge config list %s", a, o.application)
		}
	}
	return nil
}

func (o *diffOptions) run(ctx context.Context) error {
	h, err := o.f.incarnations(ctx, o.application, o.store)
	if err != nil {
		return err
	}
	defer h.Store.Close() // only read
	if o.to == 0 {
		o.to = h.Status.Newest
	}
	from, err := h.Read(ctx, o.from)
	if err != nil {
		return err
	}
	to, err := h.Read(ctx, o.to)
	if err != nil {
		return err
	}
	d, err := incarnation.Diff(from, to)
	if err != nil {
		return err
	}
	if o.f.structured() {
		err = o.f.screen().Document(d)
	} else if err = o.printCauses(ctx, h); err == nil {
		_, err = fmt.Fprint(o.f.Out, d.String())
	}
	if err == nil && o.exitCode && !d.Empty() {
		return exit(outcome.Failed)
	}
	return err
}

// printCauses lists the incarnations between the first and the second, newest first, with the cause of each.
func (o *diffOptions) printCauses(ctx context.Context, h *read.Incarnations) error {
	const limit = 10
	for number := o.to; number > max(o.from, o.to-limit); number-- {
		i, err := h.Number(ctx, number)
		if err != nil {
			return err
		}
		if len(i.Causes) == 0 {
			continue
		}
		lines := []string{fmt.Sprintf("incarnation %d by %s from %s", i.Number, i.By, sourceOf(i.Origin))}
		for _, cause := range i.Causes {
			lines = append(lines, "  "+cause)
		}
		for _, line := range lines {
			if _, err := fmt.Fprintln(o.f.Out, entities.Visible(line)); err != nil {
				return err
			}
		}
	}
	return nil
}
