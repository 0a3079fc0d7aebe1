package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/intent/store"
)

// capturedOptions are those of captured (E2).
type capturedOptions struct {
	f                             *Factory
	application, channel, service string
	store                         string
}

func newCmdCaptured(f *Factory, runF func(context.Context, *capturedOptions) error) *cobra.Command {
	o := &capturedOptions{f: f}
	cmd := &cobra.Command{
		Use:   "captured APP CHANNEL [SERVICE]",
		Short: "Show the encrypted secrets that plans captured during setup",
		Long: `List the services whose secrets a plan captured during setup, or print the file of one: a
Kubernetes Secret encrypted with SOPS, which sops decrypts with one of the age identities.
Nothing is decrypted here.`,
		Example: `  converge run captured home production
  converge run captured home production prowlarr > prowlarr.sops.yaml`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) error {
			o.application, o.channel, o.service = args[0], args[1], strings.Join(args[2:], "")
			err := errors.Join(checkName("an application", o.application), checkName("a release channel", o.channel))
			if o.service != "" {
				err = errors.Join(err, checkName("a service", o.service))
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	return cmd
}

func (o *capturedOptions) run(ctx context.Context) error {
	location, err := o.f.storeOf(ctx, o.application, "", o.store)
	if err != nil {
		return err
	}
	at, err := store.Open(ctx, location)
	if err != nil {
		return err
	}
	defer at.Close() // the store is only read
	names := []string{o.service}
	if o.service == "" {
		if names, err = at.CapturedServices(ctx, o.application, o.channel); err != nil {
			return err
		}
	}
	all, t := []store.Captured{}, show.Table{Header: []string{"SERVICE", "VERSION", "NAMES"}}
	for _, name := range names {
		c, err := at.Captured(ctx, o.application, o.channel, name)
		if store.IsNotFound(err) {
			return fmt.Errorf("no secrets were captured of service %s of %s in %s", name, o.application, o.channel)
		}
		if err != nil {
			return err
		}
		all = append(all, c)
		t.Rows = append(t.Rows, []string{name, strconv.FormatInt(c.Version, 10), strings.Join(c.Names, ", ")})
	}
	switch {
	case o.f.structured():
		return o.f.screen().Document(all)
	case o.service != "":
		_, err := fmt.Fprint(o.f.Out, all[0].File)
		return err
	}
	return o.f.screen().Table(t)
}
