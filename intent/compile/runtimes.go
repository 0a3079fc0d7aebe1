package compile

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Defaults of C10.
const (
	defaultPoll         = 5 * time.Second
	defaultSteadyPoll   = 5 * time.Minute
	defaultGrace        = 10 * time.Minute
	defaultApplyTimeout = 10 * time.Minute
	defaultFetchTimeout = 30 * time.Second
	defaultAttempts     = 5
	defaultBackoff      = 10 * time.Second
	defaultMaxBackoff   = 5 * time.Minute
	defaultProgress     = 10 * time.Minute
	defaultFailAfter    = time.Minute

	shortestPoll = 10 * time.Millisecond
)

// defineRuntimes checks the runtimes and returns their definitions by name.
func (c *compiler) defineRuntimes() []entities.RuntimeDefinition {
	var own []entities.RuntimeDefinition
	for _, doc := range firsts(c, "runtime", c.config.Runtimes, func(r config.Runtime) config.Name { return r.Name }) {
		c.misnamed = c.misnamed || doc.Faulty("name")
		definition := c.defineRuntime(doc)
		c.runtimes[definition.Name] = definition
		own = append(own, definition)
	}
	slices.SortFunc(own, func(a, b entities.RuntimeDefinition) int { return strings.Compare(a.Name, b.Name) })
	return own
}

func (c *compiler) defineRuntime(doc *config.Document[config.Runtime]) entities.RuntimeDefinition {
	spec := doc.Spec
	definition := entities.RuntimeDefinition{
		Name:   string(spec.Name),
		Dir:    path.Dir(doc.File),
		Remote: spec.Worker == "remote", ApproveApplies: spec.Approval == "everyApply", NoRollback: isFalse(spec.AutoRollback),
	}
	definition.Allow = allowOf(spec.Allow)
	c.maxApplies(doc, &definition)
	switch {
	case spec.Fake != nil && !c.config.Options.AllowFake:
		c.report(doc.Decoder, "fake", strict.Fault{Code: "unknown-field", Message: `runtimes of kind "fake" are for tests and simulations`, Expected: "custom, kubernetes or ecs"})
	case spec.Kinds() > 1:
		c.report(doc.Decoder, "", strict.Fault{Code: "one-of", Message: "a runtime is of one kind", Expected: "either custom, kubernetes or ecs"})
	case spec.Fake != nil:
		definition.Kind = entities.RuntimeFake
		definition.Timing = c.timing(doc, "fake", spec.Fake.Pace)
	case spec.Custom != nil:
		definition.Kind = entities.RuntimeCustom
		c.defineCustom(doc, spec.Custom, &definition)
	case spec.Kubernetes != nil:
		definition.Kind = entities.RuntimeKubernetes
		c.defineKubernetes(doc, spec.Kubernetes, &definition)
	case spec.ECS != nil:
		definition.Kind = entities.RuntimeECS
		c.defineECS(doc, spec.ECS, &definition)
	case !doc.Faulty("custom") && !doc.Faulty("kubernetes") && !doc.Faulty("ecs") && !doc.Faulty("fake") && !doc.Planned():
		c.report(doc.Decoder, "custom", strict.Fault{Code: "missing-field", Message: "the runtime does not say how it works", Expected: `"custom", "kubernetes" or "ecs"`})
	}
	return definition
}

// allowOf is who may use a runtime; nil: everybody.
func allowOf(allow *config.RuntimeAllow) *entities.RuntimeAllow {
	if allow == nil {
		return nil
	}
	text := func(p config.NamePattern) string { return string(p) }
	return &entities.RuntimeAllow{
		Applications: strict.Map(allow.Applications, text), Namespaces: strict.Map(allow.Namespaces, text), ServiceAccounts: strict.Map(allow.ServiceAccounts, text),
		Kinds: strict.Map(allow.Kinds, func(k config.AllowedKind) entities.AllowedKind {
			return entities.AllowedKind{Group: string(k.Group), Kind: string(k.Kind)}
		}),
	}
}

