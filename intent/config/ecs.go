package config

import (
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// RuntimeECS is an Amazon ECS cluster. Credentials come from the worker's environment, as for the AWS tools.
type RuntimeECS struct {
	ECSCluster
	// The timeout of an apply, including the time that it waits for ECS.
	ApplyTimeout Duration `json:"applyTimeout,omitempty" jsonschema:"default=10m"`
	Pace
}

// ECSCluster is a reference to an ECS cluster, and the credentials to access it.
type ECSCluster struct {
	// The name or the ARN of the cluster.
	Cluster string `json:"cluster"`
	// The region; by default from the worker's environment.
	Region Region `json:"region,omitempty"`
	// The role to assume; without it, the worker's own credentials are used.
	RoleARN RoleARN `json:"roleArn,omitempty"`
	// The external id that the role requires.
	ExternalID string `json:"externalId,omitempty"`
	// The address of the ECS API; AWS's own when not given.
	Endpoint string `json:"endpoint,omitempty"`
}

// CommandTask configures commands that run as Amazon ECS tasks, one task each. The task definition must already exist; nothing is
// created.
type CommandTask struct {
	ECSCluster
	// The task definition, with its revision: family:revision or an ARN.
	TaskDefinition TaskDefinition `json:"taskDefinition"`
	// The container that runs the command instead of its own, and whose exit code counts; by default the first essential one.
	Container string `json:"container,omitempty"`
	// The launch type of the tasks; if neither this nor capacityProvider is set, the cluster's default.
	LaunchType LaunchType `json:"launchType,omitempty"`
	// The capacity provider of the tasks.
	CapacityProvider string `json:"capacityProvider,omitempty"`
	// The subnets of the tasks, which the network mode awsvpc requires.
	Subnets []string `json:"subnets,omitempty"`
	// The security groups of the tasks; by default the network's default group.
	SecurityGroups []string `json:"securityGroups,omitempty"`
	// Whether the tasks get a public IP address.
	AssignPublicIP bool `json:"assignPublicIp,omitempty"`
	// The path of converge-wrapper in the image, which separates stdout and stderr. Without it the log is used unchanged.
	Wrapper string `json:"wrapper,omitempty"`
}

// TaskDefinition is migrate:7. The revision is required, because the latest one may change.
type TaskDefinition string

const taskDefinitionPattern = `^(arn:[a-z0-9-]+:ecs:[a-z0-9-]+:[0-9]{12}:task-definition/)?[A-Za-z0-9_-]{1,255}:[1-9][0-9]*$`

var taskDefinitionRE = strict.Pattern(taskDefinitionPattern)

// Pattern returns the pattern for the JSON schema.
func (TaskDefinition) Pattern() string { return taskDefinitionPattern }

// Check rejects a name without a revision.
func (t TaskDefinition) Check() *Fault {
	return strict.FaultUnless(taskDefinitionRE().MatchString(string(t)), "bad-value", "invalid task definition revision %q", string(t), "its family and revision, such as migrate:7, or an ARN with both")
}

// LaunchType is the launch type of a task.
type LaunchType string

// Values lists the allowed values.
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

// Pattern returns the pattern for the JSON schema.
func (Region) Pattern() string { return regionPattern }

// Pattern returns the pattern for the JSON schema.
func (RoleARN) Pattern() string { return roleARNPattern }

// Check rejects invalid regions.
func (r Region) Check() *Fault {
	return strict.FaultUnless(regionRE.MatchString(string(r)), "bad-value", "invalid region %q", string(r), "such as eu-west-1")
}

// Check rejects invalid role ARNs.
func (r RoleARN) Check() *Fault {
	return strict.FaultUnless(roleARNRE.MatchString(string(r)), "bad-value", "invalid role ARN %q", string(r), "such as arn:aws:iam::123456789012:role/deploy")
}

// ServiceECS declares the task definition and the ECS service of a service on an ECS runtime. It is the payload: a change of it changes
// the running workload.
type ServiceECS struct {
	// The task definition, in the format of aws ecs register-task-definition.
	TaskDefinition *ECSDocument `json:"taskDefinition,omitempty"`
	// The service, in the format of aws ecs create-service. Undeclared fields are not changed.
	Service *ECSDocument `json:"service,omitempty"`
	// Whether an existing service of that name with no owner or another owner is adopted. Otherwise it is rejected.
	Adopt *bool `json:"adopt,omitempty" jsonschema:"default=false"`
	// Whether older revisions of the task definition that are no longer needed are deregistered.
	Prune *bool `json:"prune,omitempty" jsonschema:"default=false"`
}

// ECSDocument is the input of the AWS CLI (--cli-input-json): inline, or as the path of a YAML or JSON file, relative to this file.
type ECSDocument struct {
	File   string
	Fields map[string]any
}

// Wanted describes the allowed values.
func (ECSDocument) Wanted() string { return "a mapping, or the path of a file with one" }

// DecodeStrict decodes either form.
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
