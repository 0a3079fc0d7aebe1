package config

import (
	"regexp"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// Runtime is a connection to a platform that runs services. It is published separately, and owned by the application that first defines
// it. A change of it releases nothing.
type Runtime struct {
	Header
	// A description of the runtime.
	Description string `json:"description,omitempty"`
	// The network address of workloads on the runtime, which the commands of plans receive: 192.0.2.7, media.example.org.
	Address string `json:"address,omitempty"`
	// Labels that the selectors of fleets match, and that payloads may use as ${{ runtime.labels.KEY }}.
	Labels map[string]string `json:"labels,omitempty"`
	// A runtime that consists of commands.
	Custom *RuntimeCustom `json:"custom,omitempty"`
	// A Kubernetes cluster.
	Kubernetes *RuntimeKubernetes `json:"kubernetes,omitempty"`
	// An Amazon ECS cluster.
	ECS *RuntimeECS `json:"ecs,omitempty"`
	// An in-memory runtime, for tests and simulations.
	Fake *RuntimeFake `json:"fake,omitempty" jsonschema:"-"`
	// Where its commands run: in any worker (local), or only in a worker started for this runtime
	// (remote), which needs a store that it can reach.
	Worker WorkerLocation `json:"worker,omitempty" jsonschema:"default=local"`
	// Whether anything may be written there. With read its release channels only report what they would apply, as with enforcement: report,
	// and no request that writes is sent. For clusters of Kubernetes and ECS.
	Access RuntimeAccess `json:"access,omitempty" jsonschema:"default=write"`
	// The maximum number of concurrent applies, over all services of all applications; by default unlimited.
	MaxConcurrentApplies *int `json:"maxConcurrentApplies,omitempty" jsonschema:"minimum=1"`
	// Whether a person must approve every apply, including repairs and retries.
	Approval ApprovalRule `json:"approval,omitempty" jsonschema:"default=none"`
	// Whether failed releases are rolled back automatically; false applies to every service.
	AutoRollback *bool `json:"autoRollback,omitempty" jsonschema:"default=true"`
	// Compares every release on the runtime with the state before it; without it nothing is compared.
	DefaultComparisons *DefaultComparisons `json:"defaultComparisons,omitempty"`
	// Who may use the runtime, and for what. Without it, everybody may use it for everything.
	Allow *RuntimeAllow `json:"allow,omitempty"`
}

// DefaultComparisons compare every release on a runtime with the past.
type DefaultComparisons struct {
	// The source of the samples.
	Prometheus MetricsServer `json:"prometheus"`
	// PromQL matchers for the requests of a service: namespace="shop", service="${{ service }}". If set, errors and latency are
	// compared.
	Requests string `json:"requests,omitempty"`
	// PromQL matchers for its pods in kube-state-metrics: namespace="shop", pod=~"${{ service }}-.*". If set, restarts of containers are
	// compared.
	Pods string `json:"pods,omitempty"`
	// The counter of requests; by default http_requests_total.
	Counter MetricName `json:"counter,omitempty" jsonschema:"default=http_requests_total"`
	// Matchers for failed requests; by default code=~"5..".
	Failed string `json:"failed,omitempty"`
	// The histogram of their duration, without _bucket; by default http_request_duration_seconds.
	Histogram MetricName `json:"histogram,omitempty" jsonschema:"default=http_request_duration_seconds"`
	// How long samples are collected.
	For Duration `json:"for,omitempty" jsonschema:"default=30m"`
	// The time between samples, at least twice the scrape interval.
	Step Duration `json:"step,omitempty" jsonschema:"default=1m"`
	// How far in the past the control samples are.
	Offset Duration `json:"offset,omitempty" jsonschema:"default=168h"`
	// The minimum change that counts, relative to the past; by default 0.5, which is 50 %.
	Tolerance *Number `json:"tolerance,omitempty"`
}

// MetricsServer is a Prometheus or a compatible server.
type MetricsServer struct {
	// The address of the server: http://prometheus:9090
	URL string `json:"url"`
	// A bearer token for the request.
	Token *EnvValue `json:"token,omitempty"`
}

// MetricName is the name of a Prometheus metric.
type MetricName string

const metricNamePattern = `^[A-Za-z_:][A-Za-z0-9_:]*$`

var metricNameRE = regexp.MustCompile(metricNamePattern)

// Pattern returns the pattern for the JSON schema.
func (MetricName) Pattern() string { return metricNamePattern }

// Check rejects invalid names of metrics.
func (n MetricName) Check() *Fault {
	return strict.FaultUnless(metricNameRE.MatchString(string(n)), "bad-name", "invalid metric name %q", string(n), "letters, digits, underscores and colons")
}

// RuntimeAllow configures who may use a runtime. A missing list allows all; in names * matches any text.
type RuntimeAllow struct {
	// The applications, in addition to the one that defines the runtime.
	Applications []NamePattern `json:"applications,omitempty"`
	// The namespaces of instances and of their objects. Cluster-scoped objects are then allowed only if their kind is listed by its full
	// name.
	Namespaces []NamePattern `json:"namespaces,omitempty"`
	// The kinds of objects.
	Kinds []AllowedKind `json:"kinds,omitempty"`
	// The service accounts with which release channels may use the runtime. They must name one of them.
	ServiceAccounts []NamePattern `json:"serviceAccounts,omitempty"`
	// The environment variables that services of other applications may set for the commands of a custom runtime, in addition to those that
	// begin with SERVICE_.
	Env []EnvPattern `json:"env,omitempty"`
}

// AllowedKind is a kind of Kubernetes object.
type AllowedKind struct {
	// The API group; by default the core group (ConfigMap, Service).
	Group NamePattern `json:"group,omitempty"`
	// The kind.
	Kind NamePattern `json:"kind"`
}

// NamePattern is a name in which * matches any text.
type NamePattern string

const namePatternPattern = `^[A-Za-z0-9*]([A-Za-z0-9*./-]*[A-Za-z0-9*])?$`

var namePatternRE = regexp.MustCompile(namePatternPattern)

// Pattern returns the pattern for the JSON schema.
func (NamePattern) Pattern() string { return namePatternPattern }

// Check rejects patterns that cannot match a name.
func (p NamePattern) Check() *Fault {
	return strict.FaultUnless(namePatternRE.MatchString(string(p)), "bad-name", "invalid name or name pattern %q", string(p), "letters, digits, hyphens and dots, with * for any part of it")
}

// RuntimeFake is an in-memory runtime, for tests and simulations.
type RuntimeFake struct {
	Pace
}

// Pace configures the polling and the retries of a runtime.
type Pace struct {
	// The poll interval of an instance that is moving.
	PollInterval Duration `json:"pollInterval,omitempty" jsonschema:"default=5s"`
	// The poll interval of a steady instance.
	SteadyPollInterval Duration `json:"steadyPollInterval,omitempty" jsonschema:"default=5m"`
	// How long the effect of a successful apply may stay invisible before it is applied again.
	GracePeriod Duration `json:"gracePeriod,omitempty" jsonschema:"default=10m"`
	// How a failed apply is retried.
	Retry *Retry `json:"retry,omitempty"`
}

// Retry configures the retries of a failed apply, or of a failed extension.
type Retry struct {
	// The maximum number of attempts, to apply one target or to run an extension, before it fails permanently.
	MaxAttempts *int `json:"maxAttempts,omitempty" jsonschema:"default=5,minimum=1,maximum=100"`
	// The time before the second attempt; it doubles with each further attempt.
	Backoff Duration `json:"backoff,omitempty" jsonschema:"default=10s"`
	// The maximum time between attempts.
	MaxBackoff Duration `json:"maxBackoff,omitempty" jsonschema:"default=5m"`
}

// RuntimeAccess is write or read.
type RuntimeAccess string

// Values lists the allowed values.
func (RuntimeAccess) Values() []string { return []string{"write", "read"} }

// ApprovalRule is none or everyApply.
type ApprovalRule string

// Values lists the allowed values.
func (ApprovalRule) Values() []string { return []string{"none", "everyApply"} }

// Kinds counts the kinds that are set.
func (r Runtime) Kinds() int {
	n := 0
	for _, given := range []bool{r.Custom != nil, r.Kubernetes != nil, r.ECS != nil, r.Fake != nil} {
		if given {
			n++
		}
	}
	return n
}
