// Package custom is the runtime of a team's own commands: apply changes an instance, and fetch reports its state, by exit code or by
// a JSON document (C1–C10). It runs each command in its own process group, limits its time and its output, and hides all secrets.
//
// It makes no decisions and keeps no state: the answer of a fetch is all that it knows. It may import entities and runtimes.
package custom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/secret"
)

// Limits of a command's output, in bytes (C6).
const (
	MaxDocument = 256 << 10 // a fetch document; more is an error
	MaxTail     = 16 << 10  // of stdout and of stderr each, kept for people; the beginning of a longer one is dropped
)

const (
	defaultApplyTimeout = 10 * time.Minute
	defaultFetchTimeout = 30 * time.Second
	defaultPlanTimeout  = time.Minute
	defaultGrace        = 5 * time.Second // between SIGTERM and SIGKILL
	defaultDrain        = 2 * time.Second // for processes that still hold a finished command's pipes
)

// Runtime runs the commands of one definition. It is safe for concurrent use.
type Runtime struct {
	def       entities.RuntimeDefinition
	runner    runner
	secrets   secret.Source
	workflows Workflows
	observed  observedOwners // the instances for which a watch may report changes
	// watchIdleTimeout is how long a watch continues without observations.
	watchIdleTimeout time.Duration
}

// Worker has the services of a worker that commands can use.
type Worker struct {
	Clusters Clusters      // for commands that run as Jobs; nil: not supported
	Tasks    Tasks         // for commands that run as tasks of ECS; nil: not supported
	Secrets  secret.Source // nil: no secrets
	// Workflows runs the workflows of users for an apply; nil: not supported.
	Workflows Workflows
}

var (
	_ runtimes.Runtime = (*Runtime)(nil)
	_ runtimes.Logger  = (*Runtime)(nil)
	_ runtimes.Remover = (*Runtime)(nil)
	_ runtimes.Planner = (*Runtime)(nil)
	_ runtimes.Watcher = (*Runtime)(nil)
)

// New checks the definition. It starts no process and does not check that the commands exist, since only another worker may have
// them. Its commands run on this machine.
func New(def entities.RuntimeDefinition) (*Runtime, error) { return NewWithWorker(def, Worker{}) }

// NewWithWorker is New for a definition whose commands may use secrets of the worker, and run as Jobs or as tasks.
func NewWithWorker(def entities.RuntimeDefinition, worker Worker) (*Runtime, error) {
	if err := check(def); err != nil {
		return nil, fmt.Errorf("runtime %s: %w", def.Name, err)
	}
	r := &Runtime{def: def, secrets: worker.Secrets, workflows: worker.Workflows, watchIdleTimeout: max(minWatchIdleTimeout, 2*def.Timing.SteadyPollInterval)}
	switch {
	case def.Custom.Job != nil && worker.Clusters == nil:
		return nil, fmt.Errorf("runtime %s: its commands run as Jobs, but this worker has no cluster connections", def.Name)
	case def.Custom.Apply.Workflow != nil && worker.Workflows == nil:
		return nil, fmt.Errorf("runtime %s: apply is a workflow, but this worker cannot start workflows", def.Name)
	case def.Custom.Task != nil && worker.Tasks == nil:
		return nil, fmt.Errorf("runtime %s: its commands run as ECS tasks, but this worker cannot run tasks", def.Name)
	}
	r.runner = worker.runner(def)
	return r, nil
}

// runner is the runner for the commands of a definition.
func (worker Worker) runner(def entities.RuntimeDefinition) runner {
	switch c := def.Custom; {
	case c.Job != nil:
		return &jobRunner{def: def, clusters: worker.Clusters}
	case c.Task != nil:
		return &taskRunner{task: *c.Task, backend: worker.Tasks}
	}
	return &localRunner{dir: def.Dir, grace: defaultGrace, drain: defaultDrain}
}

var errJobAndTask = errors.New("both a job and a task are declared; expected one of them")

