package compile

import (
	"fmt"
	"path"
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
	defaultReadOnlyPoll = time.Minute // of steady instances on a cluster whose objects no watch shows
	defaultGrace        = 10 * time.Minute
	defaultApplyTimeout = 10 * time.Minute
	defaultFetchTimeout = 30 * time.Second
	defaultAttempts     = 5
	defaultBackoff      = 10 * time.Second
	defaultMaxBackoff   = 5 * time.Minute
	defaultProgress     = 10 * time.Minute
	defaultFailAfter    = time.Minute

	minPoll = 10 * time.Millisecond
)

// defineRuntimes checks the runtimes and returns their definitions by name.
func (c *compiler) defineRuntimes() []entities.RuntimeDefinition {
	var own []entities.RuntimeDefinition
	for _, doc := range uniqueByName(c, "runtime", c.config.Runtimes, func(r config.Runtime) config.Name { return r.Name }) {
		c.invalidRuntimeName = c.invalidRuntimeName || doc.Faulty("name")
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
		Labels: spec.Labels, Address: spec.Address,
		Remote: spec.Worker == "remote", ApproveApplies: spec.Approval == "everyApply", NoRollback: isFalse(spec.AutoRollback),
		ReadOnly: spec.Access == "read",
	}
	c.plainMap(doc.Decoder, "labels", "label", spec.Labels)
	c.noSubstitution(doc.Decoder, "address", "the address of a runtime", spec.Address)
	definition.Allow = allowOf(spec.Allow)
	c.maxApplies(doc, &definition)
	definition.Comparisons = c.defaultComparisons(doc.Decoder, spec.DefaultComparisons)
	switch {
	case spec.Fake != nil && !c.config.Options.AllowFake:
		c.report(doc.Decoder, "fake", strict.Fault{Code: "unknown-field", Message: `runtimes of kind "fake" are for tests and simulations`, Expected: "custom, kubernetes or ecs"})
	case spec.Kinds() > 1:
		c.report(doc.Decoder, "", strict.Fault{Code: "one-of", Message: "a runtime has one kind", Expected: "either custom, kubernetes or ecs"})
	case spec.Fake != nil:
		definition.Kind = entities.RuntimeFake
		definition.Timing = c.timing(doc, "fake", spec.Fake.Pace)
	case spec.Custom != nil:
		definition.Kind = entities.RuntimeCustom
		c.refuseReadOnlyCommands(doc)
		c.defineCustom(doc, spec.Custom, &definition)
	case spec.Kubernetes != nil:
		definition.Kind = entities.RuntimeKubernetes
		c.defineKubernetes(doc, spec.Kubernetes, &definition)
	case spec.ECS != nil:
		definition.Kind = entities.RuntimeECS
		c.defineECS(doc, spec.ECS, &definition)
	case !doc.Faulty("custom") && !doc.Faulty("kubernetes") && !doc.Faulty("ecs") && !doc.Faulty("fake"):
		c.report(doc.Decoder, "custom", strict.Fault{Code: "missing-field", Message: "the runtime has no kind", Expected: `"custom", "kubernetes" or "ecs"`})
	}
	return definition
}

// refuseReadOnlyCommands rejects a runtime of commands with access: read: what a command changes is not known.
func (c *compiler) refuseReadOnlyCommands(doc *config.Document[config.Runtime]) {
	if doc.Spec.Access == "read" {
		c.report(doc.Decoder, "access", strict.Fault{
			Code: "bad-value", Message: "what commands write cannot be prevented", Expected: `"enforcement: report" in its release channels, which runs only custom.fetch`,
		})
	}
}

// allowOf returns who may use a runtime; nil: everybody.
func allowOf(allow *config.RuntimeAllow) *entities.RuntimeAllow {
	if allow == nil {
		return nil
	}
	text := func(p config.NamePattern) string { return string(p) }
	name := func(p config.EnvPattern) string { return string(p) }
	return &entities.RuntimeAllow{
		Applications: strict.Map(allow.Applications, text), Namespaces: strict.Map(allow.Namespaces, text), ServiceAccounts: strict.Map(allow.ServiceAccounts, text),
		Env: strict.Map(allow.Env, name),
		Kinds: strict.Map(allow.Kinds, func(k config.AllowedKind) entities.AllowedKind {
			return entities.AllowedKind{Group: string(k.Group), Kind: string(k.Kind)}
		}),
	}
}

// maxApplies checks the limit of concurrent applies. Two fields can set it, but not both at once.
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
			c.report(doc.Decoder, at, strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%d concurrent applies are not enough", *n), Expected: "at least 1; omit the field for no limit"})
		case definition.MaxApplies > 0:
			c.report(doc.Decoder, at, strict.Fault{Code: "one-of", Message: `"maxConcurrentApplies" is given twice`, Expected: "one of them"})
		default:
			definition.MaxApplies = *n
		}
	}
}

