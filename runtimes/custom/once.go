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

// Once is a command that belongs to no runtime: a check or an extension (A20, A21). It runs as the
// commands of a runtime do, with the same environment (C7), bounds and care for secrets.
type Once struct {
	// What its errors begin with: "check smoke of shop/web in prod".
	What string
	// Purpose is a word for what it is for: "check". A Job carries it as a label.
	Purpose string
	Dir     string // absolute; relative commands start here
	Argv    []string
	Env     map[string]entities.Value
	Job     *entities.CommandJob  // it runs as a Job
	Task    *entities.CommandTask // it runs as a task; neither: a process of this machine
	// Document is JSON for the command: in a file that PVN_CHECK_FILE names, and in PVN_CHECK itself where no file can be brought,
	// which is a task of ECS. About is what stands in the place of CHECK, such as PLAN.
	Document, About string
	// Hidden are secrets in the document.
	Hidden []string
	// Captures: what it prints are secrets. It gets its stdout once it has ended well, and says what is wrong with it, without it;
	// nobody else gets any of it.
	Captures func(stdout []byte) error
	// Timeout is for everything, of a Job the waiting for a node included.
	Timeout time.Duration
	// Instance says what it is about: without a name, all of a channel. A payload is not needed.
	Instance runtimes.Instance
	// One and Key are for Jobs, as in job.Request: one Job at a time for One, whose result may be taken
	// while Key is equal. Empty: each run has its own. Try is for tasks, as in ecs.TaskRequest.
	One, Key, Try string
	// Asks: the command is a question, asked again and again; what it leaves behind is ended.
	Asks bool
}

// RunOnce runs a command to its end, whatever its exit code and the signal that ended it (empty for
// none). An error says why there is no end: it could not start, or was ended because of its time or
// because ctx ended. With an error the output holds what was printed until then. No secret is in
// either.
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

// placed says why the command cannot run where it is to.
func (o Once) placed(on Worker) error {
	switch {
	case o.Job != nil && o.Task != nil:
		return errTwoPlaces
	case o.Job != nil && on.Clusters == nil:
		return errors.New("it is to run as a Job, and no clusters are known here")
	case (o.Captures != nil || len(o.Hidden) > 0) && (o.Job != nil || o.Task != nil):
		return errors.New("it handles what was captured, which only a process of the worker's machine may see")
	case o.Task != nil && on.Tasks == nil:
		return errors.New("it is to run as a task of ECS, and none can be run here")
	}
	return nil
}

// Redact takes secrets out of text: as they are, as they look inside JSON, and line by line.
func Redact(text string, secrets ...string) string { return newRedactor(secrets).text(text) }
