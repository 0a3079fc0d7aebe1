package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// historyOptions are those of history.
type historyOptions struct {
	f          *Factory
	target     target      // as the user named it: a service or an application
	service    serviceName // the service that it resolves to
	workflowID string      // the workflow id of the service
	scopeID    string      // workflow id of an application, a runtime or the installation, instead of a service
	all        bool        // the installation
	verify     bool
	channel    string
	store      string
	kinds      []string
	last       int
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
	if o.service = o.target.serviceName; o.target.all {
		o.service, o.scopeID = serviceName{}, protocol.ApplicationID(o.target.application)
	}
	if o.verify {
		return o.runVerify(ctx)
	}
	entries, err := o.entries(ctx)
	if err != nil {
		return err
	}
	entries = o.filter(entries)
	if o.f.json() {
		application, service := protocol.TrailOf(o.id())
		return o.f.screen().JSON(map[string]any{
			"schema": protocol.HistorySchema, "application": application, "service": service, "lines": entries,
		})
	}
	if len(entries) == 0 {
		o.f.note("no matching entries for %s", o.name())
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

// dateTime is the format of times that may be on any day.
const dateTime = time.DateTime + " MST"

// displayWho marks a caller without proof of identity. Nil is Converge.
func displayWho(w *entities.Who) string {
	switch {
	case w == nil:
		return "converge"
	case w.Proven:
		return w.Name
	}
	return w.Name + "?"
}

func (o *historyOptions) filter(entries []historyEntry) []historyEntry {
	out := []historyEntry{}
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
		Short: "Show the output of the last applies, fetches and extensions",
		Long: `Show the output of commands in a channel: the last applies, the last fetches with a new
result and the last runs of extensions, oldest first, truncated and without secrets; then
what the runtime reports of each object, with links to logs elsewhere.`,
		Example: `  converge logs shop/web staging
  converge logs web prod-eu --kind apply --last 1`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) error {
			if err := f.parseServiceArgs(args, &o.service, &o.channel); err != nil {
				return err
			}
			if o.kind != "" && !slices.Contains([]store.LogKind{store.LogApply, store.LogFetch, store.LogExtension}, store.LogKind(o.kind)) {
				return fmt.Errorf("--kind %q: expected apply, fetch or extension", o.kind)
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	cmd.Flags().StringVar(&o.kind, "kind", "", "only apply, fetch or extension")
	cmd.Flags().IntVar(&o.last, "last", 0, "only the last N entries")
	return cmd
}

func (o *logsOptions) run(ctx context.Context) error {
	s, err := o.f.status(ctx, o.service)
	if err != nil {
		return err
	}
	if err := checkChannel(s, o.channel); err != nil {
		return err
	}
	at, err := o.f.readableStore(o.store, s.Store)
	if err != nil {
		return err
	}
	store, err := store.Open(ctx, at)
	if err != nil {
		return err
	}
	defer store.Close() // only read
	entries, err := store.Logs(ctx, s.Application, cmp.Or(s.Key, s.Service), channelKey(s, o.channel))
	if err != nil {
		return err
	}
	entries = o.filter(entries)
	if o.f.json() {
		return o.f.screen().JSON(entries)
	}
	if len(entries) == 0 {
		o.f.note("no output was kept of %s in %s", o.service, o.channel)
	}
	for _, e := range entries {
		if err := o.f.screen().Lines(logLines(e, o.f.Now())...); err != nil {
			return err
		}
	}
	return o.f.screen().Lines(o.runtimeReport(s)...)
}

// runtimeReport returns what the runtime reports about the channel's objects, and where they have their own logs.
func (o *logsOptions) runtimeReport(s protocol.Status) []string {
	i := slices.IndexFunc(s.Channels, func(c protocol.ChannelStatus) bool { return c.Name == o.channel })
	if i < 0 || o.kind != "" || o.last > 0 || len(s.Channels[i].Objects) == 0 {
		return nil
	}
	return append([]string{"What the runtime reports:"}, explain.Objects(s.Channels[i], o.f.Now())...)
}

// channelKey returns the key under which runtimes know a channel. Its stored logs have the same key.
func channelKey(s protocol.Status, channel string) string {
	for _, c := range s.Channels {
		if c.Name == channel {
			return cmp.Or(c.Key, channel)
		}
	}
	return channel
}

func (o *logsOptions) filter(entries []store.LogEntry) []store.LogEntry {
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

// logLines formats a log entry. Its first line names the command, its result and its duration. The output follows, indented, with
// stderr marked.
func logLines(e store.LogEntry, now time.Time) []string {
	head := fmt.Sprintf("%s %s", e.At.In(now.Location()).Format(dateTime), e.Kind)
	if e.Name != "" {
		head += " " + e.Name
	}
	if e.FullVersion != "" {
		head += " " + e.FullVersion
	}
	if e.Attempt > 1 {
		head += fmt.Sprintf(" attempt %d", e.Attempt)
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