func check(def entities.RuntimeDefinition) error {
	c := def.Custom
	switch {
	case def.Kind != entities.RuntimeCustom:
		return fmt.Errorf("kind is %q; expected %q", def.Kind, entities.RuntimeCustom)
	case c == nil:
		return errors.New("has no commands")
	case def.Dir != "" && !filepath.IsAbs(def.Dir):
		return fmt.Errorf("directory %s is relative; expected an absolute one", def.Dir)
	case c.Apply.Workflow == nil && isEmpty(&c.Apply):
		return errors.New("apply has no command")
	case c.Apply.Workflow != nil && (c.Apply.Workflow.Type == "" || c.Apply.Workflow.TaskQueue == ""):
		return errors.New("apply has a workflow without a type or a task queue")
	case isEmpty(c.Remove):
		return errors.New("remove has no command")
	case isEmpty(c.Plan):
		return errors.New("plan has no command")
	case isEmpty(c.Watch):
		return errors.New("watch has no command")
	}
	return errors.Join(checkPlacement(c), checkFetch(c))
}

// checkPlacement checks where the commands run.
func checkPlacement(c *entities.CustomRuntime) error {
	switch {
	case c.Job != nil && c.Task != nil:
		return errJobAndTask
	case c.Watch != nil && (c.Job != nil || c.Task != nil):
		return errors.New("watch cannot run as a Job or a task, because those end")
	case c.Job != nil && (c.Job.Namespace == "" || c.Job.Image == ""):
		return errors.New("its job has no namespace or no image")
	case c.Task != nil && (c.Task.Cluster.Cluster == "" || c.Task.TaskDefinition == ""):
		return errors.New("its task has no cluster or no task definition")
	}
	return nil
}

// isEmpty reports whether a command is declared without a program.
func isEmpty(c *entities.Command) bool { return c != nil && (len(c.Argv) == 0 || c.Argv[0] == "") }

func checkFetch(c *entities.CustomRuntime) error {
	switch {
	case c.Fetch == nil && c.Mode != entities.FetchNone:
		return fmt.Errorf("mode is %s, but there is no fetch command", c.Mode)
	case c.Fetch == nil:
		return nil
	case isEmpty(c.Fetch):
		return errors.New("fetch has no command")
	case c.Mode != entities.FetchExitCode && c.Mode != entities.FetchStructured:
		return fmt.Errorf("fetch has mode %q; expected %s or %s", c.Mode, entities.FetchExitCode, entities.FetchStructured)
	}
	return nil
}

// Apply implements runtimes.Runtime by the apply command (C1, C7). A non-zero exit code that is not retryable is permanent (C10); so
// is a payload with which no command can start.
func (r *Runtime) Apply(ctx context.Context, in runtimes.Request) (runtimes.Output, error) {
	cmd := r.def.Custom.Apply
	call := call{
		purpose: "apply",
		timeout: cmp.Or(cmd.Timeout, r.def.Timing.ApplyTimeout, defaultApplyTimeout),
		argv:    cmd.Argv,
	}
	if cmd.Workflow != nil {
		return r.applyByWorkflow(ctx, call, in)
	}
	res := r.run(ctx, call, in)
	if res.err != nil || res.out.ExitCode == 0 {
		return res.out, res.err
	}
	return res.out, res.retryableExitError(cmd)
}

// Observe implements runtimes.Runtime by the fetch command.
func (r *Runtime) Observe(ctx context.Context, in runtimes.Request) ([]entities.Object, error) {
	objects, _, err := r.ObserveOutput(ctx, in)
	return objects, err
}

