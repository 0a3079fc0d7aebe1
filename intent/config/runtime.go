package config

import (
	"regexp"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// Runtime is a connection to where services run. It is published on its own and owned by the
// application that first defines it; changing it releases nothing.
type Runtime struct {
	Header
	// What the runtime is, for people.
	Description string `json:"description,omitempty"`
	// The address under which what runs there is reached, which the commands of plans get: 192.0.2.7, media.example.org.
	Address string `json:"address,omitempty"`
	// Labels that the selectors of fleets match, and that payloads may use as ${{ runtime.labels.KEY }}.
	Labels map[string]string `json:"labels,omitempty"`
	// A runtime made of commands.
	Custom *RuntimeCustom `json:"custom,omitempty"`
	// A Kubernetes cluster.
	Kubernetes *RuntimeKubernetes `json:"kubernetes,omitempty"`
	// A cluster of Amazon ECS.
	ECS *RuntimeECS `json:"ecs,omitempty"`
	// A runtime in memory, for tests and simulations.
	Fake *RuntimeFake `json:"fake,omitempty" jsonschema:"-"`
	// Where its commands run: in any worker (local), or only in a worker started for this runtime
	// (remote), which needs a store that it can reach.
	Worker WorkerLocation `json:"worker,omitempty" jsonschema:"default=local"`
	// How many applies may run on it at once, over all services of all applications; no bound when not
	// given.
	MaxConcurrentApplies *int `json:"maxConcurrentApplies,omitempty" jsonschema:"minimum=1"`
	// Whether a person approves every apply, those of repairs and further attempts included.
	Approval ApprovalRule `json:"approval,omitempty" jsonschema:"default=none"`
	// Whether releases that fail on it are rolled back by themselves; false holds for every service.
	AutoRollback *bool `json:"autoRollback,omitempty" jsonschema:"default=true"`
	// Compares whatever is released on it with what was there before; without it nothing is.
	DefaultComparisons *DefaultComparisons `json:"defaultComparisons,omitempty"`
	// Who may use it, and for what. Without it, everybody may for everything.
	Allow *RuntimeAllow `json:"allow,omitempty"`
}

// DefaultComparisons are comparisons of whatever is released on a runtime, with what was there so long before.
type DefaultComparisons struct {
	// Where samples come from.
	Prometheus MetricsServer `json:"prometheus"`
	// Labels by which the requests of a service are found, as in PromQL: namespace="shop", service="${{ service }}". With it
	// errors and latency are compared.
	Requests string `json:"requests,omitempty"`
	// Labels by which its pods are found in kube-state-metrics: namespace="shop", pod=~"${{ service }}-.*". With it restarts
	// of containers are compared.
	Pods string `json:"pods,omitempty"`
	// The counter of requests; http_requests_total when not given.
	Counter MetricName `json:"counter,omitempty" jsonschema:"default=http_requests_total"`
	// Labels of those requests that failed; code=~"5.." when not given.
	Failed string `json:"failed,omitempty"`
	// The histogram of how long they took, without _bucket; http_request_duration_seconds when not given.
	Histogram MetricName `json:"histogram,omitempty" jsonschema:"default=http_request_duration_seconds"`
	// How long samples are taken.
	For Duration `json:"for,omitempty" jsonschema:"default=30m"`
	// The time between samples, at least twice that between two scrapes.
	Step Duration `json:"step,omitempty" jsonschema:"default=1m"`
	// How long before it is compared with.
	Offset Duration `json:"offset,omitempty" jsonschema:"default=168h"`
	// The least change that counts, relative to what was before: 0.5, which is 50 %, when not given.
	Tolerance *Number `json:"tolerance,omitempty"`
}

// MetricsServer is a Prometheus, or whatever speaks its HTTP API.
type MetricsServer struct {
	// The address of the server: http://prometheus:9090
	URL string `json:"url"`
	// A token to send along.
	Token *EnvValue `json:"token,omitempty"`
}

// MetricName is the name of a metric of Prometheus.
type MetricName string

const metricNamePattern = `^[A-Za-z_:][A-Za-z0-9_:]*$`

var metricNameRE = regexp.MustCompile(metricNamePattern)

// Pattern is for the JSON schema.
func (MetricName) Pattern() string { return metricNamePattern }

// Check refuses what is no name of a metric.
func (n MetricName) Check() *Fault {
	return strict.Unless(metricNameRE.MatchString(string(n)), "bad-name", "%q is no name of a metric", string(n), "letters, digits, underscores and colons")
}

// RuntimeAllow says who may use a runtime. A list that is not given allows all; in names * stands for anything.
type RuntimeAllow struct {
	// The applications, beside the one that defines it.
	Applications []NamePattern `json:"applications,omitempty"`
	// The namespaces of instances and of their objects. Objects of the whole cluster are then allowed only where their kind
	// is listed by its full name.
	Namespaces []NamePattern `json:"namespaces,omitempty"`
	// The kinds of objects.
	Kinds []AllowedKind `json:"kinds,omitempty"`
	// The service accounts as which release channels may have it used. They must name one of them.
	ServiceAccounts []NamePattern `json:"serviceAccounts,omitempty"`
}

// AllowedKind is a kind of Kubernetes object.
type AllowedKind struct {
	// The API group; without it, that of the core (ConfigMap, Service).
	Group NamePattern `json:"group,omitempty"`
	// The kind.
	Kind NamePattern `json:"kind"`
}

// NamePattern is a name in which * stands for any part of one.
type NamePattern string

const namePatternPattern = `^[A-Za-z0-9*]([A-Za-z0-9*./-]*[A-Za-z0-9*])?$`

var namePatternRE = regexp.MustCompile(namePatternPattern)

// Pattern is for the JSON schema.
func (NamePattern) Pattern() string { return namePatternPattern }

// Check refuses what no name could be like.
func (p NamePattern) Check() *Fault {
	return strict.Unless(namePatternRE.MatchString(string(p)), "bad-name", "%q is no name, nor a pattern of names", string(p), "letters, digits, hyphens and dots, with * for any part of it")
}

// RuntimeFake is a runtime in memory, for tests and simulations.
type RuntimeFake struct {
	Pace
}

// Pace is how often a runtime is asked, and how it is retried.
type Pace struct {
	// The time between readings while something moves.
	PollInterval Duration `json:"pollInterval,omitempty" jsonschema:"default=5s"`
	// The time between readings of what is steady.
	SteadyPollInterval Duration `json:"steadyPollInterval,omitempty" jsonschema:"default=5m"`
	// How long after a successful apply its effect may stay invisible before it is applied again.
	GracePeriod Duration `json:"gracePeriod,omitempty" jsonschema:"default=10m"`
	// How a failed apply is tried again.
	Retry *Retry `json:"retry,omitempty"`
}

// Retry is how a failed apply is tried again.
type Retry struct {
	// How often one target is applied before it has failed for good.
	MaxAttempts *int `json:"maxAttempts,omitempty" jsonschema:"default=5,minimum=1,maximum=100"`
	// The time before the second attempt; it doubles with each further one.
	Backoff Duration `json:"backoff,omitempty" jsonschema:"default=10s"`
	// The longest time between attempts.
	MaxBackoff Duration `json:"maxBackoff,omitempty" jsonschema:"default=5m"`
}

// ApprovalRule is none or everyApply.
type ApprovalRule string

// Values lists what may stand in the file.
func (ApprovalRule) Values() []string { return []string{"none", "everyApply"} }

// Kinds counts the kinds that a runtime claims to be.
func (r Runtime) Kinds() int {
	n := 0
	for _, given := range []bool{r.Custom != nil, r.Kubernetes != nil, r.ECS != nil, r.Fake != nil} {
		if given {
			n++
		}
	}
	return n
}
