package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/acceptance"
)

// acceptanceOptions are the options of acceptance: a small test service, and the runtime on which it runs.
type acceptanceOptions struct {
	f        *Factory
	place    acceptance.Place
	versions []string
	broken   string
	timeout  time.Duration
	store    string
}

func newCmdAcceptance(f *Factory, runF func(context.Context, *acceptanceOptions) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "acceptance",
		Short: "Try a real cluster or account with a tiny service of its own",
		Long: `Try everything that a place has to do, where it really is: a service of its own is
released, released again, broken, taken back and removed, by the verbs that people use
and the workers that run. Each thing is printed with whether it held. What was made for
it is removed, whatever happened; the application stays, without services.`,
		Example: `  converge acceptance kubernetes --context eks-eu
  converge acceptance ecs --cluster test --region eu-west-1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCmdAcceptanceKubernetes(f, runF), newCmdAcceptanceECS(f, runF))
	return cmd
}

func newCmdAcceptanceKubernetes(f *Factory, runF func(context.Context, *acceptanceOptions) error) *cobra.Command {
	o := &acceptanceOptions{f: f}
	var at acceptance.Kubernetes
	cmd := &cobra.Command{
		Use:     "kubernetes",
		Short:   "Try a cluster",
		Example: `  converge acceptance kubernetes --context eks-eu --in default`,
		Args:    cobra.NoArgs,
		RunE: running(o, runF, o.run, func([]string) (err error) {
			if err := o.check(); err != nil {
				return err
			}
			o.place, err = at.Place()
			return err
		}),
	}
	cmd.Flags().StringVar(&at.Context, "context", "", "context in the kubeconfig of the workers (default: its current one)")
	cmd.Flags().StringVar(&at.Namespace, "in", "default", "namespace of the cluster, which has to exist")
	cmd.Flags().StringVar(&at.Image, "image", "registry.k8s.io/pause", "image that can be pulled there")
	o.flags(cmd, 10*time.Minute)
	return cmd
}

func (o *acceptanceOptions) flags(cmd *cobra.Command, patience time.Duration) {
	cmd.Flags().StringSliceVar(&o.versions, "versions", []string{"3.9", "3.10"}, "two tags of the image that work")
	cmd.Flags().StringVar(&o.broken, "broken", "nopull", "a tag of it that does not exist")
	cmd.Flags().DurationVar(&o.timeout, "timeout", patience, "for each thing that is tried")
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
}

// check refuses two equal versions, and a token, because a token serves only one request.
func (o *acceptanceOptions) check() error {
	if len(o.versions) != 2 || o.versions[0] == o.versions[1] {
		return errors.New("--versions: expected two different tags")
	}
	if o.f.givesToken() {
		return errors.New("a token serves one request, and this makes several: log in with converge login instead")
	}
	return nil
}

func (o *acceptanceOptions) run(ctx context.Context) error {
	console := acceptanceConsole{o.f}
	holds, err := acceptance.Run(ctx, console, acceptance.Options{
		Place: o.place, Versions: [2]string(o.versions), Broken: o.broken, Timeout: o.timeout, Store: o.store,
	})
	if err != nil {
		return err
	}
	if !holds {
		return exit(exitFailed)
	}
	return console.Lines("all of it holds")
}

// acceptanceConsole carries out command lines in this process.
type acceptanceConsole struct{ f *Factory }

// Converge runs a command line as a user would, over the same connection.
func (c acceptanceConsole) Converge(ctx context.Context, args ...string) (output string, code int) {
	var out bytes.Buffer
	f := *c.f
	f.In, f.Out, f.Err, f.AskTTY, f.api = strings.NewReader(""), &out, &out, false, nil
	for flag, value := range map[string]string{"token": c.f.token, "address": c.f.conn.address, "namespace": c.f.conn.namespace, "profile": c.f.conn.profile} {
		if value != "" {
			args = append(args, "--"+flag, value)
		}
	}
	if c.f.encrypt {
		args = append(args, "--encrypt-payloads")
	}
	code = run(ctx, &f, args)
	return out.String(), code
}

// Sleep waits on the clock of the command line.
func (c acceptanceConsole) Sleep(ctx context.Context, d time.Duration) error {
	return c.f.Sleep(ctx, d)
}

// Lines prints lines where the command prints its data.
func (c acceptanceConsole) Lines(lines ...string) error { return c.f.screen().Lines(lines...) }
