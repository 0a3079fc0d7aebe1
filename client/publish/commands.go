package publish

import (
	"context"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/runtimes/custom"
)

// maxPrinted is the limit of a command's output, in bytes.
const maxPrinted = config.MaxSource

// Commands returns a function that runs the commands of a configuration at compile time, or nil. A caller that allows them trusts everyone
// who can change the configuration.
func Commands(ctx context.Context, allowed bool) func(config.Command) (config.RunResult, error) {
	if !allowed {
		return nil
	}
	return func(r config.Command) (config.RunResult, error) {
		stdout, stderr, code, err := custom.RunTool(ctx, custom.Tool{
			ErrorPrefix: r.Argv[0], Dir: r.Dir, Argv: r.Argv, Stdin: r.Stdin, Timeout: r.Timeout, Limit: maxPrinted,
		})
		return config.RunResult{Stdout: stdout, Stderr: stderr, ExitCode: code}, err
	}
}
