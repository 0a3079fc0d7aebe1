package config

import (
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// RuntimeECS is a cluster of Amazon ECS. Credentials are what the AWS tools find in the worker's environment.
type RuntimeECS struct {
	ECSCluster
	// How long an apply may take, the waits for what ECS allows included.
	ApplyTimeout Duration `json:"applyTimeout,omitempty" jsonschema:"default=10m"`
	Pace
}

// ECSCluster says which cluster of ECS, and who asks it.
type ECSCluster struct {
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
}

// CommandTask is where commands run as tasks of Amazon ECS, each in one of its own. Nothing of it is made: the task definition
// is there.
type CommandTask struct {
	ECSCluster
	// The task definition, with its revision: family:revision or an ARN.
	TaskDefinition TaskDefinition `json:"taskDefinition"`
	// The container that runs the command instead of its own, and whose exit code counts; the first essential one when not given.
	Container string `json:"container,omitempty"`
	// What the tasks run on; what the cluster says when neither this nor capacityProvider is given.
	LaunchType LaunchType `json:"launchType,omitempty"`
	// The capacity provider that they run on.
	CapacityProvider string `json:"capacityProvider,omitempty"`
	// The subnets of the tasks, which the network mode awsvpc needs.
	Subnets []string `json:"subnets,omitempty"`
	// The security groups of the tasks; the network's default one when not given.
	SecurityGroups []string `json:"securityGroups,omitempty"`
	// Gives the tasks a public address.
	AssignPublicIP bool `json:"assignPublicIp,omitempty"`
	// The path of converge-wrapper in the image, which keeps stdout and stderr apart. Without it the log is taken as it is.
	Wrapper string `json:"wrapper,omitempty"`
}

// TaskDefinition is migrate:7. Without a revision it would mean another one tomorrow.
type TaskDefinition string

const taskDefinitionPattern = `^(arn:[a-z0-9-]+:ecs:[a-z0-9-]+:[0-9]{12}:task-definition/)?[A-Za-z0-9_-]{1,255}:[1-9][0-9]*$`

var taskDefinitionRE = regexp.MustCompile(taskDefinitionPattern)

// Pattern is for the JSON schema.
func (TaskDefinition) Pattern() string { return taskDefinitionPattern }

// Check refuses what names no revision.
func (t TaskDefinition) Check() *Fault {
	return strict.Unless(taskDefinitionRE.MatchString(string(t)), "bad-value", "%q is no revision of a task definition", string(t), "its family and revision, such as migrate:7, or an ARN with both")
}

// LaunchType is what a task runs on.
type LaunchType string

// Values lists what may stand in the file.
func (LaunchType) Values() []string { return []string{"EC2", "FARGATE", "EXTERNAL"} }

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
