package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/acceptance"
	"github.com/converge-engine/converge/entities/outcome"
)

// acceptanceOptions are the options of acceptance: a small test service, and the runtime on which it runs.
type acceptanceOptions struct {
	f        *Factory
	env      acceptance.Environment
	versions []string
	broken   string
	timeout  time.Duration
	store    string
}

func newCmdAcceptance(f *Factory, runF func(context.Context, *acceptanceOptions) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "acceptance",
		Short: "Run acceptance tests against a real cluster or account",
		Long: `Test a real cluster or account end to end: release a small test service, release a second
version, release a broken one, roll back, and delete the service, with the same verbs and
workers that users have. Each step is printed with its result. What the test created is
removed, even after a failure; the test application stays, without services.`,
		Example: `  converge admin acceptance kubernetes --context eks-eu
  converge admin acceptance ecs --cluster test --region eu-west-1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCmdAcceptanceKubernetes(f, runF), newCmdAcceptanceECS(f, runF))
	return cmd
}

func newCmdAcceptanceKubernetes(f *Factory, runF func(context.Context, *acceptanceOptions) error) *cobra.Command {
	o := &acceptanceOptions{f: f}
	var cluster acceptance.Kubernetes
	cmd := &cobra.Command{
		Use:     "kubernetes",
		Short:   "Test a Kubernetes cluster",
		Example: `  converge admin acceptance kubernetes --context eks-eu --in default`,
		Args:    cobra.NoArgs,
		RunE: newRunE(o, runF, o.run, func([]string) (err error) {
			if err := o.check(); err != nil {
				return err
			}
			o.env, err = cluster.Environment()
			return err
		}),
	}
	cmd.Flags().StringVar(&cluster.Context, "context", "", "context in the kubeconfig of the workers (default: its current one)")
	cmd.Flags().StringVar(&cluster.Namespace, "in", "default", "namespace to deploy to, which must exist")
	cmd.Flags().StringVar(&cluster.Image, "image", "registry.k8s.io/pause", "image that the cluster can pull, without a tag")
	o.flags(cmd, 10*time.Minute)
	return cmd
}

func (o *acceptanceOptions) flags(cmd *cobra.Command, timeout time.Duration) {
	cmd.Flags().StringSliceVar(&o.versions, "versions", []string{"3.9", "3.10"}, "two working tags of the image")
	cmd.Flags().StringVar(&o.broken, "broken", "nopull", "a tag of the image that does not exist")
	cmd.Flags().DurationVar(&o.timeout, "timeout", timeout, "timeout of each step")
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
}

// check refuses two equal versions, and a token, because a token serves only one request.
func (o *acceptanceOptions) check() error {
	if len(o.versions) != 2 || o.versions[0] == o.versions[1] {
		return errors.New("--versions: expected two different tags")
	}
	if o.f.hasExplicitToken() {
		return errors.New("a token is valid for one request, and acceptance tests send several: use converge login instead")
	}
	return nil
}

func (o *acceptanceOptions) run(ctx context.Context) error {
	console := acceptanceConsole{o.f}
	passed, err := acceptance.Run(ctx, console, acceptance.Options{
		Environment: o.env, Versions: [2]string(o.versions), Broken: o.broken, Timeout: o.timeout, Store: o.store,
	})
	if err != nil {
		return err
	}
	if !passed {
		return exit(outcome.Failed)
	}
	return console.Lines("all steps passed")
}

// acceptanceConsole carries out command lines in this process.
type acceptanceConsole struct{ f *Factory }

// Converge runs a command line as a user would, over the same connection.
func (c acceptanceConsole) Converge(ctx context.Context, args ...string) (output string, code int) {
	var out bytes.Buffer
	f := *c.f
	f.In, f.Out, f.Err, f.CanPrompt, f.api = strings.NewReader(""), &out, &out, false, nil
	for flag, value := range map[string]string{"token": c.f.token, "address": c.f.conn.Address, "namespace": c.f.conn.Namespace, "profile": c.f.conn.Profile} {
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
