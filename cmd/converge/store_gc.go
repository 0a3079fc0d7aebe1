package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/collect"
	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/intent/store"
)

func newCmdStore(f *Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "store",
		Short:   "Manage the store",
		Long:    "Manage the store, which contains everything that was ever published and released.",
		Example: `  converge admin store gc --dry-run`,
	}
	cmd.AddCommand(newCmdCollect(f, nil))
	return cmd
}

type collectOptions struct {
	f           *Factory
	store       string
	dryRun      bool
	grace, keep time.Duration
}

// The default retention, and the minimum grace period: after that time, a new object in a store is certainly referenced.
const (
	defaultGrace = 24 * time.Hour
	defaultKeep  = 90 * 24 * time.Hour
	minGrace     = time.Hour
)

func newCmdCollect(f *Factory, runF func(context.Context, *collectOptions) error) *cobra.Command {
	o := &collectOptions{f: f}
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove unreferenced content from the store",
		Long: `Remove content from the store that nothing refers to: no service and no release, nothing
that was published, released or recorded within --keep, and no history that Temporal still
has. It takes two runs: the first sets aside what is older than --older-than, and a later
one removes what has been set aside for as long and was not read again. Audit trails,
numbers and the names of versions are not content, and stay.

It can run while workers run, and can be interrupted. If something cannot be read, nothing
is removed.`,
		Example: `  converge admin store gc --dry-run
  converge admin store gc --store s3://releases --keep 720h`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func([]string) error {
			if o.grace < minGrace || o.keep < 0 {
				return fmt.Errorf("store gc: --older-than is %s and --keep is %s; expected at least %s, and 0", o.grace, o.keep, minGrace)
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&o.store, "store", "", "store: a URL or a directory (CONVERGE_STORE; default: the one that an application reports)")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what would be removed; change nothing")
	cmd.Flags().DurationVar(&o.grace, "older-than", defaultGrace, "minimum age of content to set aside or remove")
	cmd.Flags().DurationVar(&o.keep, "keep", defaultKeep, "how long published and released content is kept in any case")
	return cmd
}

func (o *collectOptions) run(ctx context.Context) error {
	s, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close() // all writes are complete
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	c, namespace := api.Temporal()
	kinds, err := collect.Collector{
		Client: c, Namespace: namespace, Store: s, Payloads: o.f.conn.Payloads,
		Collection: store.Collection{By: o.f.by(), Now: o.f.Now(), Grace: o.grace, Keep: o.keep, DryRun: o.dryRun},
	}.Run(ctx)
	if err != nil {
		return fmt.Errorf("store gc: %w", err)
	}
	if o.f.structured() {
		return o.f.screen().Document(kinds)
	}
	if o.dryRun {
		o.f.note("dry run: nothing was changed")
	}
	return o.f.screen().Table(collectedTable(kinds))
}

func (o *collectOptions) open(ctx context.Context) (*store.Store, error) {
	return (&libraryOptions{f: o.f, store: o.store}).open(ctx)
}

// collectedTable returns the table of the removed objects of each kind, and their total.
func collectedTable(kinds []store.CollectedKind) show.Table {
	t := show.Table{Header: []string{"KIND", "KEPT", "SET ASIDE", "WAITING", "RESTORED", "REMOVED"}}
	all := store.CollectedKind{Kind: "all"}
	for _, k := range kinds {
		for n, of := range countsOf(&k) {
			total := countsOf(&all)[n]
			total.N, total.Bytes = total.N+of.N, total.Bytes+of.Bytes
		}
	}
	for _, k := range append(slices.Clip(kinds), all) {
		row := []string{k.Kind}
		for _, of := range countsOf(&k) {
			row = append(row, formatCount(*of))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func countsOf(k *store.CollectedKind) [5]*store.Count {
	return [...]*store.Count{&k.Kept, &k.SetAside, &k.Waiting, &k.Returned, &k.Removed}
}

// formatCount formats a count as 12 (3.4 MB).
func formatCount(c store.Count) string {
	if c.N == 0 {
		return "-"
	}
	size, units := float64(c.Bytes), []string{"B", "kB", "MB", "GB", "TB"}
	at := 0
	for ; size >= 1000 && at < len(units)-1; at++ {
		size /= 1000
	}
	digits := 1
	if at == 0 {
		digits = 0
	}
	return fmt.Sprintf("%d (%s %s)", c.N, strconv.FormatFloat(size, 'f', digits, 64), units[at])
}
