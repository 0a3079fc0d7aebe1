package activities

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.temporal.io/sdk/activity"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/custom"
)

const (
	extensionTimeout = 10 * time.Minute // default timeout
	tailSize         = 500              // bytes of output in the workflow
)

// Extension runs an extension once (A21). A command that failed or could not start is an answer. An error means that the worker could not
// finish it or not read its definition; then it starts again. A process ends with its worker and runs again. A Job is adopted by its
// name, a task by its attempt.
func (a *Activities) Extension(ctx context.Context, r protocol.ExtensionRequest) (protocol.ExtensionAnswer, error) {
	defer a.planFollowers.notify(activity.GetInfo(ctx).WorkflowExecution.ID)
	return a.runExtension(ctx, r, commandOptions{reportsValues: true, reported: a.versionFiller(r.Application, r.Service, r.Channel, r.FullVersion)})
}

// commandOptions is the additional input of a plan's command compared with an extension: a document with secrets, variables, and a function
// that receives the secrets that it prints.
type commandOptions struct {
	document string
	redact   []string
	env      map[string]string
	capture  func(stdout []byte) error
	// reported has the values that others reported before. reportsValues: this command reports values itself.
	reported      *filler
	reportsValues bool
}

// runExtension runs an extension or a command of a plan.
func (a *Activities) runExtension(ctx context.Context, r protocol.ExtensionRequest, options commandOptions) (protocol.ExtensionAnswer, error) {
	if r.ReportOnly {
		return protocol.ExtensionAnswer{Err: reportOnly}, nil
	}
	ctx, life, err := a.beginWrite(ctx, write{
		key: entities.ExtensionRun(r.Release, r.Key), channel: r.Channel, what: "extension " + r.Name + " of " + r.FullVersion,
	})
	if err != nil {
		return protocol.ExtensionAnswer{}, err
	}
	defer life.stop()
	lock := strings.Join([]string{"extension", r.Application, r.Service, r.Key}, "/")
	release, err := a.lockKey(ctx, lock)
	if err != nil {
		return protocol.ExtensionAnswer{}, err
	}
	defer release()
	definition, err := a.Store.Extension(ctx, r.Definition)
	if err != nil {
		return protocol.ExtensionAnswer{}, fmt.Errorf("extension %s of %s/%s: %w", r.Name, r.Application, r.Service, err)
	}
	if definition.Dir, err = a.dirIfNeeded(ctx, needsDirFor(definition.Job, definition.Task), r.Application, definition.Dir); err != nil {
		return protocol.ExtensionAnswer{}, fmt.Errorf("extension %s of %s/%s: %w", r.Name, r.Application, r.Service, err)
	}
	if err := life.awaitHeartbeat(ctx); err != nil {
		return protocol.ExtensionAnswer{}, err
	}
	if err := options.reported.definition(ctx, &definition); err != nil {
		return protocol.ExtensionAnswer{Err: runtimes.ClipMessage(err.Error(), tailSize)}, ctx.Err()
	}
	once := extensionRun(r, definition)
	once.Document, once.DocumentName, once.DocumentSecrets, once.HandleSecretOutput = options.document, "PLAN", options.redact, options.capture
	for _, name := range entities.SortedKeys(options.env) {
		once.Env[name] = entities.Value{Literal: options.env[name]}
	}
	life.setStep(r.Channel, "extension "+r.Name+" of "+r.FullVersion, once.Timeout)
	once.ExclusiveKey, once.Key, once.AttemptID = lock, fmt.Sprintf("%s/%s/%d", r.Release, r.FullVersion, r.Attempt), attemptID(ctx)
	if r.Restarts > 0 {
		once.Key += fmt.Sprintf("/%d", r.Restarts) // earlier output is not a result of this run
	}
	output, signal, err := custom.RunStandalone(ctx, a.Commands, once)
	if interrupted := interruption(ctx, err); interrupted != nil {
		return protocol.ExtensionAnswer{}, interrupted
	}
	answer := protocol.ExtensionAnswer{Err: failureText(once.Argv[0], output, signal, err), Tail: outputTail(output)}
	if answer.Err == "" && options.reportsValues && definition.Reports() {
		if answer.Err, err = options.reported.storeReport(ctx, &definition, r.Release, output.Stdout); err != nil {
			return protocol.ExtensionAnswer{}, err
		}
	}
	answer.Log = a.storeExtensionLog(ctx, r, output, answer.Err)
	return answer, ctx.Err()
}

