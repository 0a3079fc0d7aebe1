package compile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

const defaultPlanTimeout = time.Minute

func (c *compiler) defineCustom(doc *config.Document[config.Runtime], custom *config.RuntimeCustom, definition *entities.RuntimeDefinition) {
	d := doc.Decoder
	timing := c.timing(doc, "custom", paceOf(*custom))
	c.exitCodes(d, "custom.apply.retryableExitCodes", custom.Apply.RetryableExitCodes)
	apply := c.applyCommand(d, custom.Apply)
	timing.ApplyTimeout = apply.Timeout
	definition.Custom = &entities.CustomRuntime{
		Apply: *apply,
		Env:   c.plainEnv(d, "custom.env", custom.Env),
		Job:   c.commandJob(d, "custom.job", custom.Job),
		Task:  c.commandTask(d, "custom.task", custom.Task),
	}
	c.rejectTaskWithJob(d, "custom", custom.Job, custom.Task)
	for _, name := range strict.Keys(definition.Custom.Env) {
		if custom.Task != nil && definition.Custom.Env[name].IsSecret() {
			c.report(d, strict.Key("custom.env", name), secretInTask(name))
		}
	}
	if fetch := custom.Fetch; fetch != nil {
		definition.Custom.Fetch = c.runtimeCommand(d, "custom.fetch", fetch.Program, fetch.Timeout, defaultFetchTimeout)
		definition.Custom.Mode = c.fetchMode(d, *fetch)
		timing.FetchTimeout = definition.Custom.Fetch.Timeout
	}
	if remove := custom.Remove; remove != nil {
		definition.Custom.Remove = c.runtimeCommand(d, "custom.remove", remove.Program, remove.Timeout, defaultApplyTimeout)
	}
	if plan := custom.Plan; plan != nil {
		definition.Custom.Plan = c.runtimeCommand(d, "custom.plan", plan.Program, plan.Timeout, defaultPlanTimeout)
	}
	definition.Custom.Watch = c.watchCommand(d, *custom)
	definition.Timing = timing
	if custom.Job == nil && custom.Task == nil {
		r := definition.Custom
		c.warnOfPrograms(doc.File, "runtime "+definition.Name, &r.Apply, r.Fetch, r.Remove, r.Plan, r.Watch)
	}
}

// warnOfPrograms warns of programs with a relative path that are missing or not executable, in the directory of the file that names them.
func (c *compiler) warnOfPrograms(file, what string, commands ...*entities.Command) {
	dir := filepath.Join(c.config.Dir, filepath.FromSlash(path.Dir(file)))
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return // of a library
	}
	for _, command := range commands {
		if command == nil || len(command.Argv) == 0 || !strings.Contains(command.Argv[0], "/") || path.IsAbs(command.Argv[0]) {
			continue
		}
		program := command.Argv[0]
		switch info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(program))); {
		case errors.Is(err, fs.ErrNotExist):
			c.warnings[fmt.Sprintf("%s: %s: %s does not exist beside it; the workers run it there", file, what, program)] = true
		case err == nil && (info.IsDir() || info.Mode()&0o111 == 0):
			c.warnings[fmt.Sprintf("%s: %s: %s is not executable: chmod +x %s", file, what, program, path.Join(path.Dir(file), program))] = true
		}
	}
}

// applyCommand returns the command, or nil if a workflow replaces it (D28).
func (c *compiler) applyCommand(d *strict.Decoder, apply config.ApplyCommand) *entities.Command {
	const at = "custom.apply"
	if apply.Workflow == nil {
		command := c.runtimeCommand(d, at, apply.Program, apply.Timeout, defaultApplyTimeout)
		command.RetryableExitCodes = apply.RetryableExitCodes
		return command
	}
	for _, other := range []string{"command", "program", "retryableExitCodes"} {
		if field := strict.Field(at, other); d.Has(field) {
			c.report(d, field, strict.Fault{Code: "one-of", Message: "it belongs to a command, and this runtime applies by a workflow", Expected: `either "workflow" or a command`})
		}
	}
	w := entities.ApplyWorkflow(*apply.Workflow)
	for _, name := range []struct{ field, value string }{{"type", w.Type}, {"taskQueue", w.TaskQueue}} {
		field := strict.Field(at+".workflow", name.field)
		switch {
		case d.Faulty(field) || !d.Has(field):
		case config.HasSubstitution(name.value):
			c.noSubstitution(d, field, "a runtime", name.value)
		case name.value == "" || len(name.value) > maxWorkflowName:
			c.report(d, field, strict.Fault{Code: "bad-value", Message: "invalid name", Expected: fmt.Sprintf("1 to %d characters", maxWorkflowName)})
		}
	}
	if protocol.OwnTaskQueue(w.TaskQueue) {
		c.report(d, at+".workflow.taskQueue", strict.Fault{Code: "bad-value", Message: fmt.Sprintf("task queue %q is reserved for Converge", w.TaskQueue), Expected: "a task queue that your workers poll"})
	}
	return &entities.Command{Workflow: &w, Timeout: c.atLeast(d, at+".timeout", apply.Timeout, span{defaultApplyTimeout, time.Millisecond})}
}

