package custom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// Once is a command that belongs to no runtime: a check or an extension (A20, A21). It runs in the same way as the commands of a
// runtime, with the same environment (C7), limits and redaction of secrets.
type Once struct {
	// The beginning of its errors: "check smoke of shop/web in prod".
	What string
	// Purpose is one word: "check". A Job carries it as a label.
	Purpose string
	Dir     string // absolute; relative commands start here
	Argv    []string
	Env     map[string]entities.Value
	Job     *entities.CommandJob  // run it as a Job
	Task    *entities.CommandTask // run it as a task; neither: a process of this machine
	// Document is JSON for the command: in a file that PVN_CHECK_FILE names, or in PVN_CHECK itself for a task of ECS, which gets no
	// files. About replaces CHECK in these names, such as PLAN.
	Document, About string
	// Hidden are secrets in the document.
	Hidden []string
	// Captures: the output contains secrets. After the command has succeeded, Captures gets its stdout. Its error describes the
	// problem of that stdout without quoting it. The output goes nowhere else.
	Captures func(stdout []byte) error
	// Timeout covers everything, for a Job including the wait for a node.
	Timeout time.Duration
	// Instance is the subject of the command: without a name, a whole channel. A payload is not necessary.
	Instance runtimes.Instance
	// One and Key are for Jobs, as in job.Request: one Job at a time for One, whose result may be used while Key is equal. Empty:
	// each run has its own Job. Try is for tasks, as in ecs.TaskRequest.
	One, Key, Try string
	// Asks: the command is a query that runs repeatedly; processes that it leaves are ended.
	Asks bool
}

// RunOnce runs a command until it ends, with any exit code or signal (empty for none). An error says why there is no end: the
// command could not start, or was ended at its timeout or because ctx ended. With an error the output holds the text up to that
// moment. Neither contains a secret.
func RunOnce(ctx context.Context, on Worker, o Once) (out runtimes.Output, signal string, err error) {
	if err := o.check(on); err != nil {
		return runtimes.Output{ExitCode: -1}, "", runtimes.Permanent(fmt.Errorf("%s: %w", o.What, err))
	}
	env, secrets, err := resolve(ctx, o.Env, o.Instance, on.Secrets)
	captures := o.Captures != nil
	res := newResult(call{doing: o.What, argv: o.Argv, timeout: o.Timeout, answers: captures, secret: captures}, secrets)
	res.redact = newRedactor(slices.Concat(slices.Sorted(maps.Values(secrets)), o.Hidden))
	res.sweep = o.Asks
	if err != nil {
		return res.out, "", res.fail("%w", err)
	}
	def := entities.RuntimeDefinition{Name: o.Purpose, Dir: o.Dir, Custom: &entities.CustomRuntime{Job: o.Job, Task: o.Task}}
	w := work{
		env: env, secrets: secrets, one: o.One, key: o.Key, try: o.Try,
		labels: labels{o.Purpose, o.Instance.Owner, o.Purpose},
	}
	about := cmp.Or(o.About, "CHECK")
	name, file := "PVN_"+about, strings.ToLower(about)+".json"
	switch {
	case o.Document == "":
	case o.Task != nil:
		w.env[name] = o.Document
	default:
		w.files, w.named = map[string]string{file: o.Document}, map[string]string{name + "_FILE": file}
	}
	on.runner(def).run(ctx, &res, w)
	res.out.Place = res.place
	if captures && res.err == nil && res.signal == "" && res.out.ExitCode == 0 {
		if err := o.Captures(res.stdout); err != nil {
			res.err = res.fail("%w", err)
		}
	}
	return res.out, res.signal, res.err
}

func (o Once) check(on Worker) error {
	switch {
	case len(o.Argv) == 0 || o.Argv[0] == "":
		return errors.New("has no command")
	case o.Dir != "" && !filepath.IsAbs(o.Dir):
		return fmt.Errorf("directory %s is relative; expected an absolute one", o.Dir)
	case o.Timeout <= 0:
		return errors.New("has no timeout")
	}
	if err := o.placed(on); err != nil {
		return err
	}
	return noSteering(o.Env)
}

// placed says why the command cannot run in its configured place.
func (o Once) placed(on Worker) error {
	switch {
	case o.Job != nil && o.Task != nil:
		return errTwoPlaces
	case o.Job != nil && on.Clusters == nil:
		return errors.New("it runs as a Job, but this worker has no cluster connections")
	case (o.Captures != nil || len(o.Hidden) > 0) && (o.Job != nil || o.Task != nil):
		return errors.New("it handles captured values, so it must run as a process on the worker's machine")
	case o.Task != nil && on.Tasks == nil:
		return errors.New("it runs as an ECS task, but this worker cannot run tasks")
	}
	return nil
}

// Redact removes secrets from text: in their own form, as in a JSON string, and line by line.
func Redact(text string, secrets ...string) string { return newRedactor(secrets).text(text) }
