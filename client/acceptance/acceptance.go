// Package acceptance tries a real cluster or account with a small service of its own: it releases, breaks, takes back and removes
// that service by command lines of converge, and prints of each whether it holds. It removes what it makes, in any case.
//
// It decides nothing, and reaches the place and the server through those command lines alone. It may import entities.
package acceptance

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
)

// Options name the place that is tried, and the versions that are released there.
type Options struct {
	Place    Place
	Versions [2]string // two different tags of the image that work
	Broken   string    // a tag that does not exist
	Timeout  time.Duration
	Store    string // empty: the application's own
}

// Console carries out command lines, waits and prints.
type Console interface {
	// Converge carries out a command line of converge as a person gives it, and returns its output and its exit status.
	Converge(ctx context.Context, args ...string) (output string, code int)
	// Sleep waits, and returns an error when ctx ends before.
	Sleep(ctx context.Context, d time.Duration) error
	// Lines prints lines.
	Lines(lines ...string) error
}

// Exit statuses of converge (docs/operating.md, Exit codes).
const (
	done   = 0
	failed = 2
)

// trial is one thing that is tried: a command line, how it has to end, and what has to be so then.
type trial struct {
	what   string
	args   []string
	exit   int
	before func() error
	then   func(protocol.ChannelStatus) error
	gone   bool // it is asked again and again, until nothing of the service is left
}

// Run tries one thing after the other, and reports whether all of them hold. Where one does not hold the rest has no meaning, but what
// was made is removed.
func Run(ctx context.Context, console Console, o Options) (bool, error) {
	dir, err := os.MkdirTemp("", "converge-acceptance-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	name := "acceptance-" + strings.ToLower(rand.Text()[:6])
	if err := o.Place.write(dir, name); err != nil {
		return false, err
	}
	r := runner{console: console, service: name + "/web", timeout: o.Timeout}
	trials, removal := o.trials(dir, name), o.removal(dir, name)
	held, removed := r.hold(ctx, trials), 0
	if held > 0 {
		removed = r.hold(context.WithoutCancel(ctx), removal)
	}
	if err := context.Cause(ctx); err != nil {
		return false, err
	}
	return held+removed == len(trials)+len(removal), nil
}

func (o Options) trials(dir, name string) []trial {
	web, patience := name+"/web", o.Timeout.String()
	runs := func(version string) func(protocol.ChannelStatus) error {
		return func(c protocol.ChannelStatus) error {
			if c.Current != version || len(c.Objects) == 0 {
				return fmt.Errorf("it runs %q with %d objects", c.Current, len(c.Objects))
			}
			return nil
		}
	}
	good, better := o.Versions[0], o.Versions[1]
	return []trial{
		{what: "a configuration is published", args: o.apply(dir)},
		{what: "a service is created", args: []string{"release", web, good, "--wait", "--timeout", patience}, then: runs(good)},
		{what: "another version takes its place", args: []string{"release", web, better, "--wait", "--timeout", patience}, then: runs(better)},
		{what: "a broken version is found out and taken back", args: []string{"release", web, o.Broken, "--wait", "--timeout", patience}, exit: failed, then: runs(better)},
		{what: "why is explained", args: []string{"explain", web, "only"}},
		{what: "a person rolls back", args: []string{"rollback", web, "--reason", "acceptance"}},
		{what: "and the version before runs", args: []string{"wait", web, "--timeout", patience}, exit: failed, then: runs(good)},
	}
}

func (o Options) removal(dir, name string) []trial {
	return []trial{
		{
			what: "its removal is asked for", args: append(o.apply(dir), "--remove", name+"/web", "--reason", "acceptance", "--yes"),
			before: func() error { return os.Remove(filepath.Join(dir, "web.converge.yaml")) },
		},
		{what: "nothing of it is left", gone: true, args: []string{"status", name + "/web", "--output", "json"}},
	}
}

func (o Options) apply(dir string) []string {
	args := []string{"apply", dir}
	if o.Store != "" {
		args = append(args, "--store", o.Store)
	}
	return args
}
