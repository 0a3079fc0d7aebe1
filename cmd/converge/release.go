package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
)

type releaseOptions struct {
	f              *Factory
	service        connection.ServiceName
	version        string
	params         []string
	aspect         string
	parts          []string // for several services: SVC=VERSION each
	id             string
	requestID      string
	reason         string
	strategy       string
	wait           bool
	stopAtApproval bool
	timeout        time.Duration
}

func newCmdRelease(f *Factory, runF func(context.Context, *releaseOptions) error) *cobra.Command {
	o := &releaseOptions{f: f}
	cmd := &cobra.Command{
		Use:   "release SVC VERSION | release APP SVC=VERSION...",
		Short: "Release a version of a service, or of several services",
		Long: `Release a version of a service: it goes through the release channels, each with its rules.
Versions of several services of an application form a joint release: all are accepted or
none. Its address is APP@ID, which status, explain, wait, approve, reject, bypass, cancel,
retry and rollback take in place of SVC VERSION. Parameters are then given as
SVC/name=value.

A new version takes the newest incarnation; a known version means the same bytes again.
Parameters are given as name=value for all channels or CHANNEL:name=value for one. true,
false and numbers are sent as such; put a value in double quotes to send text.

--strategy overrides the strategy that the service declares: latest skips older releases
that wait, train keeps the order, and immediate also ends older releases in progress.

--aspect releases values of an aspect that the service declares, independent of its
version: each instance keeps its current version, and other aspects. Its name is in the
answer.

--wait follows the release: Ctrl-C stops watching, never the release.`,
		Example: `  converge release shop/web v9 --wait
  converge release web v9 -p replicas=3 -p 'tag="007"' -p canary:replicas=1
  converge release shop/web --aspect flags flagSet=dark canary:flagSet=light --wait
  converge release shop/web v10 --strategy immediate --reason "v9 hangs"
  converge release shop/web v9 --wait --stop-at-approval --timeout 30m --request-id ci-811
  converge release shop web=v9 api=v4 --id autumn --wait`,
		Args: releaseArgs,
		RunE: newRunE(o, runF, o.run, func(args []string) error {
			if o.aspect != "" {
				o.params = append(o.params, args[1:]...)
				return f.parseServiceArgs(args[:1], &o.service)
			}
			if isJoint(args) {
				return o.parseJointArgs(args)
			}
			if o.id != "" {
				return errors.New("--id applies to a joint release only: converge release APP SVC=VERSION SVC=VERSION")
			}
			return f.parseServiceArgs(args, &o.service, &o.version)
		}),
	}
	cmd.Flags().StringVar(&o.id, "id", "", "id of a joint release (default: generated)")
	cmd.Flags().StringArrayVarP(&o.params, "param", "p", nil, "parameter: name=value or CHANNEL:name=value (repeatable)")
	cmd.Flags().StringVar(&o.aspect, "aspect", "", "release values of this aspect instead of a version")
	cmd.Flags().StringVar(&o.requestID, "request-id", "", "idempotency key: the same id is the same release (default: random)")
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, kept with the release")
	cmd.Flags().StringVar(&o.strategy, "strategy", "", "strategy of the release: latest, train or immediate (default: as declared)")
	cmd.Flags().BoolVarP(&o.wait, "wait", "w", false, "follow the release until it ends")
	cmd.Flags().BoolVar(&o.stopAtApproval, "stop-at-approval", false, "with --wait: exit with status 8 as soon as an approval can be given")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "with --wait: give up after this duration, with exit status 3 (default: never)")
	return cmd
}

// isJoint reports whether a release names versions of several services.
func isJoint(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, "=") })
}

func releaseArgs(cmd *cobra.Command, args []string) error {
	aspect := cmd.Flag("aspect").Value.String()
	switch values := args[min(1, len(args)):]; {
	case aspect == "" && isJoint(args):
		return nil
	case aspect == "":
		return argsFromUse(cmd, args)
	case len(args) == 0 || strings.Contains(args[0], "=") || slices.ContainsFunc(values, func(a string) bool { return !strings.Contains(a, "=") }):
		return fmt.Errorf("with --aspect: expected a service, and values of the aspect: converge release SVC --aspect %s NAME=VALUE", aspect)
	}
	return nil
}

func (o *releaseOptions) run(ctx context.Context) error {
	if len(o.parts) > 0 {
		return o.runJoint(ctx)
	}
	request, err := o.request()
	if err != nil {
		return err
	}
	var answer protocol.ReleaseAnswer
	if err := o.f.act(ctx, o.service, protocol.Release, request.RequestID, request, &answer); err != nil {
		return err
	}
	if o.aspect == "" && answer.Version != o.version {
		return fmt.Errorf("request id %s was accepted before, as release %s of version %s; nothing new was released", request.RequestID, answer.ID, answer.Version)
	}
	if err := o.printAccepted(answer); err != nil || !o.wait {
		return err
	}
	return o.follow(ctx, answer)
}

func (o *releaseOptions) request() (protocol.ReleaseRequest, error) {
	r := protocol.ReleaseRequest{RequestMeta: o.f.newAct(o.reason), Version: o.version, Aspect: o.aspect, Strategy: o.strategy}
	if o.requestID != "" {
		r.RequestID = o.requestID
	}
	if err := o.checkFlags(); err != nil {
		return r, err
	}
	var err error
	r.Parameters, r.ChannelParameters, err = parseParams(o.params)
	return r, err
}

func (o *releaseOptions) checkFlags() error {
	if !o.wait && (o.stopAtApproval || o.timeout != 0) {
		return fmt.Errorf("--stop-at-approval and --timeout require --wait")
	}
	return nil
}