// ObserveOutput implements runtimes.Logger.
func (r *Runtime) ObserveOutput(ctx context.Context, in runtimes.Request) ([]entities.Object, runtimes.Output, error) {
	if r.def.Custom.Watch != nil {
		r.observed.add(in.Owner)
	}
	switch r.def.Custom.Mode {
	case entities.FetchStructured:
		return r.structured(ctx, in)
	case entities.FetchExitCode:
		return r.exitCode(ctx, in)
	}
	return nil, runtimes.Output{}, &entities.ReadingError{
		Code:    runtimes.CodeFetchFailed,
		Message: fmt.Sprintf("runtime %s has no fetch command: it cannot be observed", r.def.Name),
	}
}

func (r *Runtime) fetch(ctx context.Context, in runtimes.Request) result {
	cmd := r.def.Custom.Fetch
	return r.run(ctx, call{
		purpose:     "fetch",
		timeout:     cmp.Or(cmd.Timeout, r.def.Timing.FetchTimeout, defaultFetchTimeout),
		argv:        cmd.Argv,
		needsOutput: true,
	}, in)
}

// structured reads the document (C3, C4). It also fetches an instance without any apply: a version may already run there.
func (r *Runtime) structured(ctx context.Context, in runtimes.Request) ([]entities.Object, runtimes.Output, error) {
	res := r.fetch(ctx, in)
	if res.err != nil {
		return nil, res.out, res.err
	}
	if res.out.ExitCode != 0 {
		return nil, res.out, readingError(runtimes.CodeFetchFailed, res.exitError())
	}
	objects, err := document{show: res.redact.text}.parse(res.stdout)
	if err != nil {
		return nil, res.out, res.malformed(err)
	}
	return res.redact.objects(objects, in.FullVersion), res.out, nil
}

// malformed is the error of an answer that is no document.
func (res *result) malformed(err error) error {
	if res.merged {
		err = fmt.Errorf("%w (stderr is in it too: the job has no converge-wrapper)", err)
	}
	return readingError(runtimes.CodeMalformed, res.errorf("%s: %w", res.argv[0], err))
}

// exitCode converts 0 and 2 to an object, since this mode has no document (C2). The command reports whether the observed full
// version runs; without a version there is nothing to fetch.
func (r *Runtime) exitCode(ctx context.Context, in runtimes.Request) ([]entities.Object, runtimes.Output, error) {
	if in.FullVersion == "" {
		return nil, runtimes.Output{}, ctx.Err()
	}
	res := r.fetch(ctx, in)
	if res.err != nil {
		return nil, res.out, res.err
	}
	o := entities.Object{Name: in.Service, Type: "custom"}
	switch {
	case res.out.ExitCode == 0:
		o.Status = entities.ObjectSucceeded
		o.Versions = []entities.ObjectVersion{{Version: in.FullVersion, Active: true}}
	case res.out.ExitCode == 2:
		o.Status = entities.ObjectPending
		o.Message = "fetch reports work to do for " + in.FullVersion
	default:
		return nil, res.out, readingError(runtimes.CodeFetchFailed, res.exitError())
	}
	return []entities.Object{o}, res.out, nil
}

func readingError(code string, err error) *entities.ReadingError {
	return &entities.ReadingError{Code: code, Message: err.Error()}
}

// Remove implements runtimes.Remover by the remove command (A24). It gets the environment and the files of an apply of the current
// version, and must succeed if nothing is left to do. Its exit codes have the same meaning as those of apply. A runtime without the
// command cannot remove an instance.
func (r *Runtime) Remove(ctx context.Context, in runtimes.Request) error {
	cmd := r.def.Custom.Remove
	if cmd == nil {
		return runtimes.Permanent(fmt.Errorf("runtime %s has no remove command", r.def.Name))
	}
	if in.Payload == nil {
		return ctx.Err()
	}
	res := r.run(ctx, call{
		purpose: "remove",
		timeout: cmp.Or(cmd.Timeout, r.def.Timing.ApplyTimeout, defaultApplyTimeout),
		argv:    cmd.Argv,
	}, in)
	if res.err != nil || res.out.ExitCode == 0 {
		return res.err
	}
	return res.retryableExitError(*cmd)
}
