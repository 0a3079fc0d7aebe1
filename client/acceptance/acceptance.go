// Package acceptance tests a real cluster or account with a small test service. It releases, breaks, rolls back and removes that
// service with command lines of converge, and prints the result of each. It always removes what it creates.
//
// It makes no decisions, and accesses the runtime and the server only through those command lines. It may import entities.
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

// Options name the runtime to test, and the versions to release there.
type Options struct {
	Environment Environment
	Versions    [2]string // two different, working tags of the image
	Broken      string    // a tag that does not exist
	Timeout     time.Duration
	Store       string // empty: the application's store
}

// Console executes command lines, waits and prints.
type Console interface {
	// Converge executes a command line of converge as a user would, and returns its output and its exit status.
	Converge(ctx context.Context, args ...string) (output string, code int)
	// Sleep waits. It returns an error if ctx ends first.
	Sleep(ctx context.Context, d time.Duration) error
	// Lines prints lines.
	Lines(lines ...string) error
}

// Exit statuses of converge (docs/reference.md, Exit codes).
const (
	done   = 0
	failed = 2
)

// trial is one test: a command line, its expected exit status, and the expected state afterwards.
type trial struct {
	description  string
	args         []string
	wantExit     int
	setup        func() error
	verify       func(protocol.ChannelStatus) error
	untilDeleted bool // poll until nothing of the service is left
}

// Run executes one trial after the other, and reports whether all pass. After a failure it skips the remaining trials, but it removes
// everything that was created.
func Run(ctx context.Context, console Console, o Options) (bool, error) {
	dir, err := os.MkdirTemp("", "converge-acceptance-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	name := "acceptance-" + strings.ToLower(rand.Text()[:6])
	if err := o.Environment.write(dir, name); err != nil {
		return false, err
	}
	r := runner{console: console, service: name + "/web", timeout: o.Timeout}
	trials, removal := o.trials(dir, name), o.removal(dir, name)
	passed, removalPassed := r.runAll(ctx, trials), 0
	if passed > 0 {
		removalPassed = r.runAll(context.WithoutCancel(ctx), removal)
	}
	if err := context.Cause(ctx); err != nil {
		return false, err
	}
	return passed+removalPassed == len(trials)+len(removal), nil
}

func (o Options) trials(dir, name string) []trial {
	web, timeout := name+"/web", o.Timeout.String()
	serves := func(version string) func(protocol.ChannelStatus) error {
		return func(c protocol.ChannelStatus) error {
			if c.Current != version || len(c.Objects) == 0 {
				return fmt.Errorf("it runs %q with %d objects", c.Current, len(c.Objects))
			}
			return nil
		}
	}
	good, better := o.Versions[0], o.Versions[1]
	return []trial{
		{description: "a configuration is published", args: o.apply(dir)},
		{description: "a service is created", args: []string{"release", web, good, "--wait", "--timeout", timeout}, verify: serves(good)},
		{description: "a second version is deployed", args: []string{"release", web, better, "--wait", "--timeout", timeout}, verify: serves(better)},
		{description: "a broken version is rolled back", args: []string{"release", web, o.Broken, "--wait", "--timeout", timeout}, wantExit: failed, verify: serves(better)},
		{description: "the failure is explained", args: []string{"explain", web, "only"}},
		{description: "a manual rollback is accepted", args: []string{"rollback", web, "--reason", "acceptance"}},
		{description: "the previous version runs", args: []string{"wait", web, "--timeout", timeout}, wantExit: failed, verify: serves(good)},
	}
}

func (o Options) removal(dir, name string) []trial {
	return []trial{
		{
			description: "its removal is requested", args: append(o.apply(dir), "--remove", name+"/web", "--reason", "acceptance", "--yes"),
			setup: func() error { return os.Remove(filepath.Join(dir, "web.converge.yaml")) },
		},
		{description: "the service is deleted", untilDeleted: true, args: []string{"status", name + "/web", "--output", "json"}},
	}
}

func (o Options) apply(dir string) []string {
	args := []string{"config", "publish", dir}
	if o.Store != "" {
		args = append(args, "--store", o.Store)
	}
	return args
}
