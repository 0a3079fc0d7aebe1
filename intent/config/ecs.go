package config

import (
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// RuntimeECS is a cluster of Amazon ECS. Credentials are what the AWS tools find in the worker's environment.
type RuntimeECS struct {
	// The name or the ARN of the cluster.
	Cluster string `json:"cluster"`
	// The region; what the worker's environment says when not given.
	Region Region `json:"region,omitempty"`
	// The role to assume; without it, the worker's own credentials are used.
	RoleARN RoleARN `json:"roleArn,omitempty"`
	// The external id that the role asks for.
	ExternalID string `json:"externalId,omitempty"`
	// The address of the ECS API; AWS's own when not given.
	Endpoint string `json:"endpoint,omitempty"`
	// How long an apply may take, the waits for what ECS allows included.
	ApplyTimeout Duration `json:"applyTimeout,omitempty" jsonschema:"default=10m"`
	Pace
}

// Region is eu-west-1.
type Region string

// RoleARN is arn:aws:iam::123456789012:role/deploy.
type RoleARN string

const (
	regionPattern  = `^[a-z]{2}(-[a-z]+)+-[0-9]+$`
	roleARNPattern = `^arn:[a-z0-9-]+:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]+$`
)

var regionRE, roleARNRE = regexp.MustCompile(regionPattern), regexp.MustCompile(roleARNPattern)

// Pattern is for the JSON schema.
func (Region) Pattern() string { return regionPattern }

// Pattern is for the JSON schema.
func (RoleARN) Pattern() string { return roleARNPattern }

// Check refuses what is no region.
func (r Region) Check() *Fault {
	return strict.Unless(regionRE.MatchString(string(r)), "bad-value", "%q is no region", string(r), "such as eu-west-1")
}

// Check refuses what is no role.
func (r RoleARN) Check() *Fault {
	return strict.Unless(roleARNRE.MatchString(string(r)), "bad-value", "%q is no ARN of a role", string(r), "such as arn:aws:iam::123456789012:role/deploy")
}

// ServiceECS says what a service on an ECS runtime is made of. It is the payload: a change of it is a change of what runs.
type ServiceECS struct {
	// The task definition, as aws ecs register-task-definition takes it.
	TaskDefinition *ECSDocument `json:"taskDefinition,omitempty"`
	// The service, as aws ecs create-service takes it. What is not declared is left alone.
	Service *ECSDocument `json:"service,omitempty"`
	// Whether a service of that name that exists already, and belongs to nobody or to somebody else, is taken over instead of
	// refused.
	Adopt *bool `json:"adopt,omitempty" jsonschema:"default=false"`
	// Whether older revisions of the task definition that are not needed any more are deregistered.
	Prune *bool `json:"prune,omitempty" jsonschema:"default=false"`
}

// ECSDocument is what the AWS CLI takes as --cli-input-json: in place, or as the path of a file of YAML or JSON, relative
// to this file.
type ECSDocument struct {
	File   string
	Fields map[string]any
}

// Wanted words what may stand in the file.
func (ECSDocument) Wanted() string { return "a mapping, or the path of a file with one" }

// DecodeStrict reads either.
func (e *ECSDocument) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	switch v := d.Any(path, node).(type) {
	case map[string]any:
		e.Fields = v
	case string:
		e.File = v
	default:
		d.Fail(path, node, Fault{Code: "wrong-type", Message: fmt.Sprintf("this is %s", strict.Describe(node)), Expected: e.Wanted()})
	}
}
