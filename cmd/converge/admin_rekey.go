package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/intent/store"
)

type rekeyOptions struct {
	f     *Factory
	store string
}

func newCmdRekey(f *Factory, runF func(context.Context, *rekeyOptions) error) *cobra.Command {
	o := &rekeyOptions{f: f}
	cmd := &cobra.Command{
		Use:   "rekey",
		Short: "Re-encrypt stored secrets with the current key",
		Long: `Re-encrypt all Secrets in the store with the first key that CONVERGE_STORE_KEY refers to,
as in file:/etc/converge/new.key,file:/etc/converge/old.key. Afterwards the other keys are
no longer needed. It can run while workers run, and again after an interruption.`,
		Example: `  converge admin rekey --store s3://releases`,
		Args:    argsFromUse,
		RunE:    newRunE(o, runF, o.run, func([]string) error { return nil }),
	}
	cmd.Flags().StringVar(&o.store, "store", "", "store: a URL or a directory (CONVERGE_STORE)")
	return cmd
}

func (o *rekeyOptions) run(ctx context.Context) error {
	location := first(o.store, o.f.Env("CONVERGE_STORE"))
	if location == "" {
		return errors.New("admin rekey: no store; name it with --store or CONVERGE_STORE")
	}
	s, err := store.Open(ctx, location)
	if err != nil {
		return err
	}
	defer s.Close() // all writes are complete
	written, damaged, err := s.Rekey(ctx)
	if err != nil {
		return fmt.Errorf("admin rekey: %w", err)
	}
	o.f.note("%d bundles were re-encrypted with the newest key", written)
	for _, why := range damaged {
		o.f.note("unchanged: %v", why)
	}
	if len(damaged) > 0 {
		return exit(outcome.Failed)
	}
	return nil
}