// interruption returns why a command was ended before it had a result: its activity ends, or its watchdog ended it.
func interruption(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, runtimes.ErrDisconnected) {
		return err
	}
	return ctx.Err()
}

// extensionRun returns the command with all values filled in. Values of Converge take precedence over the definition.
func extensionRun(r protocol.ExtensionRequest, d entities.ExtensionDefinition) custom.StandaloneCommand {
	fill := func(text string) string {
		return versionRE.ReplaceAllStringFunc(text, func(match string) string {
			if strings.Contains(match, "fullVersion") {
				return r.FullVersion
			}
			return r.Version
		})
	}
	env := map[string]entities.Value{}
	for name, value := range maps.All(d.Env) {
		value.Literal = fill(value.Literal)
		env[name] = value
	}
	env["CONVERGE_RELEASE"] = entities.Value{Literal: r.Release}
	env["CONVERGE_EXTENSION_KEY"] = entities.Value{Literal: r.Key}
	env["CONVERGE_ATTEMPT"] = entities.Value{Literal: strconv.Itoa(r.Attempt)}
	if r.BackTo != "" {
		env["CONVERGE_ROLLED_BACK_TO"] = entities.Value{Literal: r.BackTo}
	}
	argv := []string{""} // an empty command is rejected where it runs
	for n, arg := range d.Command.Argv {
		argv = append(argv[:n], fill(arg))
	}
	timeout := r.Timeout
	if own := d.Command.Timeout; own > 0 && (timeout <= 0 || own < timeout) {
		timeout = own
	}
	if timeout <= 0 {
		timeout = extensionTimeout
	}
	return custom.StandaloneCommand{
		ErrorPrefix: fmt.Sprintf("extension %s of %s/%s in %s", r.Name, r.Application, r.Service, r.Channel),
		Purpose:     "extension", Dir: d.Dir, Argv: argv, Env: env, Job: d.Job, Task: d.Task, Timeout: timeout,
		Instance: runtimes.Request{
			Owner:     runtimes.Owner{Application: r.Application, Service: r.Service, ID: entities.InstanceID{Channel: r.Channel}},
			ServiceID: r.ServiceID, FullVersion: r.FullVersion,
		},
	}
}

// versionRE matches the placeholders of a definition.
var versionRE = regexp.MustCompile(`\$\{\{\s*(version|fullVersion)\s*\}\}`)

// failureText describes how a command failed; empty means success.
func failureText(program string, o runtimes.Output, signal string, err error) string {
	text := ""
	switch {
	case err != nil:
		return runtimes.ClipMessage(err.Error(), tailSize)
	case signal != "":
		text = fmt.Sprintf("%s was ended by signal %s", program, signal)
	case o.ExitCode != 0:
		text = fmt.Sprintf("%s exited %d", program, o.ExitCode)
	default:
		return ""
	}
	lines := strings.Split(outputTail(o), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		text += ": " + last
	}
	if o.Location != "" {
		text = runtimes.ClipMessage(text, tailSize/2) + " (" + o.Location + ")"
	}
	return runtimes.ClipMessage(text, tailSize)
}

// outputTail returns the end of the output, stderr last, in whole characters. Secrets are removed already.
func outputTail(o runtimes.Output) string {
	text := strings.TrimSpace(strings.TrimSpace(o.Stdout) + "\n" + strings.TrimSpace(o.Stderr))
	text = text[max(0, len(text)-tailSize):]
	for len(text) > 0 && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return text
}

// storeExtensionLog stores the output for `converge logs` and returns its key. A failed write is ignored.
func (a *Activities) storeExtensionLog(ctx context.Context, r protocol.ExtensionRequest, o runtimes.Output, failed string) string {
	if o.Started.IsZero() {
		o.Started = time.Now()
	}
	key, err := a.Store.PutLogKey(ctx, r.Application, r.Service, r.Channel, store.LogEntry{
		Kind: store.LogExtension, Name: r.Name, At: o.Started, FullVersion: r.FullVersion, Attempt: r.Attempt,
		Command: o.Command, ExitCode: o.ExitCode, TimedOut: o.TimedOut, Stdout: o.Stdout, Stderr: o.Log(), Duration: o.Duration, Error: failed,
	})
	if err != nil {
		activity.GetLogger(ctx).Warn("output not stored", "extension", r.Name, "error", err)
		return ""
	}
	return key
}
