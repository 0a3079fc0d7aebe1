package main

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
)

type explainOptions struct {
	f       *Factory
	service connection.ServiceName
	joint   *jointName // instead: the services of a joint release
	channel string
}

func newCmdExplain(f *Factory, runF func(context.Context, *explainOptions) error) *cobra.Command {
	o := &explainOptions{f: f}
	return &cobra.Command{
		Use:     "explain SVC|APP@ID [CHANNEL]",
		Aliases: []string{"describe"},
		Short:   "Explain the state of a service, and what would change it",
		Long: `Explain for each channel what runs, which conditions are unmet and since when, what failed
and with which message, what happens next and when, and the command that helps. A channel
that waits for others is traced to the channel or the service that blocks all of them.`,
		Example: `  converge explain shop/web
  converge explain web prod-eu
  converge explain shop@autumn`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) error {
			j, joint, err := parseJoint(args[0])
			if !joint {
				return f.parseServiceArgs(args, &o.service, &o.channel)
			}
			if o.joint = &j; len(args) > 1 {
				o.channel = args[1]
			}
			return err
		}),
	}
}

func (o *explainOptions) run(ctx context.Context) error {
	if o.joint != nil {
		return o.explainParts(ctx)
	}
	s, err := o.f.status(ctx, o.service)
	if err != nil {
		return err
	}
	o.f.noteRename(o.service, s)
	if o.channel != "" {
		if err := s.CheckChannel(o.channel); err != nil {
			return err
		}
	}
	lines := explain.LinesWithLookup(s, o.channel, o.f.others(ctx), o.f.Now())
	lines = append(lines, o.f.leaseQueue(ctx, s, o.channel)...)
	running := o.f.progress(ctx, o.service)
	if now := explain.Running(running, o.channel, o.f.Now()); len(now) > 0 {
		lines = append(append(lines, ""), now...)
	}
	altered := o.f.altered(ctx, o.service)
	for _, a := range altered {
		lines = slices.Insert(lines, 0, connection.AlteredText(a))
	}
	if o.f.structured() {
		err = o.f.screen().Document(protocol.Explanation{Lines: lines, Status: s, Running: running})
	} else {
		err = o.f.screen().Lines(lines...)
	}
	if err == nil && len(altered) > 0 {
		return exit(outcome.Error)
	}
	return err
}

// leaseQueue lists the holders of the runtime slots that channels wait for. It is additional output, so it leaves out everything that does
// not answer.
func (f *Factory) leaseQueue(ctx context.Context, s protocol.Status, channel string) (lines []string) {
	api, err := f.client(ctx)
	if err != nil {
		return nil
	}
	queried := map[string]bool{"": true}
	for _, c := range s.Channels {
		if c.LeaseRequestedAt.IsZero() || queried[c.Runtime] || channel != "" && c.Name != channel {
			continue
		}
		queried[c.Runtime] = true
		var status protocol.RuntimeStatus
		if api.Query(ctx, protocol.RuntimeID(c.Runtime), protocol.QueryStatus, &status) == nil {
			lines = append(lines, explain.LeaseHolders(status, f.Now())...)
		}
	}
	return lines
}

// explainParts explains the services of a joint release, one after the other.
func (o *explainOptions) explainParts(ctx context.Context) error {
	all, err := o.f.statusOfParts(ctx, *o.joint)
	if err != nil && len(all) == 0 {
		return err
	}
	lines, documents := partsText(*o.joint, all), []protocol.Explanation{}
	for _, s := range all {
		partLines := explain.LinesWithLookup(s, o.channel, o.f.others(ctx), o.f.Now())
		lines = append(append(lines, ""), partLines...)
		documents = append(documents, protocol.Explanation{Lines: partLines, Status: s})
	}
	if o.f.structured() {
		return errors.Join(o.f.screen().Document(documents), err)
	}
	return errors.Join(o.f.screen().Lines(lines...), err)
}

// others looks up the status of other services. Without a connection it finds none.
func (f *Factory) others(ctx context.Context) explain.StatusLookup {
	api, err := f.client(ctx)
	if err != nil {
		return func(string, string) (protocol.Status, bool) { return protocol.Status{}, false }
	}
	return read.Others(ctx, api)
}
