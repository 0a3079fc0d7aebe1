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

// StandaloneCommand is a command that belongs to no runtime: a check or an extension (A20, A21). It runs in the same way as the
// commands of a runtime, with the same environment (C7), limits and redaction of secrets.
type StandaloneCommand struct {
	// The beginning of its errors: "check smoke of shop/web in prod".
	ErrorPrefix string
	// Purpose is one word: "check". A Job carries it as a label.
	Purpose string
	Dir     string // absolute; relative commands start here
	Argv    []string
	Env     map[string]entities.Value
	Job     *entities.CommandJob  // run it as a Job
	Task    *entities.CommandTask // run it as a task; neither: a process of this machine
	// Document is JSON for the command: in a file that PVN_CHECK_FILE names, or in PVN_CHECK itself for a task of ECS, which gets no
	// files. DocumentName replaces CHECK in these names, such as PLAN.
	Document, DocumentName string
	// DocumentSecrets are secrets in the document.
	DocumentSecrets []string
	// HandleSecretOutput: the output contains secrets. After the command has succeeded, HandleSecretOutput gets its stdout. Its error
	// describes the problem of that stdout without quoting it. The output goes nowhere else.
	HandleSecretOutput func(stdout []byte) error
	// Timeout covers everything, for a Job including the wait for a node.
	Timeout time.Duration
	// Instance is the subject of the command: without a name, a whole channel. A payload is not necessary.
	Instance runtimes.Request
	// ExclusiveKey and Key are for Jobs, as One and Key of job.Request: one Job at a time for ExclusiveKey, whose result may be used
	// while Key is equal. Empty: each run has its own Job. AttemptID is for tasks, as in ecs.TaskRequest.
	ExclusiveKey, Key, AttemptID string
	// Query: the command is a query that runs repeatedly; processes that it leaves are ended.
	Query bool
}

// RunStandalone runs a command until it ends, with any exit code or signal (empty for none). An error says why there is no end: the
// command could not start, or was ended at its timeout or because ctx ended. With an error the output holds the text up to that
// moment. Neither contains a secret.
func RunStandalone(ctx context.Context, worker Worker, o StandaloneCommand) (out runtimes.Output, signal string, err error) {
	if err := o.check(worker); err != nil {
		return runtimes.Output{ExitCode: -1}, "", runtimes.Permanent(fmt.Errorf("%s: %w", o.ErrorPrefix, err))
	}
	env, secrets, err := resolve(ctx, o.Env, o.Instance, worker.Secrets)
	secretOutput := o.HandleSecretOutput != nil
	res := newResult(call{errorPrefix: o.ErrorPrefix, argv: o.Argv, timeout: o.Timeout, needsOutput: secretOutput, secretOutput: secretOutput}, secrets)
	res.redact = newRedactor(slices.Concat(slices.Sorted(maps.Values(secrets)), o.DocumentSecrets))
	res.killLeftovers = o.Query
	if err != nil {
		return res.out, "", res.errorf("%w", err)
	}
	def := entities.RuntimeDefinition{Name: o.Purpose, Dir: o.Dir, Custom: &entities.CustomRuntime{Job: o.Job, Task: o.Task}}
	w := command{
		env: env, secrets: secrets, exclusiveKey: o.ExclusiveKey, key: o.Key, attemptID: o.AttemptID,
		labels: labels{o.Purpose, o.Instance.Owner, o.Purpose},
	}
	documentName := cmp.Or(o.DocumentName, "CHECK")
	name, file := "PVN_"+documentName, strings.ToLower(documentName)+".json"
	switch {
	case o.Document == "":
	case o.Task != nil:
		w.env[name] = o.Document
	default:
		w.files, w.fileVariables = map[string]string{file: o.Document}, map[string]string{name + "_FILE": file}
	}
	worker.runner(def).run(ctx, &res, w)
	res.out.Location = res.location
	if secretOutput && res.err == nil && res.signal == "" && res.out.ExitCode == 0 {
		if err := o.HandleSecretOutput(res.stdout); err != nil {
			res.err = res.errorf("%w", err)
		}
	}
	return res.out, res.signal, res.err
}

func (o StandaloneCommand) check(worker Worker) error {
	switch {
	case len(o.Argv) == 0 || o.Argv[0] == "":
		return errors.New("has no command")
	case o.Dir != "" && !filepath.IsAbs(o.Dir):
		return fmt.Errorf("directory %s is relative; expected an absolute one", o.Dir)
	case o.Timeout <= 0:
		return errors.New("has no timeout")
	}
	return o.checkPlacement(worker)
}

// checkPlacement says why the command cannot run in its configured place.
func (o StandaloneCommand) checkPlacement(worker Worker) error {
	switch {
	case o.Job != nil && o.Task != nil:
		return errJobAndTask
	case o.Job != nil && worker.Clusters == nil:
		return errors.New("it runs as a Job, but this worker has no cluster connections")
	case (o.HandleSecretOutput != nil || len(o.DocumentSecrets) > 0) && (o.Job != nil || o.Task != nil):
		return errors.New("it handles captured values, so it must run as a process on the worker's machine")
	case o.Task != nil && worker.Tasks == nil:
		return errors.New("it runs as an ECS task, but this worker cannot run tasks")
	}
	return nil
}

// Redact removes secrets from text: in their own form, as in a JSON string, and line by line.
func Redact(text string, secrets ...string) string { return newRedactor(secrets).text(text) }
