package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
)

// historyOptions are those of history.
type historyOptions struct {
	f       *Factory
	target  target // as the user named it: a service or an application
	trail   read.Trail
	scopeID string // workflow id of an application, a runtime or the installation, instead of a service
	all     bool   // the installation
	verify  bool
	channel string
	store   string
	kinds   []string
	last    int
}

func newCmdHistory(f *Factory, runF func(context.Context, *historyOptions) error) *cobra.Command {
	o := &historyOptions{f: f}
	cmd := &cobra.Command{
		Use:   "history SVC|APP|runtime/NAME",
		Short: "Show the audit trail: who changed what, when and why",
		Long: `Show every decision that changed a target, every action of a person and every bypass,
oldest first: when, who, what and why. It is kept in the store permanently. An identity
that was not proven by a token is marked with a question mark. What people did to the
application of a service, to its runtimes and to the installation is included; an
application, a runtime and the installation have histories of their own.

With --verify, the history is read from the store and compared with its recorded hashes:
lines that were changed, inserted, or removed (also from the end) are named, and the exit
status is 1.`,
		Example: `  converge history shop/web
  converge history web --channel prod-eu --kind bypass --kind rollback -o json
  converge history shop
  converge history runtime/eks-eu
  converge history --installation --verify`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.all && len(args) == 0 {
				return nil
			}
			return argsFromUse(cmd, args)
		},
		RunE: newRunE(o, runF, o.run, o.parse),
	}
	cmd.Flags().BoolVar(&o.all, "installation", false, "show the history of the installation")
	cmd.Flags().BoolVar(&o.verify, "verify", false, "verify the stored history against its recorded hashes")
	cmd.Flags().StringVarP(&o.channel, "channel", "c", "", "only this release channel")
	cmd.Flags().StringSliceVar(&o.kinds, "kind", nil, "only these kinds (release, target, approval, bypass, rollback…)")
	cmd.Flags().IntVar(&o.last, "last", 0, "only the last N entries")
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	return cmd
}

func (o *historyOptions) parse(args []string) error {
	for _, kind := range o.kinds {
		if !slices.Contains(entities.EventKinds(), kind) {
			return fmt.Errorf("--kind %s: expected one of %s", kind, strings.Join(entities.EventKinds(), ", "))
		}
	}
	if o.verify && (o.channel != "" || len(o.kinds) > 0 || o.last != 0) {
		return errors.New("--verify cannot be combined with --channel, --kind and --last; a history is verified as a whole")
	}
	if o.all {
		o.scopeID = protocol.InstallationID()
		if len(args) > 0 {
			return fmt.Errorf("--installation takes no arguments")
		}
		return nil
	}
	if name, ok := strings.CutPrefix(args[0], "runtime/"); ok {
		o.scopeID = protocol.RuntimeID(name)
		return checkName("a runtime", name)
	}
	var err error
	o.target, err = o.f.parseTarget(args[0])
	return err
}

func (o *historyOptions) run(ctx context.Context) (err error) {
	if o.target, err = o.f.resolveTarget(ctx, o.target); err != nil {
		return err
	}
	if o.target.all {
		o.scopeID = protocol.ApplicationID(o.target.Application)
	}
	if o.trail, err = o.f.trail(ctx, o.target.ServiceName, o.scopeID); err != nil {
		return err
	}
	if o.verify {
		return o.runVerify(ctx)
	}
	entries, err := o.trail.Entries(ctx, o.f.stores(o.store), o.channel == "")
	if err != nil {
		return err
	}
	entries = o.filter(entries)
	if o.f.structured() {
		application, service := protocol.TrailOf(o.trail.ID)
		return o.f.screen().Document(map[string]any{
			"schema": protocol.HistorySchema, "application": application, "service": service, "lines": entries,
		})
	}
	if len(entries) == 0 {
		o.f.note("no matching entries for %s", o.trail.Name)
		return nil
	}
	table := show.Table{Header: []string{"TIME", "WHO", "WHAT", "CHANNEL", "VERSION", "TEXT"}}
	for _, l := range entries {
		text := l.Text
		if l.Reason != "" {
			text += " (" + l.Reason + ")"
		}
		table.Rows = append(table.Rows, []string{l.At.Local().Format(dateTime), displayWho(l.Who), l.Kind, l.Channel, l.Version, text})
	}
	return o.f.screen().Table(table)
}

// trail returns the audit trail of a service, or of a wider scope by the id of its workflow.
func (f *Factory) trail(ctx context.Context, n connection.ServiceName, scopeID string) (read.Trail, error) {
	api, err := f.client(ctx)
	if err != nil {
		return read.Trail{}, err
	}
	t := read.ScopeTrail(api, scopeID)
	if scopeID == "" {
		t = read.ServiceTrail(ctx, api, n)
	}
	t.Note = f.note
	return t, nil
}

// dateTime is the format of times that may be on any day.
const dateTime = time.DateTime + " MST"

// displayWho marks a caller without proof of identity. Nil is Converge.
func displayWho(w *entities.Who) string {
	if w == nil {
		return "converge"
	}
	return explain.Who(*w)
}

func (o *historyOptions) filter(entries []read.HistoryEntry) []read.HistoryEntry {
	out := []read.HistoryEntry{}
	for _, l := range entries {
		if (o.channel == "" || l.Channel == o.channel) && (len(o.kinds) == 0 || slices.Contains(o.kinds, l.Kind)) {
			out = append(out, l)
		}
	}
	if o.last > 0 {
		out = out[max(0, len(out)-o.last):]
	}
	return out
}