// maxWorkflowName bounds the names of workflow types and task queues. A server may be configured to allow longer ones.
const maxWorkflowName = 255

// watchCommand compiles the watch command. It never ends, so it cannot run as a Job or a task.
func (c *compiler) watchCommand(d *strict.Decoder, custom config.RuntimeCustom) *entities.Command {
	if custom.Watch == nil {
		return nil
	}
	if custom.Job != nil || custom.Task != nil {
		c.report(d, "custom.watch", strict.Fault{Code: "one-of", Message: "a Job or a task ends, and a watch does not", Expected: `"watch" where commands run on the worker's machine, without "job" and "task"`})
	}
	return c.runtimeCommand(d, "custom.watch", custom.Watch.Program, "", 0)
}

// runtimeCommand checks a command of a runtime, under either of its two names.
func (c *compiler) runtimeCommand(d *strict.Decoder, at string, program config.Program, timeout config.Duration, otherwise time.Duration) *entities.Command {
	command := &entities.Command{Argv: program.Command}
	own, other := d.Has(at+".command"), d.Has(at+".program")
	switch {
	case own && other:
		c.report(d, at+".program", strict.Fault{Code: "one-of", Message: "the command is given twice", Expected: `either "command" or "program"`})
	case own:
		c.command(d, at+".command", command.Argv)
	case program.Program != nil:
		command.Argv = program.Program.Cmd
		c.command(d, at+".program.cmd", command.Argv)
	case !other && d.Has(at) && !d.Faulty(at):
		c.report(d, at+".command", strict.Fault{Code: "missing-field", Message: `"command" is missing`, Expected: "a program and its arguments"})
	}
	if otherwise > 0 {
		command.Timeout = c.atLeast(d, at+".timeout", timeout, span{otherwise, time.Millisecond})
	}
	return command
}

// fetchMode returns how fetch reports its result. Commands that are programs do not need exit codes.
func (c *compiler) fetchMode(d *strict.Decoder, fetch config.FetchCommand) entities.FetchMode {
	own, other := d.Has("custom.fetch.mode"), d.Has("custom.fetch.fetchMode")
	switch {
	case own && other:
		c.report(d, "custom.fetch.fetchMode", strict.Fault{Code: "one-of", Message: "the mode is given twice", Expected: `either "mode" or "fetchMode"`})
	case other:
		return entities.FetchStructured
	case !own && d.Has("custom.fetch.program"):
		return entities.FetchExitCode
	case !own && d.Has("custom.fetch") && !d.Faulty("custom.fetch"):
		c.report(d, "custom.fetch.mode", strict.Fault{Code: "missing-field", Message: `"mode" is missing`, Expected: "one of structured, exitCode"})
	}
	return entities.FetchMode(fetch.Mode)
}

func (c *compiler) command(d *strict.Decoder, path string, argv []string) {
	if len(argv) == 0 && d.Has(path) && !d.Faulty(path) {
		c.report(d, path, strict.Fault{Code: "missing-field", Message: "the command is empty", Expected: "a program and its arguments"})
	}
	for i, arg := range argv {
		at := strict.Index(path, i)
		if i == 0 && arg == "" && !d.Faulty(at) {
			c.report(d, at, strict.Fault{Code: "missing-field", Message: "the program is empty", Expected: "a program's name or path"})
		}
		c.noSubstitution(d, at, "a command", arg)
	}
}

