package main

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/cmd/internal/program"
)

type devOptions struct {
	f    *Factory
	args []string
	exec func(ctx context.Context, args []string, stderr io.Writer) error
}

// newCmdDev hands its arguments on as they are: the flags are those of the program it becomes.
func newCmdDev(f *Factory, runF func(context.Context, *devOptions) error) *cobra.Command {
	o := &devOptions{f: f, exec: program.Dev.Exec}
	return &cobra.Command{
		Use:   "dev [DIR] [flags]",
		Short: "Run a server and a worker locally, and publish a directory when it changes",
		Long: `Run a Temporal server, its Web UI, a worker and the HTTP API in one process, publish
the configuration in DIR, and publish it again whenever a file is saved. All
state is kept in DIR/.converge; the next start resumes from it.

The server is a separate program, converge-dev, which is built if it is not installed.
Its flags:
      --port int       port of Temporal on the loopback address (default 7233)
      --ui-port int    port of the Web UI on the loopback address (default 8233)
      --api-port int   port of the HTTP API on the loopback address; 0 takes a free one
                       (default 8234)
      --db string      SQLite file (default: in DIR/.converge)
      --metrics address
                       serve /metrics, /healthz and /readyz at PORT or HOST:PORT
      --allow-commands run the generators and validators that the configuration declares
      --allow-env strings
                       environment variables that a configuration may reference with
                       workerEnv, as NAME or PREFIX* (CONVERGE_ALLOW_ENV)
      --allow-secret strings
                       secrets of clusters and AWS that it may name (CONVERGE_ALLOW_SECRET)
      --sops-age-key-file file
                       age identities for SOPS (SOPS_AGE_KEY_FILE, SOPS_AGE_KEY)`,
		Example: `  converge dev examples/hello
  converge dev --port 7300 --ui-port 8300 --api-port 8301`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.args = args
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return o.run(cmd)
		},
	}
}

func (o *devOptions) run(cmd *cobra.Command) error {
	if slices.Contains(o.args, "--help") || slices.Contains(o.args, "-h") {
		return cmd.Help() // here, since the program may have to be built first
	}
	return o.exec(cmd.Context(), o.args, o.f.Err)
}
