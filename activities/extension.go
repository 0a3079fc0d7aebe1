package activities

import (
	"context"
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
	defer a.follows.moved(activity.GetInfo(ctx).WorkflowExecution.ID)
	return a.runExtension(ctx, r, extra{reports: true, reported: a.ofVersion(r.Application, r.Service, r.Channel, r.FullVersion)})
}

// extra is the additional input of a plan's command compared with an extension: a document with secrets, variables, and a function that
// receives the secrets that it prints.
type extra struct {
	document string
	hidden   []string
	env      map[string]string
	captures func(stdout []byte) error
	// reported has the values that others reported before. reports: this command reports values itself.
	reported *filler
	reports  bool
}

// runExtension runs an extension or a command of a plan.
func (a *Activities) runExtension(ctx context.Context, r protocol.ExtensionRequest, with extra) (protocol.ExtensionAnswer, error) {
	if r.ReportOnly {
		return protocol.ExtensionAnswer{Err: reportOnly}, nil
	}
	ctx, life := a.lifeline(ctx, entities.ExtensionRun(r.Release, r.Key))
	defer life.stop()
	one := strings.Join([]string{"extension", r.Application, r.Service, r.Key}, "/")
	done, err := a.alone(ctx, one)
	if err != nil {
		return protocol.ExtensionAnswer{}, err
	}
	defer done()
	definition, err := a.Store.Extension(ctx, r.Definition)
	if err != nil {
		return protocol.ExtensionAnswer{}, fmt.Errorf("extension %s of %s/%s: %w", r.Name, r.Application, r.Service, err)
	}
	if definition.Dir, err = a.dirIf(ctx, needsDirFor(definition.Job, definition.Task), r.Application, definition.Dir); err != nil {
		return protocol.ExtensionAnswer{}, fmt.Errorf("extension %s of %s/%s: %w", r.Name, r.Application, r.Service, err)
	}
	if err := life.heard(ctx); err != nil {
		return protocol.ExtensionAnswer{}, err
	}
	if err := with.reported.definition(ctx, &definition); err != nil {
		return protocol.ExtensionAnswer{Err: runtimes.Clip(err.Error(), tailSize)}, ctx.Err()
	}
	once := extensionRun(r, definition)
	once.Document, once.About, once.Hidden, once.Captures = with.document, "PLAN", with.hidden, with.captures
	for _, name := range entities.SortedKeys(with.env) {
		once.Env[name] = entities.Value{Literal: with.env[name]}
	}
	life.begins(r.Channel, "extension "+r.Name+" of "+r.FullVersion, once.Timeout)
	once.One, once.Key, once.Try = one, fmt.Sprintf("%s/%s/%d", r.Release, r.FullVersion, r.Attempt), try(ctx)
	if r.Begun > 0 {
		once.Key += fmt.Sprintf("/%d", r.Begun) // earlier output is not a result of this run
	}
	output, signal, err := custom.RunOnce(ctx, a.Commands, once)
	if ctx.Err() != nil {
		return protocol.ExtensionAnswer{}, ctx.Err()
	}
	answer := protocol.ExtensionAnswer{Err: ended(once.Argv[0], output, signal, err), Tail: lastOf(output)}
	if answer.Err == "" && with.reports && definition.Reports() {
		if answer.Err, err = with.reported.keep(ctx, &definition, r.Release, output.Stdout); err != nil {
			return protocol.ExtensionAnswer{}, err
		}
	}
	answer.Log = a.keepExtension(ctx, r, output, answer.Err)
	return answer, ctx.Err()
}

// extensionRun returns the command with all values filled in. Values of Converge take precedence over the definition.
func extensionRun(r protocol.ExtensionRequest, d entities.ExtensionDefinition) custom.Once {
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
	return custom.Once{
		What:    fmt.Sprintf("extension %s of %s/%s in %s", r.Name, r.Application, r.Service, r.Channel),
		Purpose: "extension", Dir: d.Dir, Argv: argv, Env: env, Job: d.Job, Task: d.Task, Timeout: timeout,
		Instance: runtimes.Instance{
			Owner:     runtimes.Owner{Application: r.Application, Service: r.Service, ID: entities.InstanceID{Channel: r.Channel}},
			ServiceID: r.ServiceID, FullVersion: r.FullVersion,
		},
	}
}

// versionRE matches the placeholders of a definition.
var versionRE = regexp.MustCompile(`\$\{\{\s*(version|fullVersion)\s*\}\}`)

// ended describes how a command failed; empty means success.
func ended(program string, o runtimes.Output, signal string, err error) string {
	how := ""
	switch {
	case err != nil:
		return runtimes.Clip(err.Error(), tailSize)
	case signal != "":
		how = fmt.Sprintf("%s was ended by signal %s", program, signal)
	case o.ExitCode != 0:
		how = fmt.Sprintf("%s exited %d", program, o.ExitCode)
	default:
		return ""
	}
	lines := strings.Split(lastOf(o), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		how += ": " + last
	}
	if o.Place != "" {
		how = runtimes.Clip(how, tailSize/2) + " (" + o.Place + ")"
	}
	return runtimes.Clip(how, tailSize)
}

// lastOf returns the end of the output, stderr last, in whole characters. Secrets are removed already.
func lastOf(o runtimes.Output) string {
	text := strings.TrimSpace(strings.TrimSpace(o.Stdout) + "\n" + strings.TrimSpace(o.Stderr))
	text = text[max(0, len(text)-tailSize):]
	for len(text) > 0 && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return text
}

// keepExtension stores the output for `converge logs` and returns its key. A failed write is ignored.
func (a *Activities) keepExtension(ctx context.Context, r protocol.ExtensionRequest, o runtimes.Output, failed string) string {
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