func (c *compiler) exitCodes(d *strict.Decoder, path string, codes []int) {
	for i, code := range codes {
		if code < 1 || code > 255 {
			c.report(d, strict.Index(path, i), strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%d is not an exit code of a failure", code), Expected: "1 to 255"})
		}
	}
}

// plainEnv returns the environment of a runtime, which belongs to no service.
func (c *compiler) plainEnv(d *strict.Decoder, path string, env map[config.EnvName]config.EnvValue) map[string]entities.Value {
	if len(env) == 0 {
		return nil
	}
	plain := map[string]entities.Value{}
	for name, v := range env {
		plain[string(name)] = entities.Value(v)
	}
	for _, name := range strict.Keys(plain) {
		c.noSubstitution(d, strict.Key(path, name), "a runtime", plain[name].Literal)
		(&fieldCompiler{c: c, d: d}).uncaptured(strict.Key(path, name), plain[name])
	}
	return plain
}

// jobPoll is the default poll interval for a moving instance if fetch runs as a Job or a task. Such a reading takes seconds, and creates
// several objects in the cluster.
const jobPoll = "30s"

var (
	dnsLabelRE     = strict.Pattern(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	dnsSubdomainRE = strict.Pattern(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	imageRE        = regexp.MustCompile(`^[^\s]+$`)
)

// paceOf returns how often the runtime is polled.
func paceOf(r config.RuntimeCustom) config.Pace {
	pace := r.Pace
	if (r.Job != nil || r.Task != nil) && pace.PollInterval == "" {
		pace.PollInterval = jobPoll
	}
	return pace
}

// commandJob checks the settings of commands that run as Jobs.
func (c *compiler) commandJob(d *strict.Decoder, at string, job *config.CommandJob) *entities.CommandJob {
	if job == nil {
		return nil
	}
	where := "a runtime"
	if at != "custom.job" {
		where = "the settings of a Job"
	}
	for _, field := range []struct {
		name, value string
		fits        bool
		wanted      string
	}{
		{"kubeconfig", job.Kubeconfig, true, ""},
		{"context", job.Context, true, ""},
		{"namespace", job.Namespace, dnsLabelRE().MatchString(job.Namespace), "lower-case letters, digits and hyphens, at most 63"},
		{"image", job.Image, imageRE.MatchString(job.Image), "an image's name, such as registry.shop.dev/edge:3"},
		{"priorityClassName", job.PriorityClassName, dnsSubdomainRE().MatchString(job.PriorityClassName), "a PriorityClass's name"},
		{"serviceAccount", job.ServiceAccount, dnsSubdomainRE().MatchString(job.ServiceAccount), "a service account's name"},
		{"wrapper", job.Wrapper, path.IsAbs(job.Wrapper) && !strings.HasSuffix(job.Wrapper, "/"), "an absolute path in the image, such as /converge-wrapper"},
	} {
		location := strict.Field(at, field.name)
		if !d.Has(location) || d.Faulty(location) {
			continue
		}
		if config.HasSubstitution(field.value) {
			c.noSubstitution(d, location, where, field.value)
		} else if !field.fits {
			c.report(d, location, strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%q is not possible here", field.value), Expected: field.wanted})
		}
	}
	c.jobNodes(d, at, where, job)
	c.jobPods(d, at, where, job)
	return jobEntity(job)
}

// jobNodes checks the node requirements of a Job.
func (c *compiler) jobNodes(d *strict.Decoder, at, where string, job *config.CommandJob) {
	resources := cmp.Or(job.Resources, &config.JobResources{})
	for _, list := range []struct {
		name    string
		entries map[string]string
	}{{"resources.requests", resources.Requests}, {"resources.limits", resources.Limits}} {
		for _, key := range strict.Keys(list.entries) {
			if _, err := resource.ParseQuantity(list.entries[key]); err != nil {
				c.report(d, strict.Key(strict.Field(at, list.name), key), strict.Fault{
					Code: "bad-value", Message: fmt.Sprintf("invalid quantity %q", strict.Clip(list.entries[key])), Expected: "a quantity such as 500m or 256Mi",
				})
			}
		}
	}
	for _, key := range strict.Keys(job.NodeSelector) {
		c.noSubstitution(d, strict.Key(strict.Field(at, "nodeSelector"), key), where, job.NodeSelector[key])
	}
	for i, t := range job.Tolerations {
		at := strict.Index(strict.Field(at, "tolerations"), i)
		switch {
		case t.Operator == "Exists" && t.Value != "":
			c.report(d, at+".value", strict.Fault{Code: "one-of", Message: "Exists tolerates any value", Expected: "no value, or the operator Equal"})
		case t.Key == "" && t.Operator != "Exists" && !d.Faulty(at):
			c.report(d, at, strict.Fault{Code: "missing-field", Message: "it tolerates no taint", Expected: `"key", or the operator Exists for all taints`})
		}
	}
}

func jobEntity(job *config.CommandJob) *entities.CommandJob {
	resources := cmp.Or(job.Resources, &config.JobResources{})
	return &entities.CommandJob{
		Cluster:   entities.KubernetesRuntime{Kubeconfig: job.Kubeconfig, Context: job.Context},
		Namespace: job.Namespace, Image: job.Image, ServiceAccount: job.ServiceAccount, Wrapper: job.Wrapper,
		Requests: resources.Requests, Limits: resources.Limits, NodeSelector: job.NodeSelector,
		Tolerations: strict.Map(job.Tolerations, func(t config.JobToleration) entities.Toleration {
			return entities.Toleration{Key: t.Key, Operator: string(t.Operator), Value: t.Value, Effect: string(t.Effect)}
		}),
		Labels: job.Labels, Annotations: job.Annotations, PullSecrets: job.ImagePullSecrets, PriorityClass: job.PriorityClassName,
		PodSecurity: podSecurity(job.PodSecurityContext), Security: containerSecurity(job.SecurityContext),
	}
}
