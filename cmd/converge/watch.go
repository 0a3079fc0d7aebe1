package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/client/origin"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/client/watch"
)

type watchOptions struct {
	f             *Factory
	sources       []string
	store         string
	interval      time.Duration
	quiet         time.Duration
	maxDelay      time.Duration
	allowCommands bool

	loginMu sync.Mutex // the login is renewed when it is used
}

// minInterval is the minimum poll interval for a server.
const minInterval = time.Second

func newCmdWatch(f *Factory, runF func(context.Context, *watchOptions) error) *cobra.Command {
	o := &watchOptions{f: f}
	cmd := &cobra.Command{
		Use:   "watch SOURCE...",
		Short: "Publish a configuration whenever it changes",
		Long: `Poll sources, and publish what changed, as converge config publish does. Changes within a
short time become one incarnation, which names its causes. A failed publication is reported
and retried, until the next change replaces it. Sources do not delay each other. After a
restart it resumes, since the last publication is recorded in the application.

` + sourceUsage + `
A repository is only polled for its refs, until one of them changes.`,
		Example: `  converge config watch 'git::https://github.com/acme/shop//deploy?ref=main'
  converge config watch shop billing 'exec::./render --all' --interval 5m`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no source to watch was given; usage: converge config watch SOURCE... [flags]")
			}
			return nil
		},
		RunE: newRunE(o, runF, o.run, func(args []string) error { o.sources = args; return nil }),
	}
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	cmd.Flags().BoolVar(&o.allowCommands, "allow-commands", false, allowCommandsUsage)
	cmd.Flags().DurationVar(&o.interval, "interval", 30*time.Second, "time between two polls of a source")
	cmd.Flags().DurationVar(&o.quiet, "quiet", 3*time.Second, "publish once nothing changed for this time")
	cmd.Flags().DurationVar(&o.maxDelay, "within", 30*time.Second, "publish at the latest this long after the first change")
	return cmd
}

func (o *watchOptions) run(ctx context.Context) error {
	if o.interval < minInterval {
		return fmt.Errorf("--interval %v: expected at least %v", o.interval, minInterval)
	}
	if o.quiet < 0 || o.maxDelay < o.quiet {
		return fmt.Errorf("--quiet %v --within %v: expected --quiet not longer than --within", o.quiet, o.maxDelay)
	}
	if o.f.sign {
		return errors.New("--sign has a person sign each publication; expected CONVERGE_SIGN_COMMAND, or CONVERGE_TOKEN")
	}
	o.f.Out, o.f.Err = &lockedWriter{Writer: o.f.Out}, &lockedWriter{Writer: o.f.Err}
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	c, _ := api.Temporal()
	var all []watch.Publisher
	for _, name := range o.sources {
		source, err := origin.Parse(name)
		if err != nil {
			return err
		}
		all = append(all, watch.Publisher{
			Source: source, Interval: o.interval, Quiet: o.quiet, MaxDelay: o.maxDelay, Since: publish.Since(ctx, c),
			Publish: func(ctx context.Context, tree origin.Tree) error { return o.publish(ctx, c, name, tree) },
			Report:  func(err error) { o.report(name, err) },
		})
	}
	var g sync.WaitGroup
	for _, w := range all {
		g.Go(func() { w.Run(ctx) })
	}
	g.Wait()
	return nil
}

// publish publishes the current state of a source. If it is already the newest incarnation, nothing is reported.
func (o *watchOptions) publish(ctx context.Context, c client.Client, name string, tree origin.Tree) error {
	store, err := o.f.storeFor(ctx, tree, o.store)
	if err != nil {
		return err
	}
	o.loginMu.Lock()
	token, unproven := o.f.authToken(), o.f.tokenErr
	o.loginMu.Unlock()
	if unproven != nil {
		return unproven
	}
	result, err := o.f.publish(ctx, publish.Options{
		Client: c, StoreURL: store, By: o.f.by(), Token: token, AllowCommands: o.allowCommands,
		Before: func(r publish.Result) error { o.f.noteWarnings(r); return nil },
	}.Of(tree))
	if err != nil || result.Unchanged && len(result.Started) == 0 {
		return err
	}
	if o.f.structured() {
		return o.f.screen().Document(result)
	}
	lines := append([]string{fmt.Sprintf("%s: %s", name, result)}, tree.Causes...)
	_, err = io.WriteString(o.f.Out, strings.Join(lines, "\n  ")+"\n")
	return err
}

// report prints a problem of a source, and its end.
func (o *watchOptions) report(name string, err error) {
	if err == nil {
		o.f.note("%s: recovered", name)
		return
	}
	o.f.note("%s: %v", name, err)
}

// lockedWriter is a writer that serializes whole texts of concurrent callers.
type lockedWriter struct {
	io.Writer
	mu sync.Mutex
}

func (o *lockedWriter) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Writer.Write(data)
}