// isFalse reports whether an option with default true is set to false.
func isFalse(given *bool) bool { return given != nil && !*given }

func (c *compiler) defineKubernetes(doc *config.Document[config.Runtime], k *config.RuntimeKubernetes, definition *entities.RuntimeDefinition) {
	definition.Timing = c.timing(doc, "kubernetes", k.Pace)
	definition.Timing.ApplyTimeout = c.atLeast(doc.Decoder, "kubernetes.applyTimeout", k.ApplyTimeout, span{defaultApplyTimeout, time.Second})
	definition.Kubernetes = &entities.KubernetesRuntime{
		Kubeconfig: k.Kubeconfig, Context: k.Context,
		KubeVersion: string(k.KubeVersion), APIVersions: strict.Map(k.APIVersions, func(v config.ClusterAPI) string { return string(v) }),
		Health:    c.healthRules(doc, k.Health),
		FailAfter: c.atLeast(doc.Decoder, "kubernetes.failAfter", k.FailAfter, span{defaultFailAfter, time.Millisecond}),
		Ignore:    c.ignoredDifferences(doc.Decoder, "kubernetes.ignoreDifferences", k.IgnoreDifferences),
	}
	c.noSubstitution(doc.Decoder, "kubernetes.context", "a runtime", k.Context)
	c.noSubstitution(doc.Decoder, "kubernetes.kubeconfig", "a runtime", k.Kubeconfig)
}

// timing sets the defaults.
func (c *compiler) timing(doc *config.Document[config.Runtime], at string, pace config.Pace) entities.RuntimeTiming {
	d := doc.Decoder
	retry := c.retrying(d, at+".retry", pace.Retry)
	steadyPoll := defaultSteadyPoll
	if doc.Spec.Access == "read" && doc.Spec.Kubernetes != nil {
		steadyPoll = defaultReadOnlyPoll
	}
	timing := entities.RuntimeTiming{
		PollInterval:       c.atLeast(d, at+".pollInterval", pace.PollInterval, span{defaultPoll, minPoll}),
		SteadyPollInterval: c.atLeast(d, at+".steadyPollInterval", pace.SteadyPollInterval, span{steadyPoll, minPoll}),
		GracePeriod:        c.atLeast(d, at+".gracePeriod", pace.GracePeriod, span{defaultGrace, 0}),
		ApplyTimeout:       defaultApplyTimeout,
		FetchTimeout:       defaultFetchTimeout,
		MaxAttempts:        retry.attempts,
		RetryBackoff:       retry.backoff,
		RetryMax:           retry.maxBackoff,
	}
	if pace.SteadyPollInterval == "" {
		timing.SteadyPollInterval = max(timing.SteadyPollInterval, timing.PollInterval)
	}
	if timing.SteadyPollInterval < timing.PollInterval && timing.SteadyPollInterval >= minPoll {
		c.report(d, at+".steadyPollInterval", strict.Fault{
			Code: "bad-value", Message: "steady instances would be observed more often than changing ones",
			Expected: fmt.Sprintf("at least pollInterval, %v", timing.PollInterval),
		})
	}
	return timing
}

// retryPolicy is the number and the schedule of retries.
type retryPolicy struct {
	attempts            int
	backoff, maxBackoff time.Duration
}

// retrying sets the defaults of retries. Without a decoder it reports no problems.
func (c *compiler) retrying(d *strict.Decoder, at string, given *config.Retry) retryPolicy {
	retry := config.Retry{}
	if given != nil {
		retry = *given
	}
	r := retryPolicy{defaultAttempts, retry.Backoff.Or(defaultBackoff), retry.MaxBackoff.Or(defaultMaxBackoff)}
	if retry.MaxBackoff == "" {
		r.maxBackoff = max(r.maxBackoff, r.backoff)
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
	if r.maxBackoff < r.backoff {
		c.report(d, at+".maxBackoff", strict.Fault{Code: "bad-value", Message: "maxBackoff is shorter than backoff", Expected: fmt.Sprintf("at least %v", r.backoff)})
	}
	return r
}

// span is the default and the minimum of a duration.
type span struct{ fallback, min time.Duration }

// atLeast returns a duration or its default, and rejects one below the minimum.
func (c *compiler) atLeast(d *strict.Decoder, path string, given config.Duration, within span) time.Duration {
	v := given.Or(within.fallback)
	if v < within.min && given.Check() == nil {
		c.report(d, path, strict.Fault{Code: "bad-duration", Message: fmt.Sprintf("%q is too short", string(given)), Expected: fmt.Sprintf("at least %v", within.min)})
	}
	return v
}
