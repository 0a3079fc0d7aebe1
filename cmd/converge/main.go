// Command converge releases services and explains why they are not moving. Each verb, or a few related ones, is one file. The verbs use
// Temporal through the small interface in client/connection. The Temporal server is never linked into this program, nor are Helm and Kustomize:
// `converge dev` becomes another program, and a third one renders (cmd/internal/program).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/cmd/internal/program"
	"github.com/converge-engine/converge/cmd/internal/start"
	"github.com/converge-engine/converge/intent/sources"
	"github.com/converge-engine/converge/runtimes/custom"
)

func main() { runProgram(useRenderProgram) }

// useRenderProgram renders charts and kustomizations in a separate program. It searches for that program only when it needs it.
func useRenderProgram(ctx context.Context) {
	sources.RenderInSubprocess(func() (string, error) { return program.Render.Find(ctx, os.Stderr) }, sources.MaxTime)
}

// runProgram runs the program; render sets the renderer.
func runProgram(render func(context.Context)) {
	custom.RunWatchdog()
	ctx, stop := interruptContext()
	render(ctx)
	f := newFactory()
	code := run(ctx, f, os.Args[1:])
	stop()
	os.Exit(code)
}

// interruptContext ends its context, with errInterrupted as the cause, at the first Ctrl-C or
// SIGTERM; a second one ends the program at once.
func interruptContext() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel(errInterrupted)
		<-signals
		os.Exit(exitInterrupted)
	}()
	return ctx, func() { signal.Stop(signals) }
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, f *Factory, args []string) int {
	root := newRoot(f)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	f.close()
	return finish(ctx, err, f.Err)
}

// programVersion returns the version of the module, which Go takes from git, or from the module that it installs.
func programVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "unversioned" // built with -buildvcs=false, or from a directory without git
	}
	return info.Main.Version
}

// newRoot returns the program with every command.
func newRoot(f *Factory) *cobra.Command {
	root := &cobra.Command{
		Use:   "converge",
		Short: "Release services through channels, and see what blocks them",
		Long: `Converge releases services through release channels, durably, on Temporal.

SVC is application/service; the application may be omitted inside a directory that
defines it. The connection follows the temporal CLI: --address, --namespace and
--profile, the TEMPORAL_* variables, or a profile file (API key and TLS included).`,
		Version:       programVersion(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(f.In)
	root.SetOut(f.Out)
	root.SetErr(f.Err)
	f.addFlags(root.PersistentFlags())
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		start.Done()
		return f.checkFormat()
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see: %s --help", err, cmd.CommandPath())
	})
	root.SetHelpTemplate(root.HelpTemplate() + "\n" + exitFooter + "\n")
	addCommands(f, root)
	return root
}
