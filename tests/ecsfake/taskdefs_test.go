package ecsfake_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/ecsfake"
)

func fargate(in *ecs.RegisterTaskDefinitionInput) {
	in.NetworkMode = types.NetworkModeAwsvpc
	in.RequiresCompatibilities = []types.Compatibility{types.CompatibilityFargate}
	in.Cpu, in.Memory = aws.String("256"), aws.String("512")
}

func TestRegisteringIsRefused(t *testing.T) {
	first := func(change func(*types.ContainerDefinition)) func(*ecs.RegisterTaskDefinitionInput) {
		return func(in *ecs.RegisterTaskDefinitionInput) { change(&in.ContainerDefinitions[0]) }
	}
	for name, row := range map[string]struct {
		change  func(*ecs.RegisterTaskDefinitionInput)
		code    string
		message string
	}{
		"name of the family": {func(in *ecs.RegisterTaskDefinitionInput) { in.Family = aws.String("a b") }, "ClientException", "Family should"},
		"no container":       {func(in *ecs.RegisterTaskDefinitionInput) { in.ContainerDefinitions = []types.ContainerDefinition{} }, "ClientException", "Container list cannot be empty."},
		"no image":           {first(func(c *types.ContainerDefinition) { c.Image = nil }), "ClientException", "Container.image should not be null or empty."},
		"no memory":          {first(func(c *types.ContainerDefinition) { c.Memory = nil }), "ClientException", "At least one of 'memory' or 'memoryReservation'"},
		"nothing essential":  {first(func(c *types.ContainerDefinition) { c.Essential = aws.Bool(false) }), "ClientException", "at least one essential container"},
		"two of one name": {func(in *ecs.RegisterTaskDefinitionInput) {
			in.ContainerDefinitions = append(in.ContainerDefinitions, in.ContainerDefinitions[0])
		}, "ClientException", "unique"},
		"depends on nothing": {first(func(c *types.ContainerDefinition) {
			c.DependsOn = []types.ContainerDependency{{ContainerName: aws.String("db"), Condition: types.ContainerConditionStart}}
		}), "ClientException", "there is no container 'db'"},
		"Fargate on a bridge":    {func(in *ecs.RegisterTaskDefinitionInput) { fargate(in); in.NetworkMode = "" }, "ClientException", "awsvpc"},
		"Fargate without a size": {func(in *ecs.RegisterTaskDefinitionInput) { fargate(in); in.Cpu = nil }, "ClientException", "be defined at the task level"},
		"Fargate, no such size":  {func(in *ecs.RegisterTaskDefinitionInput) { fargate(in); in.Memory = aws.String("4 GB") }, "ClientException", "No Fargate configuration exists for given values: 256 CPU, 4096 memory"},
		"ports on awsvpc": {func(in *ecs.RegisterTaskDefinitionInput) {
			fargate(in)
			in.ContainerDefinitions[0].PortMappings = []types.PortMapping{{ContainerPort: aws.Int32(80), HostPort: aws.Int32(8080)}}
		}, "ClientException", "must match"},
		"reserved tag": {func(in *ecs.RegisterTaskDefinitionInput) {
			in.Tags = []types.Tag{{Key: aws.String("AWS:x"), Value: aws.String("y")}}
		}, "InvalidParameterException", "reserved"},
		"long tag": {func(in *ecs.RegisterTaskDefinitionInput) {
			in.Tags = []types.Tag{{Key: aws.String("x"), Value: aws.String(strings.Repeat("y", 257))}}
		}, "InvalidParameterException", "256"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, ecsfake.Options{})
			_, err := l.client.RegisterTaskDefinition(l.ctx, definition("web", "web:1", row.change))
			require.Equal(t, row.code, code(err))
			require.ErrorContains(t, err, row.message)
		})
	}
}

func TestRegisteringFillsInDefaults(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.register("web", "web:1", fargate, checked, func(in *ecs.RegisterTaskDefinitionInput) {
		in.Cpu, in.Memory = aws.String("1 vCPU"), aws.String("2GB")
		in.ContainerDefinitions[0].PortMappings = []types.PortMapping{{ContainerPort: aws.Int32(80)}}
		in.ContainerDefinitions[0].Environment = []types.KeyValuePair{
			{Name: aws.String("Z"), Value: aws.String("1")}, {Name: aws.String("A"), Value: aws.String("2")},
		}
	})
	out, err := l.client.DescribeTaskDefinition(l.ctx, &ecs.DescribeTaskDefinitionInput{TaskDefinition: aws.String("web")})
	require.NoError(t, err)
	d := out.TaskDefinition
	require.Equal(t, "1024 2048", *d.Cpu+" "+*d.Memory)
	require.Equal(t, []types.Compatibility{"EC2", "FARGATE"}, d.Compatibilities)
	require.Equal(t, l.Now(), d.RegisteredAt.UTC())
	c := d.ContainerDefinitions[0]
	require.True(t, *c.Essential)
	require.Equal(t, types.PortMapping{ContainerPort: aws.Int32(80), HostPort: aws.Int32(80), Protocol: "tcp"}, c.PortMappings[0])
	require.Equal(t, "A Z", *c.Environment[0].Name+" "+*c.Environment[1].Name, "the order of the environment is not kept")
	require.NotNil(t, c.MountPoints)
	require.Equal(t, []int32{30, 5, 3}, []int32{*c.HealthCheck.Interval, *c.HealthCheck.Timeout, *c.HealthCheck.Retries})
}

