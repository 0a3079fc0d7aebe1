package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

type logsOptions struct {
	f        *Factory
	service  connection.ServiceName
	channel  string // "": all
	store    string
	kind     string
	last     int
	previous bool
	follow   bool
}

// logsPollInterval is how often --follow reads the store.
const logsPollInterval = 2 * time.Second

func newCmdLogs(f *Factory, runF func(context.Context, *logsOptions) error) *cobra.Command {
	o := &logsOptions{f: f}
	cmd := &cobra.Command{
		Use:   "logs SVC [CHANNEL]",
		Short: "Show the output of the last applies, fetches and extensions",
		Long: `Show the output of commands, in one channel or in all: the last applies, the last fetches
with a new result and the last runs of extensions, oldest first, truncated and without
secrets; then the end of the output of what runs now, and what the runtime reports of
each object, with links to logs elsewhere.`,
		Example: `  converge logs shop/web staging
  converge logs web prod-eu --kind apply --last 1
  converge logs shop/web --follow
  converge logs shop/web prod-eu --previous`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) error {
			if err := f.parseServiceArgs(args, &o.service, &o.channel); err != nil {
				return err
			}
			if o.kind != "" && !slices.Contains([]store.LogKind{store.LogApply, store.LogFetch, store.LogExtension}, store.LogKind(o.kind)) {
				return fmt.Errorf("--kind %q: expected apply, fetch or extension", o.kind)
			}
			if o.follow && o.previous {
				return fmt.Errorf("--follow shows new entries; expected it without --previous")
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	cmd.Flags().StringVar(&o.kind, "kind", "", "only apply, fetch or extension")
	cmd.Flags().IntVar(&o.last, "last", 0, "only the last N entries")
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "also show what comes, until Ctrl-C")
	cmd.Flags().BoolVar(&o.previous, "previous", false, "only of the version before the last one")
	return cmd
}

func (o *logsOptions) run(ctx context.Context) error {
	s, err := o.f.status(ctx, o.service)
	if err != nil {
		return err
	}
	if o.channel != "" {
		if err := s.CheckChannel(o.channel); err != nil {
			return err
		}
	}
	at, err := o.f.stores(o.store).Readable(s.Store)
	if err != nil {
		return err
	}
	store, err := store.Open(ctx, at)
	if err != nil {
		return err
	}
	defer store.Close() // only read
	known := map[string]bool{}
	entries, err := read.Logs(ctx, store, s, o.channel, known)
	if err != nil {
		return err
	}
	shown := o.selected(entries)
	if o.follow {
		return o.followLogs(ctx, shown, func() ([]read.Log, error) { return read.Logs(ctx, store, s, o.channel, known) })
	}
	if o.f.structured() {
		return o.f.screen().Document(shown)
	}
	if len(shown) == 0 {
		o.f.note("no output was kept of %s%s", o.service, inChannel(o.channel))
	}
	now := explain.Running(o.running(ctx), o.channel, o.f.Now())
	return o.print(shown, append(now, o.runtimeReport(s)...)...)
}

func inChannel(channel string) string {
	if channel == "" {
		return ""
	}
	return " in " + channel
}

// followLogs prints entries and what running commands print, and then what is added, until it is interrupted. An error of the store is noted once.
func (o *logsOptions) followLogs(ctx context.Context, shown []read.Log, more func() ([]read.Log, error)) error {
	noted, output := "", runningOutput{}
	for {
		if o.f.structured() {
			for _, e := range shown {
				if err := o.f.screen().StreamDocument(e); err != nil {
					return err
				}
			}
		} else if err := o.print(shown, output.lines(o.running(ctx), o.channel, o.f.Now())...); err != nil {
			return err
		}
		if err := o.f.Sleep(ctx, logsPollInterval); err != nil {
			return err
		}
		added, err := more()
		shown = o.ofKind(added)
		switch {
		case err == nil:
			noted = ""
		case err.Error() != noted:
			noted = err.Error()
			o.f.note("%s; retrying", noted)
		}
	}
}

func (o *logsOptions) print(entries []read.Log, after ...string) error {
	for _, e := range entries {
		if err := o.f.screen().Lines(logLines(e, o.channel == "", o.f.Now())...); err != nil {
			return err
		}
	}
	return o.f.screen().Lines(after...)
}

// runtimeReport returns what the runtime reports about the objects of the channels, and where they have their own logs.
func (o *logsOptions) runtimeReport(s protocol.Status) (lines []string) {
	if o.kind != "" || o.last > 0 || o.previous {
		return nil
	}
	for _, c := range s.Channels {
		if o.channel != "" && c.Name != o.channel || len(c.Objects) == 0 {
			continue
		}
		title := "What the runtime reports:"
		if o.channel == "" {
			title = "What the runtime of " + c.Name + " reports:"
		}
		lines = append(append(lines, title), explain.Objects(c, o.f.Now())...)
	}
	return lines
}

// selected are the entries that the flags ask for.
func (o *logsOptions) selected(entries []read.Log) []read.Log {
	if o.previous {
		entries = read.OfPreviousVersions(entries)
	}
	out := o.ofKind(entries)
	if o.last > 0 {
		out = out[max(0, len(out)-o.last):]
	}
	return out
}

func (o *logsOptions) ofKind(entries []read.Log) []read.Log {
	out := []read.Log{}
	for _, e := range entries {
		if o.kind == "" || o.kind == string(e.Kind) {
			out = append(out, e)
		}
	}
	return out
}

// logLines formats a log entry. Its first line names the command, its result and its duration. The output follows, indented, with
// stderr marked.
func logLines(e read.Log, withChannel bool, now time.Time) []string {
	head := e.At.In(now.Location()).Format(dateTime)
	if withChannel {
		head += " " + e.Channel
	}
	head += " " + string(e.Kind)
	if e.Name != "" {
		head += " " + e.Name
	}
	if e.FullVersion != "" {
		head += " " + e.FullVersion
	}
	if e.Attempt > 1 {
		head += fmt.Sprintf(" attempt %d", e.Attempt)
	}
	if e.Begun > 1 {
		head += fmt.Sprintf(" (begun %s: a worker was lost, stopped, or cut off)", entities.Times(e.Begun))
	}
	ended := fmt.Sprintf("exit %d", e.ExitCode)
	switch {
	case e.TimedOut:
		ended = "timed out"
	case e.ExitCode < 0:
		ended = "no exit code" // it was killed, or never started
	}
	head += fmt.Sprintf(": %s after %s (%s ago)", ended, e.Duration.Round(time.Millisecond), explain.Duration(now.Sub(e.At)))
	lines := []string{head}
	if e.Command != "" {
		lines = append(lines, "  $ "+e.Command)
	}
	if e.Error != "" {
		first := true
		for line := range strings.Lines(e.Error) {
			mark := "    "
			if first {
				mark, first = "  ! ", false
			}
			lines = append(lines, mark+strings.TrimSuffix(line, "\n"))
		}
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