// maxApplies checks the bound on applies, which may stand in two fields but only in one at once.
func (c *compiler) maxApplies(doc *config.Document[config.Runtime], definition *entities.RuntimeDefinition) {
	const field = "maxConcurrentApplies"
	bounds := map[string]*int{field: doc.Spec.MaxConcurrentApplies}
	if doc.Spec.Custom != nil {
		bounds["custom."+field] = doc.Spec.Custom.MaxConcurrentApplies
	}
	for _, at := range strict.Keys(bounds) {
		switch n := bounds[at]; {
		case n == nil:
		case *n < 1:
			c.report(doc.Decoder, at, strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%d applies at once would be none", *n), Expected: "at least 1, or no such field for no bound"})
		case definition.MaxApplies > 0:
			c.report(doc.Decoder, at, strict.Fault{Code: "one-of", Message: `"maxConcurrentApplies" is given twice`, Expected: "one of them"})
		default:
			definition.MaxApplies = *n
		}
	}
}

// isFalse reports whether something that is on unless it is turned off was turned off.
func isFalse(given *bool) bool { return given != nil && !*given }

func (c *compiler) defineKubernetes(doc *config.Document[config.Runtime], k *config.RuntimeKubernetes, definition *entities.RuntimeDefinition) {
	definition.Timing = c.timing(doc, "kubernetes", k.Pace)
	definition.Timing.ApplyTimeout = c.atLeast(doc.Decoder, "kubernetes.applyTimeout", k.ApplyTimeout, span{defaultApplyTimeout, time.Second})
	definition.Kubernetes = &entities.KubernetesRuntime{
		Kubeconfig: k.Kubeconfig, Context: k.Context,
		FailAfter: c.atLeast(doc.Decoder, "kubernetes.failAfter", k.FailAfter, span{defaultFailAfter, time.Millisecond}),
	}
	c.noSubstitution(doc.Decoder, "kubernetes.context", "a runtime", k.Context)
	c.noSubstitution(doc.Decoder, "kubernetes.kubeconfig", "a runtime", k.Kubeconfig)
}

func (c *compiler) defineCustom(doc *config.Document[config.Runtime], custom *config.RuntimeCustom, definition *entities.RuntimeDefinition) {
	timing := c.timing(doc, "custom", paceOf(*custom))
	timing.ApplyTimeout = c.atLeast(doc.Decoder, "custom.apply.timeout", custom.Apply.Timeout, span{defaultApplyTimeout, time.Millisecond})
	c.command(doc.Decoder, "custom.apply.command", custom.Apply.Command)
	c.exitCodes(doc.Decoder, "custom.apply.retryableExitCodes", custom.Apply.RetryableExitCodes)
	definition.Custom = &entities.CustomRuntime{
		Apply: entities.Command{Argv: custom.Apply.Command, Timeout: timing.ApplyTimeout, RetryableExitCodes: custom.Apply.RetryableExitCodes},
		Env:   c.plainEnv(doc.Decoder, "custom.env", custom.Env),
		Job:   c.commandJob(doc.Decoder, "custom.job", custom.Job),
	}
	if fetch := custom.Fetch; fetch != nil {
		timing.FetchTimeout = c.atLeast(doc.Decoder, "custom.fetch.timeout", fetch.Timeout, span{defaultFetchTimeout, time.Millisecond})
		c.command(doc.Decoder, "custom.fetch.command", fetch.Command)
		definition.Custom.Fetch = &entities.Command{Argv: fetch.Command, Timeout: timing.FetchTimeout}
		definition.Custom.Mode = entities.FetchMode(fetch.Mode)
	}
	if remove := custom.Remove; remove != nil {
		c.command(doc.Decoder, "custom.remove.command", remove.Command)
		definition.Custom.Remove = &entities.Command{
			Argv: remove.Command, Timeout: c.atLeast(doc.Decoder, "custom.remove.timeout", remove.Timeout, span{defaultApplyTimeout, time.Millisecond}),
		}
	}
	definition.Timing = timing
}

// timing fills in the defaults.
func (c *compiler) timing(doc *config.Document[config.Runtime], at string, pace config.Pace) entities.RuntimeTiming {
	d := doc.Decoder
	retry := c.retrying(d, at+".retry", pace.Retry)
	timing := entities.RuntimeTiming{
		PollInterval:       c.atLeast(d, at+".pollInterval", pace.PollInterval, span{defaultPoll, shortestPoll}),
		SteadyPollInterval: c.atLeast(d, at+".steadyPollInterval", pace.SteadyPollInterval, span{defaultSteadyPoll, shortestPoll}),
		GracePeriod:        c.atLeast(d, at+".gracePeriod", pace.GracePeriod, span{defaultGrace, 0}),
		ApplyTimeout:       defaultApplyTimeout,
		FetchTimeout:       defaultFetchTimeout,
		MaxAttempts:        retry.attempts,
		RetryBackoff:       retry.backoff,
		RetryMax:           retry.longest,
	}
	if pace.SteadyPollInterval == "" {
		timing.SteadyPollInterval = max(timing.SteadyPollInterval, timing.PollInterval)
	}
	if timing.SteadyPollInterval < timing.PollInterval && timing.SteadyPollInterval >= shortestPoll {
		c.report(d, at+".steadyPollInterval", strict.Fault{
			Code: "bad-value", Message: "what is steady would be observed more often than what moves",
			Expected: fmt.Sprintf("at least pollInterval, %v", timing.PollInterval),
		})
	}
	return timing
}

// retries is how often and when something is tried again.
type retries struct {
	attempts         int
	backoff, longest time.Duration
}

// retrying fills in the defaults of retries; without a decoder it reports nothing.
func (c *compiler) retrying(d *strict.Decoder, at string, given *config.Retry) retries {
	retry := config.Retry{}
	if given != nil {
		retry = *given
	}
	r := retries{defaultAttempts, retry.Backoff.Or(defaultBackoff), retry.MaxBackoff.Or(defaultMaxBackoff)}
	if retry.MaxBackoff == "" {
		r.longest = max(r.longest, r.backoff)
	}
	if retry.MaxAttempts != nil {
		r.attempts = *retry.MaxAttempts
	}
	if d == nil {
		return r
	}
	c.atLeast(d, at+".backoff", retry.Backoff, span{defaultBackoff, time.Millisecond})
	c.atLeast(d, at+".maxBackoff", retry.MaxBackoff, span{defaultMaxBackoff, time.Millisecond})
	if r.attempts < 1 || r.attempts > 100 {
		c.report(d, at+".maxAttempts", strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%d attempts are not possible", r.attempts), Expected: "1 to 100"})
	}
	if r.longest < r.backoff {
		c.report(d, at+".maxBackoff", strict.Fault{Code: "bad-value", Message: "maxBackoff is shorter than backoff", Expected: fmt.Sprintf("at least %v", r.backoff)})
	}
	return r
}

// span is what a duration is when not given, and the shortest it may be.
type span struct{ otherwise, least time.Duration }

// atLeast is a duration or its default, and refuses one that is too short.
func (c *compiler) atLeast(d *strict.Decoder, path string, given config.Duration, within span) time.Duration {
	v := given.Or(within.otherwise)
	if v < within.least && given.Check() == nil {
		c.report(d, path, strict.Fault{Code: "bad-duration", Message: fmt.Sprintf("%q is too short", string(given)), Expected: fmt.Sprintf("at least %v", within.least)})
	}
	return v
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
			c.report(d, strict.Index(path, i), strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%d is no exit code of a failure", code), Expected: "1 to 255"})
		}
	}
}

// plainEnv is the environment of a runtime, which belongs to no service.
func (c *compiler) plainEnv(d *strict.Decoder, path string, env map[config.OwnEnvName]config.EnvValue) map[string]entities.Value {
	if len(env) == 0 {
		return nil
	}
	plain := map[string]entities.Value{}
	for name, v := range env {
		plain[string(name)] = entities.Value(v)
	}
	for _, name := range strict.Keys(plain) {
		c.noSubstitution(d, strict.Key(path, name), "a runtime", plain[name].Literal)
	}
	return plain
}

// jobPoll is the default time between readings while something moves, where a reading is a Job: it takes
// seconds, and a handful of objects in the cluster.
const jobPoll = "30s"

var (
	dnsLabelRE     = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	dnsSubdomainRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	imageRE        = regexp.MustCompile(`^[^\s]+$`)
)

// paceOf is how often the runtime is asked.
func paceOf(r config.RuntimeCustom) config.Pace {
	pace := r.Pace
	if r.Job != nil && pace.PollInterval == "" {
		pace.PollInterval = jobPoll
	}
	return pace
}

// commandJob checks where commands run as Jobs.
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
		{"namespace", job.Namespace, dnsLabelRE.MatchString(job.Namespace), "small letters, digits and dashes, at most 63"},
		{"image", job.Image, imageRE.MatchString(job.Image), "an image's name, such as registry.shop.dev/edge:3"},
		{"serviceAccount", job.ServiceAccount, dnsSubdomainRE.MatchString(job.ServiceAccount), "a service account's name"},
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
	return jobEntity(job)
}

func jobEntity(job *config.CommandJob) *entities.CommandJob {
	return &entities.CommandJob{
		Cluster:   entities.KubernetesRuntime{Kubeconfig: job.Kubeconfig, Context: job.Context},
		Namespace: job.Namespace, Image: job.Image, ServiceAccount: job.ServiceAccount, Wrapper: job.Wrapper,
	}
}
