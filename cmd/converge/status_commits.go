package main

import (
	"context"
	"fmt"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// shownCommits is the maximum number of commits per channel in the text output.
const shownCommits = 20

// statusWithCommits is a status with the commits that releases bring to its channels.
type statusWithCommits struct {
	protocol.Status
	Commits []protocol.ReleaseCommits `json:"commits"`
}

// commitsOf determines the commits that the newest release of each channel brings, or brought.
func (o *statusOptions) commitsOf(ctx context.Context, all []protocol.Status) ([]statusWithCommits, error) {
	out := make([]statusWithCommits, 0, len(all))
	for _, s := range all {
		at, err := o.f.stores(o.store).Readable(s.Store)
		if err != nil {
			return nil, err
		}
		one, err := channelCommits(ctx, at, s)
		if err != nil {
			return nil, fmt.Errorf("commits of %s/%s: %w", s.Application, s.Service, err)
		}
		out = append(out, one)
	}
	return out, nil
}

func channelCommits(ctx context.Context, location string, s protocol.Status) (statusWithCommits, error) {
	result := statusWithCommits{Status: s, Commits: []protocol.ReleaseCommits{}}
	store, err := store.Open(ctx, location)
	if err != nil {
		return result, err
	}
	defer store.Close() // only read
	for _, c := range s.Channels {
		r, since, ok := enteringRelease(s, c)
		if !ok {
			continue
		}
		b, err := store.Brought(ctx, s.Application, since, r.Incarnation)
		if err != nil {
			return result, err
		}
		b.Channel, b.Version = c.Name, r.Version
		result.Commits = append(result.Commits, b)
	}
	return result, nil
}

// enteringRelease returns the newest release of a channel, and the incarnation of the version that it replaces; 0: it replaces nothing.
func enteringRelease(s protocol.Status, c protocol.ChannelStatus) (r protocol.ReleaseStatus, since int64, ok bool) {
	version := first(c.Desired, c.Target)
	r, ok = outcome.ReleaseWhere(s, func(r protocol.ReleaseStatus) bool { return r.Version == version })
	before, known := outcome.ReleaseWhere(s, func(b protocol.ReleaseStatus) bool {
		if c.Target != version {
			return b.Version == c.Target
		}
		return b.Version != version && b.At.Before(r.At) && b.Phases[c.Name] == string(maestro.Succeeded)
	})
	if known {
		since = before.Incarnation
	}
	return r, since, ok
}

// lines formats the commits as text.
func (w statusWithCommits) lines() (lines []string) {
	for _, b := range w.Commits {
		lines = append(lines, "", fmt.Sprintf("%s/%s %s: %s of %s%s", w.Application, w.Service, b.Channel, entities.Count(b.Count(), "commit"), b.Version, sinceIncarnation(b.Since)))
		shown := b.Bounded(shownCommits)
		for _, i := range shown.Commits {
			for _, c := range i.Commits {
				line := fmt.Sprintf("  %s (incarnation %d", c, i.Incarnation)
				if c.OutsideDir {
					line += ", outside of the configuration"
				}
				lines = append(lines, line+")")
			}
		}
		if more := b.Count() - shown.Count(); more > 0 {
			lines = append(lines, fmt.Sprintf("  and %d more: --output json", more))
		}
		if b.Unknown != "" {
			lines = append(lines, "  incomplete: "+b.Unknown)
		}
	}
	return lines
}

func sinceIncarnation(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" since incarnation %d", n)
}
