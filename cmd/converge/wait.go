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
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
)

type waitOptions struct {
	f       *Factory
	service connection.ServiceName
	joint   *jointName // instead: the services of a joint release
	version string
	channel string
	timeout time.Duration
}

func newCmdWait(f *Factory, runF func(context.Context, *waitOptions) error) *cobra.Command {
	o := &waitOptions{f: f}
	cmd := &cobra.Command{
		Use:   "wait SVC [VERSION] | wait APP@ID",
		Short: "Wait until a service or a release has settled",
		Long: `Wait until nothing changes without a person any more, in all channels or in one. With
VERSION, wait for its newest release; without, for the service. With APP@ID, a joint
release, wait for all its services; the most severe exit status counts. Waiting adds
nothing to the workflow's history. Ctrl-C stops waiting and nothing else.`,
		Example: `  converge wait shop/web
  converge wait shop/web v9 --channel staging --timeout 10m
  converge wait shop@autumn`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) error {
			if j, joint, err := parseJoint(args[0]); joint {
				o.joint = &j
				return err
			}
			return f.parseServiceArgs(args, &o.service, &o.version)
		}),
	}
	cmd.Flags().StringVarP(&o.channel, "channel", "c", "", "wait for this release channel only")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "give up after this duration, with exit status 3 (default: never)")
	return cmd
}

func (o *waitOptions) run(ctx context.Context) error {
	if o.joint != nil {
		names, err := o.f.partsOf(ctx, *o.joint)
		if err != nil {
			return err
		}
		return o.f.waitAll(ctx, names, outcome.Goal{Release: o.joint.id, Channel: o.channel}, o.timeout)
	}
	s, err := o.f.status(ctx, o.service)
	if err != nil && (o.version != "" || !errors.Is(err, connection.ErrNoWorker)) {
		return err // without a status the release is unknown
	}
	g := outcome.Goal{Channel: o.channel}
	if o.version != "" {
		r, ok := outcome.ReleaseWhere(s, func(r protocol.ReleaseStatus) bool { return r.Version == o.version })
		if !ok {
			return fmt.Errorf("%s has no release %s; known releases: %s", o.service, o.version, versions(s))
		}
		g.Release = r.ID
	}
	w := follower{f: o.f, api: o.f.api, name: o.service, goal: g, timeout: o.timeout, onStatus: func(protocol.Status) error { return nil }}
	return w.run(ctx)
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
	if more := len(out) - maxListedVersions; more > 0 {
		out = append(out[:maxListedVersions], fmt.Sprintf("%d older ones", more))
	}
	return strings.Join(out, ", ")
}

// maxListedVersions is the maximum number of versions in the error for an unknown version.
const maxListedVersions = 20

// Intervals between two queries while waiting. Queries cost no history.
const (
	minPollInterval    = 250 * time.Millisecond
	statusPollInterval = time.Second
	maxPollInterval    = 5 * time.Second // when nothing moves, and nothing has happened for a long time
)

// follower queries a service until the goal of the wait is decided.
type follower struct {
	f       *Factory
	api     connection.API
	name    connection.ServiceName
	goal    outcome.Goal
	timeout time.Duration // 0: none
	// onStatus receives every status, newest last.
	onStatus func(protocol.Status) error
	failures explain.Failures
}

// follow polls until outcomeFor says that the wait is over. It survives lost connections and unavailable workers. The timeout and Ctrl-C
// end only the wait, never the release.
func (w *follower) follow(ctx context.Context) (protocol.Status, outcome.Outcome, error) {
	parent := ctx
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	var last outcome.Outcome
	p := pollPace{}
	for lost := false; ; {
		var s protocol.Status
		err := w.api.Query(ctx, w.name.ID(), protocol.QueryStatus, &s)
		switch {
		case ctx.Err() != nil:
			return s, last, w.endedError(parent, last)
		case err != nil && !connection.Transient(err):
			return s, last, err
		case err != nil:
			if !lost {
				w.f.note("%v; retrying", err)
			}
			lost = true
		default:
			if lost {
				w.f.note("reconnected")
			}
			lost = false
			if err := w.onStatus(s); err != nil {
				return s, last, err
			}
			for _, line := range explain.Journal(w.failures.New(s, w.f.Now()), s, w.f.Now()) {
				w.f.note("%s", line)
			}
			if last = outcome.Of(s, w.goal); last.Final {
				return s, last, nil
			}
		}
		if w.f.Sleep(ctx, p.next(s)) != nil {
			return s, last, w.endedError(parent, last)
		}
	}
}

// endedError distinguishes a timeout from Ctrl-C.
func (w *follower) endedError(parent context.Context, last outcome.Outcome) error {
	if errors.Is(context.Cause(parent), errInterrupted) {
		w.f.note("stopped watching; %s continues. See: converge status %s", w.name.Service, w.name)
		return exit(exitInterrupted)
	}
	if parent.Err() != nil {
		return parent.Err()
	}
	text := outcome.Join(": ", fmt.Sprintf("timed out after %s", w.timeout), outcome.Join("; ", last.Why, w.failures.Last()))
	return &exitErr{outcome.TimedOut, errors.New(text)}
}

// pollPace polls often while something changes, and less often otherwise: the interval is a fifth of the time since the last change, at
// most five seconds, or one second while a rollout is under way.
type pollPace struct {
	wait      time.Duration
	lastEntry int64
}

func (p *pollPace) next(s protocol.Status) time.Duration {
	newest := p.lastEntry
	if n := len(s.Journal); n > 0 {
		newest = s.Journal[n-1].N
	}
	if newest != p.lastEntry || p.wait == 0 {
		p.lastEntry, p.wait = newest, minPollInterval
		return p.wait
	}
	longest := maxPollInterval
	if slices.ContainsFunc(s.Channels, isMoving) {
		longest = statusPollInterval
	}
	p.wait = min(p.wait*5/4, longest)
	return p.wait
}

// isMoving reports whether a channel may settle at any moment.
func isMoving(c protocol.ChannelStatus) bool {
	return c.Status == string(entities.StatusConverging) || c.Status == string(entities.StatusRollingBack)
}
