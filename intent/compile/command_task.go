package compile

import (
	"fmt"
	"path"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// commandTask checks the settings for commands that run as ECS tasks.
func (c *compiler) commandTask(d *strict.Decoder, at string, task *config.CommandTask) *entities.CommandTask {
	if task == nil {
		return nil
	}
	const where = "the settings of a task"
	c.ecsCluster(d, at, where, task.ECSCluster)
	bad := func(field, format string, args ...any) {
		if location := strict.Field(at, field); d.Has(location) && !d.Faulty(location) {
			c.report(d, location, strict.Fault{Code: "bad-value", Message: fmt.Sprintf(format, args...)})
		}
	}
	for name, texts := range map[string][]string{
		"container": {task.Container}, "capacityProvider": {task.CapacityProvider}, "wrapper": {task.Wrapper}, "subnets": task.Subnets, "securityGroups": task.SecurityGroups,
	} {
		for _, text := range texts {
			c.noSubstitution(d, strict.Field(at, name), where, text)
		}
	}
	if task.LaunchType != "" && task.CapacityProvider != "" {
		c.report(d, strict.Field(at, "capacityProvider"), strict.Fault{Code: "one-of", Message: `"launchType" and "capacityProvider" are both given`, Expected: "one of them"})
	}
	if len(task.Subnets) == 0 {
		const unused = "it requires subnets, and there are none"
		bad("securityGroups", unused)
		bad("assignPublicIp", unused)
	}
	if task.Wrapper != "" && (!path.IsAbs(task.Wrapper) || strings.HasSuffix(task.Wrapper, "/")) {
		bad("wrapper", "%q is not an absolute path in the image, such as /converge-wrapper", task.Wrapper)
	}
	return taskEntity(task)
}

func taskEntity(task *config.CommandTask) *entities.CommandTask {
	return &entities.CommandTask{
		Cluster: *ecsEntity(task.ECSCluster), TaskDefinition: string(task.TaskDefinition), Container: task.Container,
		LaunchType: string(task.LaunchType), CapacityProvider: task.CapacityProvider,
		Subnets: task.Subnets, SecurityGroups: task.SecurityGroups, AssignPublicIP: task.AssignPublicIP, Wrapper: task.Wrapper,
	}
}

// rejectTaskWithJob rejects a command with both a task and a Job.
func (c *compiler) rejectTaskWithJob(d *strict.Decoder, at string, job *config.CommandJob, task *config.CommandTask) {
	if job != nil && task != nil {
		c.report(d, strict.Field(at, "task"), strict.Fault{Code: "one-of", Message: `"job" and "task" are both given`, Expected: "one of them"})
	}
}

// secretInTask reports a secret in an ECS task, where everybody who may describe the task could read it.
func secretInTask(name string) strict.Fault {
	return strict.Fault{
		Code: "bad-value", Message: fmt.Sprintf("%s is a secret, and the description of a task shows its environment", name),
		Expected: `a secret in "secrets" of the task definition's container, which ECS reads from Secrets Manager or SSM`,
	}
}

// task checks the task settings of a command, and that the task exposes no secret. Its settings have no substitutions.
func (f *fieldCompiler) task(at string, task *config.CommandTask, envAt string, given map[config.EnvName]config.EnvValue, env map[string]entities.Value) *entities.CommandTask {
	for _, name := range strict.Keys(env) {
		if env[name].IsSecret() {
			f.reportSubstituted(strict.Key(envAt, name), given[config.EnvName(name)].Literal, secretInTask(name))
		}
	}
	if f.scope == nil {
		return f.c.commandTask(f.d, at, task)
	}
	return taskEntity(task)
}