func (o *releaseOptions) printAccepted(a protocol.ReleaseAnswer) error {
	screen := o.f.screen()
	if o.f.structured() {
		if o.wait {
			return screen.StreamDocument(a)
		}
		return screen.Document(a)
	}
	line := fmt.Sprintf("release %s: %s %s from incarnation %d", a.ID, o.service.Service, a.Version, a.Incarnation)
	if a.Repeated {
		line += " (accepted before under this request id)"
	}
	if a.Note != "" {
		o.f.note("%s", a.Note)
	}
	return screen.Lines(append([]string{line}, a.Next...)...)
}

// follow prints the events of the release until it is decided.
func (o *releaseOptions) follow(ctx context.Context, a protocol.ReleaseAnswer) error {
	g := outcome.Goal{Release: a.ID, Approval: outcome.AwaitsApproval}
	if o.stopAtApproval {
		g.Approval = outcome.EndsAtApprovalNow
	}
	log := &journalPrinter{f: o.f, screen: o.f.screen(), release: a.ID, quiet: o.stopAtApproval}
	w := follower{f: o.f, api: o.f.api, name: o.service, goal: g, timeout: o.timeout, onStatus: log.print}
	return w.run(ctx)
}

// run waits, reports the result and returns its exit code.
func (w *follower) run(ctx context.Context) error {
	s, out, err := w.follow(ctx)
	if err != nil {
		return err
	}
	f := w.f
	if out.Code == outcome.Error {
		return fmt.Errorf("%s", out.Why)
	}
	if f.structured() {
		if err := f.screen().StreamDocument(map[string]any{"exit": out.Code, "why": out.Why, "status": s}); err != nil {
			return err
		}
		return exit(out.Code)
	}
	text := out.Why + "."
	if out.Next != "" {
		text += " " + out.Next
	}
	if out.Next != "" || out.Code == outcome.Person {
		text += " See: converge explain " + s.Application + "/" + s.Service
	}
	if err := f.screen().Lines(text); err != nil {
		return err
	}
	return exit(out.Code)
}

// journalPrinter prints each line of a service's journal once, beginning with the release's own lines.
type journalPrinter struct {
	f                *Factory
	screen           show.Screen
	release          string
	last             int64  // number of the last line seen
	quiet            bool   // approvals end the wait, and are reported then
	lastApprovalNote string // the last message about approvals
}

func (l *journalPrinter) print(s protocol.Status) error {
	r, ok := outcome.ReleaseByID(s, l.release)
	var entries []entities.JournalEntry
	for _, j := range s.Journal {
		if j.N <= l.last || ok && j.At.Before(r.At) {
			continue
		}
		if l.last > 0 && j.N > l.last+1 {
			l.f.note("%d lines were missed", j.N-l.last-1)
		}
		l.last = j.N
		if j.Release == l.release {
			continue // the answer already contained it
		}
		entries = append(entries, j)
	}
	if l.f.structured() {
		for _, j := range entries {
			if err := l.screen.StreamDocument(j); err != nil {
				return err
			}
		}
		return nil
	}
	if err := l.screen.Lines(explain.Journal(entries, s, l.f.Now())...); err != nil {
		return err
	}
	l.noteApproval(s, r)
	return nil
}

// noteApproval reports once, on stderr, which approval the release waits for and how to give it.
func (l *journalPrinter) noteApproval(s protocol.Status, r protocol.ReleaseStatus) {
	if l.quiet {
		return
	}
	if out, now := outcome.ApprovableNow(s, r); now && out.Why+out.Next != l.lastApprovalNote {
		l.lastApprovalNote = out.Why + out.Next
		l.f.note("%s", outcome.Join(" ", out.Why+".", out.Next, "Ctrl-C stops watching; the release continues."))
	}
}

// parseParams reads -p flags: name=value for all channels, CHANNEL:name=value for one.
func parseParams(flags []string) (all map[string]any, channels map[string]map[string]any, err error) {
	for _, flag := range flags {
		key, value, ok := strings.Cut(flag, "=")
		if !ok {
			return nil, nil, fmt.Errorf("-p %s: expected name=value or CHANNEL:name=value", flag)
		}
		channel, name, ofChannel := strings.Cut(key, ":")
		if !ofChannel {
			channel, name = "", key
		}
		if name == "" || ofChannel && channel == "" {
			return nil, nil, fmt.Errorf("-p %s: expected name=value or CHANNEL:name=value", flag)
		}
		if channels == nil {
			channels = map[string]map[string]any{}
		}
		if channels[channel] == nil {
			channels[channel] = map[string]any{}
		}
		if _, twice := channels[channel][name]; twice {
			return nil, nil, fmt.Errorf("-p %s: %s is given twice", flag, key)
		}
		channels[channel][name] = paramValue(value)
	}
	all = channels[""] // no channel has an empty name
	delete(channels, "")
	return all, channels, nil
}

// paramValue infers the type of a value: true, false and JSON numbers keep their type, text in double quotes loses its quotes, everything
// else is text. The declaration of the parameter decides whether the type is valid.
func paramValue(value string) any {
	if strings.TrimSpace(value) != value || value == "" || strings.ContainsAny(value[:1], "[{n") {
		return value // a list, a map and null are text: parameters are scalars
	}
	d := json.NewDecoder(bytes.NewReader([]byte(value)))
	d.UseNumber() // a number keeps every digit
	var v any
	if err := d.Decode(&v); err != nil || d.More() {
		return value
	}
	return v
}
