package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/intent/store"
)

type logsOptions struct {
	f       *Factory
	service serviceName
	channel string
	store   string
	kind    string
	last    int
}

func newCmdLogs(f *Factory, runF func(context.Context, *logsOptions) error) *cobra.Command {
	o := &logsOptions{f: f}
	cmd := &cobra.Command{
		Use:   "logs SVC CHANNEL",
		Short: "Show what the last applies, fetches and extensions printed",
		Long: `Show what commands printed in a channel: the last applies, the last fetches that said
something new and the last runs of extensions, oldest first, bounded and without secrets.`,
		Example: `  converge logs shop/web staging
  converge logs web prod-eu --kind apply --last 1`,
		Args: exactArgs(2, 2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.service, err = f.parseService(args[0]); err != nil {
				return err
			}
			o.channel = args[1]
			if o.kind != "" && !slices.Contains([]store.LogKind{store.LogApply, store.LogFetch, store.LogExtension}, store.LogKind(o.kind)) {
				return fmt.Errorf("--kind %q: expected apply, fetch or extension", o.kind)
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	cmd.Flags().StringVar(&o.kind, "kind", "", "apply, fetch or extension only")
	cmd.Flags().IntVar(&o.last, "last", 0, "the last so many only")
	return cmd
}

func (o *logsOptions) run(ctx context.Context) error {
	s, err := o.f.status(ctx, o.service)
	if err != nil {
		return err
	}
	if !hasChannel(s, o.channel) {
		return fmt.Errorf("%s has no release channel %q; expected one of %s", o.service, o.channel, strings.Join(channelNames(s), ", "))
	}
	store, err := store.Open(ctx, first(o.store, o.f.Env("CONVERGE_STORE"), s.Store))
	if err != nil {
		return err
	}
	defer store.Close() // only read
	entries, err := store.Logs(ctx, o.service.application, o.service.service, o.channel)
	if err != nil {
		return err
	}
	entries = o.chosen(entries)
	if o.f.json() {
		return o.f.screen().JSON(entries)
	}
	if len(entries) == 0 {
		o.f.note("nothing kept of %s in %s", o.service, o.channel)
	}
	for _, e := range entries {
		if err := o.f.screen().Lines(logLines(e, o.f.Now())...); err != nil {
			return err
		}
	}
	return nil
}

func (o *logsOptions) chosen(entries []store.LogEntry) []store.LogEntry {
	out := []store.LogEntry{}
	for _, e := range entries {
		if o.kind == "" || o.kind == string(e.Kind) {
			out = append(out, e)
		}
	}
	if o.last > 0 {
		out = out[max(0, len(out)-o.last):]
	}
	return out
}

// logLines heads an entry with what ran, how it ended and how long it took; what it printed is
// indented, with stderr marked.
func logLines(e store.LogEntry, now time.Time) []string {
	head := fmt.Sprintf("%s %s", e.At.In(now.Location()).Format("2006-01-02 15:04:05"), e.Kind)
	if e.Name != "" {
		head += " " + e.Name
	}
	if e.FullVersion != "" {
		head += " " + e.FullVersion
	}
	if e.Attempt > 1 {
		head += fmt.Sprintf(" attempt %d", e.Attempt)
	}
	head += fmt.Sprintf(": exit %d after %s (%s ago)", e.ExitCode, e.Duration.Round(time.Millisecond), explain.Duration(now.Sub(e.At)))
	lines := []string{head}
	if e.Command != "" {
		lines = append(lines, "  $ "+e.Command)
	}
	if e.Error != "" {
		lines = append(lines, "  ! "+strings.ReplaceAll(e.Error, "\n", "\n    "))
	}
	lines = append(lines, indented("  ", e.Stdout)...)
	return append(lines, indented("  stderr: ", e.Stderr)...)
}

func indented(lead, text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := range lines {
		lines[i] = lead + lines[i]
	}
	return lines
}
