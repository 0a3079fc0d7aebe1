// Command converge-dev is the program that `converge dev` becomes: a Temporal server, its Web UI and a worker in one process, which
// also follows a directory.
//
// Only this program links the server; see docs/decisions/0001-temporal-server-is-embedded.md.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/intent/render"
	"github.com/converge-engine/converge/runtimes/custom"
)

func main() {
	custom.RunWatchdog()
	render.Run()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "converge: %v\n", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "dev [DIR]",
		Short: "Run Temporal, its Web UI and a worker locally, and publish DIR when it changes",
		Long: `Run Temporal, its Web UI and a worker in one process, publish the configuration in DIR
(default: the working directory), and publish it again whenever a file is saved. State is
kept in DIR/.converge between runs. Ctrl-C stops the server and the worker; deployed
services keep running, and the next start resumes from the saved state.`,
		Example: `  converge dev examples/hello
  converge dev --port 7300 --ui-port 8300 --api-port 8301`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("usage: converge dev [DIR]; got %d directories, expected at most one", len(args))
			}
			return nil
		},
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.dir = "."
			if len(args) == 1 {
				o.dir = args[0]
			}
			if o.port < 1 || o.port > 65535 {
				return fmt.Errorf("--port %d: expected a port from 1 to 65535", o.port)
			}
			return run(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w; see: converge dev --help", err)
	})
	// The launcher passes all arguments after the program's name, including the verb.
	cmd.Flags().IntVar(&o.port, "port", 7233, "port of Temporal on the loopback address")
	cmd.Flags().IntVar(&o.uiPort, "ui-port", 8233, "port of the Web UI on the loopback address")
	cmd.Flags().IntVar(&o.apiPort, "api-port", 8234, "port of the HTTP API on the loopback address; 0 takes a free one")
	cmd.Flags().StringSliceVar(&o.allowEnv, "allow-env", nil, "environment variables that a configuration may reference with workerEnv, as NAME or PREFIX* (CONVERGE_ALLOW_ENV)")
	cmd.Flags().StringSliceVar(&o.allowSecret, "allow-secret", nil, "secrets that a configuration may reference: kubernetes:[CONTEXT/]NAMESPACE/NAME, aws:[REGION:]NAME or aws:ARN; a trailing * matches any suffix (CONVERGE_ALLOW_SECRET)")
	cmd.Flags().StringArrayVar(&o.ageKeys, "sops-age-key-file", nil, "file of age identities that decrypt SOPS files: FILE for all applications, or APPLICATION=FILE; repeatable (default: SOPS_AGE_KEY_FILE and SOPS_AGE_KEY)")
	cmd.Flags().StringVar(&o.metrics, "metrics", "", "serve /metrics, /healthz and /readyz at PORT, on the loopback address only, or at HOST:PORT (CONVERGE_METRICS)")
	cmd.Flags().BoolVar(&o.allowCommands, "allow-commands", false, "run the generators and validators that the configuration declares, on this machine")
	cmd.Flags().StringVar(&o.db, "db", "", "SQLite file (default: in DIR/.converge)")
	return cmd
}