func TestInactiveDefinitionsAreNotStarted(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	one, two := l.register("web", "web:1"), l.register("web", "web:2")
	l.create(two, 1)
	l.settled()
	_, err := l.client.DeregisterTaskDefinition(l.ctx, &ecs.DeregisterTaskDefinitionInput{TaskDefinition: &one})
	require.NoError(t, err)

	_, updated := l.client.UpdateService(l.ctx, &ecs.UpdateServiceInput{Cluster: aws.String("shop"), Service: aws.String("web"), TaskDefinition: &one})
	_, created := l.client.CreateService(l.ctx, service(one, 1, func(in *ecs.CreateServiceInput) { in.ServiceName = aws.String("other") }))
	_, ran := l.client.RunTask(l.ctx, &ecs.RunTaskInput{Cluster: aws.String("shop"), TaskDefinition: &one})
	for _, err := range []error{updated, created, ran} {
		require.Equal(t, "ClientException", code(err))
		require.ErrorContains(t, err, "TaskDefinition is inactive")
	}
	require.Equal(t, two, *l.web().TaskDefinition)
}

func TestDeletedDefinitionStaysWhileItIsUsed(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	used, unused := l.register("web", "web:1"), l.register("web", "web:2")
	l.create(used, 1)
	l.settled()
	status := func(arn string) string {
		out, err := l.client.DescribeTaskDefinition(l.ctx, &ecs.DescribeTaskDefinitionInput{TaskDefinition: &arn})
		if err != nil {
			return code(err)
		}
		return string(out.TaskDefinition.Status)
	}
	remove := func(arns ...string) *ecs.DeleteTaskDefinitionsOutput {
		out, err := l.client.DeleteTaskDefinitions(l.ctx, &ecs.DeleteTaskDefinitionsInput{TaskDefinitions: arns})
		require.NoError(t, err)
		return out
	}
	require.Contains(t, *remove(unused).Failures[0].Detail, "still in ACTIVE status")
	for _, arn := range []string{used, unused} {
		_, err := l.client.DeregisterTaskDefinition(l.ctx, &ecs.DeregisterTaskDefinitionInput{TaskDefinition: &arn})
		require.NoError(t, err)
		require.Equal(t, "INACTIVE", status(arn))
	}
	require.Len(t, remove(used, unused).TaskDefinitions, 2)
	l.Advance(time.Minute)
	require.Equal(t, "DELETE_IN_PROGRESS", status(used))
	require.Equal(t, "ClientException", status(unused))

	l.update(func(in *ecs.UpdateServiceInput) { in.DesiredCount = aws.Int32(2) })
	require.EqualValues(t, 2, l.settledAt(2).RunningCount, "a service still scales with it")
	_, err := l.client.DeleteService(l.ctx, &ecs.DeleteServiceInput{Cluster: aws.String("shop"), Service: aws.String("web"), Force: aws.Bool(true)})
	require.NoError(t, err)
	l.Advance(time.Minute)
	require.Equal(t, "ClientException", status(used))
	require.Equal(t, "web:3", revision(l.register("web", "web:3")), "numbers are not given twice")
}

// settledAt advances until so many tasks run.
func (l *lab) settledAt(running int32) *types.Service {
	l.Helper()
	for range 600 {
		if web := l.web(); web.RunningCount == running && web.PendingCount == 0 {
			return web
		}
		l.Advance(time.Second)
	}
	l.Fatalf("%d tasks never run", running)
	return nil
}

func TestListsOfDefinitions(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	for range 3 {
		l.register("web", "web:1")
	}
	l.register("web-admin", "web:1")
	_, err := l.client.DeregisterTaskDefinition(l.ctx, &ecs.DeregisterTaskDefinitionInput{TaskDefinition: aws.String("web-admin:1")})
	require.NoError(t, err)

	list := func(in ecs.ListTaskDefinitionsInput) []string {
		names := []string{}
		pages := ecs.NewListTaskDefinitionsPaginator(l.client, &in)
		for pages.HasMorePages() {
			page, err := pages.NextPage(l.ctx)
			require.NoError(t, err)
			for _, arn := range page.TaskDefinitionArns {
				names = append(names, revision(arn))
			}
		}
		return names
	}
	require.Equal(t, []string{"web:1", "web:2", "web:3"}, list(ecs.ListTaskDefinitionsInput{MaxResults: aws.Int32(2)}))
	require.Equal(t, []string{"web:3", "web:2", "web:1"}, list(ecs.ListTaskDefinitionsInput{FamilyPrefix: aws.String("web"), Sort: "DESC"}))
	require.Equal(t, []string{"web-admin:1"}, list(ecs.ListTaskDefinitionsInput{Status: "INACTIVE"}))
	families := func(status types.TaskDefinitionFamilyStatus) []string {
		out, err := l.client.ListTaskDefinitionFamilies(l.ctx, &ecs.ListTaskDefinitionFamiliesInput{FamilyPrefix: aws.String("we"), Status: status})
		require.NoError(t, err)
		return out.Families
	}
	require.Equal(t, []string{"web"}, families("ACTIVE"))
	require.Equal(t, []string{"web-admin"}, families("INACTIVE"))
	require.Equal(t, []string{"web", "web-admin"}, families("ALL"))
	_, err = l.client.ListTaskDefinitions(l.ctx, &ecs.ListTaskDefinitionsInput{MaxResults: aws.Int32(101)})
	require.Equal(t, "InvalidParameterException", code(err))
}
