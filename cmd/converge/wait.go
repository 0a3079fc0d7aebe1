package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/protocol"
)

type waitOptions struct {
	f       *Factory
	service serviceName
	version string
	channel string
	timeout time.Duration
}

func newCmdWait(f *Factory, runF func(context.Context, *waitOptions) error) *cobra.Command {
	o := &waitOptions{f: f}
	cmd := &cobra.Command{
		Use:   "wait SVC [VERSION]",
		Short: "Wait until a service, or one release of it, has settled",
		Long: `Wait until nothing moves by itself any more: everywhere, or in one channel.

With VERSION, its newest release is waited for; without, the service as it is.
Waiting costs no history. Ctrl-C stops waiting and nothing else.`,
		Example: `  converge wait shop/web
  converge wait shop/web v9 --channel staging --timeout 10m`,
		Args: exactArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.service, err = f.parseService(args[0]); err != nil {
				return err
			}
			if len(args) > 1 {
				o.version = args[1]
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&o.channel, "channel", "c", "", "wait for this release channel only")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "exit 3 after this long (default: never)")
	return cmd
}

func (o *waitOptions) run(ctx context.Context) error {
	s, err := o.f.status(ctx, o.service)
	if err != nil && !errors.Is(err, errNoWorker) {
		return err
	}
	g := goal{channel: o.channel}
	if o.version != "" && err == nil {
		r, ok := releaseOf(s, o.version)
		if !ok {
			return fmt.Errorf("no release of %s is called %s; listed are %s", o.service, o.version, versions(s))
		}
		g.release = r.ID
	} else if err != nil && o.version != "" {
		return err // which release is meant cannot be known
	}
	w := follower{f: o.f, api: o.f.api, name: o.service, goal: g, timeout: o.timeout, saw: func(protocol.Status) error { return nil }}
	s, out, err := w.follow(ctx)
	if err != nil {
		return err
	}
	return o.f.conclude(s, out)
}

func versions(s protocol.Status) string {
	if len(s.Releases) == 0 {
		return "none"
	}
	var out []string
	for _, r := range s.Releases {
		if !slices.Contains(out, r.Version) {
			out = append(out, r.Version)
		}
	}
	return strings.Join(out, ", ")
}
