package checks

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/custom"
)

// Default time limits of commands: a Job or a task also waits for scheduling and an image.
const (
	defaultCommandTimeout = 30 * time.Second
	defaultJobTimeout     = 5 * time.Minute
)

// command evaluates the exit code of a process, a Job or a task: 0 passes, 1 and 3 fail, 2 waits (A20). The last line of its output is
// the reason.
type command struct{ sources Sources }

func (c command) Evaluate(ctx context.Context, a Request) (entities.CheckReading, error) {
	d := a.Definition.Command
	switch {
	case d == nil:
		return incomplete(a)
	case c.sources.Commands == nil:
		return unevaluated("commands are not available here")
	case (a.Definition.Kind == entities.CheckJob) != (d.Job != nil):
		return unevaluated("a check of kind %s needs a job, and no other kind has one", entities.CheckJob)
	case (a.Definition.Kind == entities.CheckTask) != (d.Task != nil):
		return unevaluated("a check of kind %s needs a task, and no other kind has one", entities.CheckTask)
	}
	limit := maxInput
	if d.Task != nil {
		limit = maxTaskInput
	}
	_, document, err := c.sources.input(ctx, a, limit)
	if err != nil {
		return entities.CheckReading{}, err
	}
	once := c.once(a, d)
	once.Document = string(document)
	out, signal, err := c.sources.Commands.Run(ctx, once)
	switch {
	case err != nil:
		return entities.CheckReading{}, err
	case signal != "":
		return unevaluated("%s was ended by signal %s%s", d.Command.Argv[0], signal, lastLineSuffix(out.Stderr, out.Stdout))
	}
	return exitReading(d, out)
}

func (c command) once(a Request, d *entities.CheckRun) custom.StandaloneCommand {
	timeout := d.Command.Timeout
	switch {
	case timeout > 0:
	case d.Job != nil || d.Task != nil:
		timeout = defaultJobTimeout
	default:
		timeout = defaultCommandTimeout
	}
	return custom.StandaloneCommand{
		ErrorPrefix: string(a.Definition.Kind), Purpose: "check", Dir: a.Definition.Dir, Argv: d.Command.Argv, Env: d.Env, Job: d.Job, Task: d.Task,
		Timeout: timeout, Query: true,
		Instance: runtimes.Request{
			Owner: runtimes.Owner{
				Application: a.Definition.Application, Service: cmp.Or(a.Service, a.Definition.Service),
				ID: entities.InstanceID{Channel: cmp.Or(a.Channel, a.Definition.Channel)},
			},
			ServiceID: a.ServiceID, FullVersion: a.Evaluation.FullVersion,
		},
	}
}

func exitReading(d *entities.CheckRun, out runtimes.Output) (entities.CheckReading, error) {
	program := d.Command.Argv[0]
	verdict, ok := map[int]entities.Verdict{0: entities.Pass, 1: entities.Fail, 2: entities.Wait, 3: entities.Fail}[out.ExitCode]
	if !ok {
		return unevaluated("%s exited %d%s", program, out.ExitCode, lastLineSuffix(out.Stderr, out.Stdout))
	}
	reason := lastLine(out.Stdout)
	if reason == "" {
		reason = fmt.Sprintf("%s exited %d%s", program, out.ExitCode, lastLineSuffix(out.Stderr))
	}
	return entities.CheckReading{Verdict: verdict, Reason: reason}, nil
}

// lastLineSuffix returns the last line of the first output that has one, to append it to an error.
func lastLineSuffix(outputs ...string) string {
	for _, output := range outputs {
		if text := lastLine(output); text != "" {
			return ": " + text
		}
	}
	return ""
}

func lastLine(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return oneLine(lines[len(lines)-1], MaxReason/2)
}
