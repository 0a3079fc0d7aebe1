package ecsfake_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/ecsfake"
)

// The part of the API that others answer honestly too: task definitions, revisions, tags, typed errors, what is missing,
// and the condition of a deletion. It is asked of the fake, of moto, and of whatever CONVERGE_ECS_ENDPOINT names; there it
// makes a cluster of its own, starts no task, and removes what it made.

func TestContractOfTheFake(t *testing.T) {
	server, err := ecsfake.New(ecsfake.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	contract(t, server.Client(once), 10*time.Second, nil)
}

func TestContractOfMoto(t *testing.T) {
	contract(t, moto(t), 10*time.Second, map[string]string{
		"registering answers with the tags":               "moto leaves tags out of the answer, which API RegisterTaskDefinition has",
		"a family is its newest active revision":          "moto takes the newest revision, INACTIVE or not (API DescribeTaskDefinition: the latest ACTIVE one)",
		"an inactive definition is not started":           "moto starts INACTIVE revisions (API DeregisterTaskDefinition: they can't be used to run new tasks or create new services)",
		"numbers of revisions are not given twice":        "moto begins again at 1 (API DeleteTaskDefinitions: the revision is incremented)",
		"Fargate needs awsvpc":                            "moto does not look at the network mode (API RegisterTaskDefinition, networkMode)",
		"a task that is not there cannot be stopped":      "moto answers 500",
		"a missing task is a failure in an answer of 200": "moto names no failures (guide api_failures_messages: MISSING)",
		"a service is not made twice":                     "moto makes it anew (seen of AWS; not documented)",
		"an update by family shows its newest revision":   "moto keeps the family as the definition (API UpdateService: the latest ACTIVE revision is used)",
		"an update starts another deployment":             "moto never changes deployments[] (API UpdateService)",
		"ten services are described at once, not eleven":  "moto knows no limits (API DescribeServices: up to 10)",
		"a deleted service is not listed":                 "moto lists INACTIVE services (API DeleteService: no longer visible in ListServices)",
	})
}

func TestContractOfAnEndpoint(t *testing.T) {
	endpoint := os.Getenv("CONVERGE_ECS_ENDPOINT")
	if endpoint == "" {
		t.Skip("CONVERGE_ECS_ENDPOINT is not set: it names an endpoint of the ECS API to ask the same of; credentials and " +
			"region are the SDK's default ones")
	}
	loaded, err := config.LoadDefaultConfig(t.Context())
	require.NoError(t, err)
	contract(t, ecs.NewFromConfig(loaded, func(o *ecs.Options) { o.BaseEndpoint = &endpoint }), 2*time.Minute, nil)
}

// party is who is asked, and names of the test's own.
type party struct {
	*testing.T
	*ecs.Client
	ctx             context.Context
	cluster, family string
	// patience is how long reads may lag.
	patience time.Duration
}

// contract asks everything of a client; unlike says where another implementation is known to answer otherwise, and why it
// is not asked.
func contract(t *testing.T, client *ecs.Client, patience time.Duration, unlike map[string]string) {
	for _, clause := range []struct {
		name string
		ask  func(party)
	}{
		{"registering adds a revision each time", party.registersAnew},
		{"registering answers with the tags", party.answersTags},
		{"a definition is found by family, revision and ARN", party.findsDefinitions},
		{"a family is its newest active revision", party.findsTheActive},
		{"a definition has tags", party.tagsDefinitions},
		{"an inactive definition can be described", party.describesInactive},
		{"an inactive definition is not started", party.refusesInactive},
		{"only what is inactive is deleted", party.deletesInactive},
		{"numbers of revisions are not given twice", party.countsUp},
		{"a container needs memory", party.needsMemory},
		{"a container needs an image", party.needsAnImage},
		{"Fargate needs awsvpc", party.needsAwsvpc},
		{"what is not there has a typed error", party.typesErrors},
		{"a task that is not there cannot be stopped", party.stopsNothing},
		{"a missing service is a failure in an answer of 200", party.missesServices},
		{"a missing cluster is a failure in an answer of 200", party.missesClusters},
		{"a missing task is a failure in an answer of 200", party.missesTasks},
		{"a service shows its PRIMARY deployment", party.showsPrimary},
		{"a service has tags", party.tagsServices},
		{"a service is not made twice", party.refusesTwins},
		{"an update shows another definition", party.updates},
		{"an update by family shows its newest revision", party.updatesByFamily},
		{"an update starts another deployment", party.startsAnother},
		{"ten services are described at once, not eleven", party.describesTen},
		{"a service that is scaled is not deleted without force", party.requiresForceToDelete},
		{"a deleted service is not listed", party.hidesDeleted},
	} {
		t.Run(clause.name, func(t *testing.T) {
			if why := unlike[clause.name]; why != "" {
				t.Skip(why)
			}
			name := fmt.Sprintf("converge-contract-%x", time.Now().UnixNano())
			p := party{t, client, t.Context(), name, name, patience}
			_, err := p.CreateCluster(p.ctx, &ecs.CreateClusterInput{ClusterName: &name})
			require.NoError(t, err)
			t.Cleanup(p.clean)
			clause.ask(p)
		})
	}
}

// clean removes the service, the definitions and the cluster.
func (p party) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	_, _ = p.DeleteService(ctx, &ecs.DeleteServiceInput{Cluster: &p.cluster, Service: aws.String("web"), Force: aws.Bool(true)})
	list, err := p.ListTaskDefinitions(ctx, &ecs.ListTaskDefinitionsInput{FamilyPrefix: &p.family})
	if err == nil {
		for _, arn := range list.TaskDefinitionArns {
			_, _ = p.DeregisterTaskDefinition(ctx, &ecs.DeregisterTaskDefinitionInput{TaskDefinition: &arn})
		}
	}
	_, _ = p.DeleteCluster(ctx, &ecs.DeleteClusterInput{Cluster: &p.cluster})
}

func (p party) register(change ...func(*ecs.RegisterTaskDefinitionInput)) *types.TaskDefinition {
	p.Helper()
	out, err := p.RegisterTaskDefinition(p.ctx, definition(p.family, "busybox:1", change...))
	require.NoError(p, err)
	return out.TaskDefinition
}

func (p party) describe(ref string) (*ecs.DescribeTaskDefinitionOutput, error) {
	return p.DescribeTaskDefinition(p.ctx, &ecs.DescribeTaskDefinitionInput{TaskDefinition: &ref, Include: []types.TaskDefinitionField{types.TaskDefinitionFieldTags}})
}

func (p party) deregister(d *types.TaskDefinition) {
	p.Helper()
	out, err := p.DeregisterTaskDefinition(p.ctx, &ecs.DeregisterTaskDefinitionInput{TaskDefinition: d.TaskDefinitionArn})
	require.NoError(p, err)
	require.Equal(p, types.TaskDefinitionStatusInactive, out.TaskDefinition.Status)
}

func (p party) create(change ...func(*ecs.CreateServiceInput)) (*types.Service, error) {
	in := service(p.family, 0, change...)
	in.Cluster = &p.cluster
	out, err := p.CreateService(p.ctx, in)
	if err != nil {
		return nil, err
	}
	return out.Service, nil
}

// soon waits for a read to say what a write did: reads may lag.
func (p party) soon(read func() bool) {
	p.Helper()
	require.Eventually(p, read, p.patience, 10*time.Millisecond)
}

func (p party) registersAnew() {
	one, two := p.register(), p.register()
	require.Equal(p, one.Revision+1, two.Revision)
	require.True(p, strings.HasSuffix(*two.TaskDefinitionArn, fmt.Sprintf(":task-definition/%s:%d", p.family, two.Revision)), *two.TaskDefinitionArn)
	require.Equal(p, types.TaskDefinitionStatusActive, two.Status)
	require.Equal(p, p.family, *two.Family)
	p.soon(func() bool {
		list, err := p.ListTaskDefinitions(p.ctx, &ecs.ListTaskDefinitionsInput{FamilyPrefix: &p.family})
		return err == nil && len(list.TaskDefinitionArns) == 2
	})
}

func (p party) answersTags() {
	out, err := p.RegisterTaskDefinition(p.ctx, definition(p.family, "busybox:1", hashed))
	require.NoError(p, err)
	require.Equal(p, []types.Tag{{Key: aws.String("hash"), Value: aws.String("1")}}, out.Tags)
}

// hashed gives a definition a tag.
func hashed(in *ecs.RegisterTaskDefinitionInput) {
	in.Tags = []types.Tag{{Key: aws.String("hash"), Value: aws.String("1")}}
}

func (p party) findsDefinitions() {
	one, two := p.register(), p.register()
	for ref, want := range map[string]*types.TaskDefinition{
		*one.TaskDefinitionArn: one, fmt.Sprintf("%s:%d", p.family, one.Revision): one, p.family: two,
	} {
		p.soon(func() bool {
			out, err := p.describe(ref)
			return err == nil && *out.TaskDefinition.TaskDefinitionArn == *want.TaskDefinitionArn
		})
	}
}

func (p party) findsTheActive() {
	one, two := p.register(), p.register()
	p.deregister(two)
	p.soon(func() bool {
		out, err := p.describe(p.family)
		return err == nil && *out.TaskDefinition.TaskDefinitionArn == *one.TaskDefinitionArn
	})
	p.deregister(one)
	p.soon(func() bool {
		_, err := p.describe(p.family)
		return code(err) == "ClientException"
	})
}

func (p party) tagsDefinitions() {
	p.retags(*p.register(hashed).TaskDefinitionArn)
	described, err := p.describe(p.family)
	require.NoError(p, err)
	require.Equal(p, []types.Tag{{Key: aws.String("hash"), Value: aws.String("2")}}, described.Tags)
	without, err := p.DescribeTaskDefinition(p.ctx, &ecs.DescribeTaskDefinitionInput{TaskDefinition: &p.family})
	require.NoError(p, err)
	require.Empty(p, without.Tags)
}

// retags gives the tag hash another value, and adds and removes one.
func (p party) retags(arn string) {
	_, err := p.TagResource(p.ctx, &ecs.TagResourceInput{ResourceArn: &arn, Tags: []types.Tag{
		{Key: aws.String("hash"), Value: aws.String("2")}, {Key: aws.String("owner"), Value: aws.String("x")},
	}})
	require.NoError(p, err)
	_, err = p.UntagResource(p.ctx, &ecs.UntagResourceInput{ResourceArn: &arn, TagKeys: []string{"owner"}})
	require.NoError(p, err)
	p.soon(func() bool {
		out, err := p.ListTagsForResource(p.ctx, &ecs.ListTagsForResourceInput{ResourceArn: &arn})
		return err == nil && len(out.Tags) == 1 && *out.Tags[0].Key == "hash" && *out.Tags[0].Value == "2"
	})
}

func (p party) describesInactive() {
	one := p.register()
	p.deregister(one)
	p.soon(func() bool {
		out, err := p.describe(*one.TaskDefinitionArn)
		return err == nil && out.TaskDefinition.Status == types.TaskDefinitionStatusInactive
	})
}

func (p party) refusesInactive() {
	one := p.register()
	p.deregister(one)
	_, err := p.create(func(in *ecs.CreateServiceInput) { in.TaskDefinition = one.TaskDefinitionArn })
	require.Equal(p, "ClientException", code(err))
	p.register()
	_, err = p.create()
	require.NoError(p, err)
	_, err = p.UpdateService(p.ctx, &ecs.UpdateServiceInput{Cluster: &p.cluster, Service: aws.String("web"), TaskDefinition: one.TaskDefinitionArn})
	require.Equal(p, "ClientException", code(err))
}

func (p party) deletesInactive() {
	one := p.register()
	remove := func() *ecs.DeleteTaskDefinitionsOutput {
		out, err := p.DeleteTaskDefinitions(p.ctx, &ecs.DeleteTaskDefinitionsInput{TaskDefinitions: []string{*one.TaskDefinitionArn}})
		require.NoError(p, err)
		return out
	}
	require.Len(p, remove().Failures, 1)
	p.deregister(one)
	require.Equal(p, types.TaskDefinitionStatusDeleteInProgress, remove().TaskDefinitions[0].Status)
}

func (p party) countsUp() {
	one := p.register()
	p.deregister(one)
	_, err := p.DeleteTaskDefinitions(p.ctx, &ecs.DeleteTaskDefinitionsInput{TaskDefinitions: []string{*one.TaskDefinitionArn}})
	require.NoError(p, err)
	require.Equal(p, one.Revision+1, p.register().Revision)
}

func (p party) refuses(change func(*ecs.RegisterTaskDefinitionInput)) {
	p.Helper()
	_, err := p.RegisterTaskDefinition(p.ctx, definition(p.family, "busybox:1", change))
	require.Equal(p, "ClientException", code(err))
}

func (p party) needsMemory() {
	p.refuses(func(in *ecs.RegisterTaskDefinitionInput) { in.ContainerDefinitions[0].Memory = nil })
}

func (p party) needsAnImage() {
	p.refuses(func(in *ecs.RegisterTaskDefinitionInput) { in.ContainerDefinitions[0].Image = nil })
}

func (p party) needsAwsvpc() {
	p.refuses(func(in *ecs.RegisterTaskDefinitionInput) {
		fargate(in)
		in.NetworkMode = ""
	})
}

func (p party) typesErrors() {
	p.register()
	gone := aws.String("not-there")
	_, describing := p.describe(*gone)
	_, creating := p.create(func(in *ecs.CreateServiceInput) { in.TaskDefinition = gone })
	_, updating := p.UpdateService(p.ctx, &ecs.UpdateServiceInput{Cluster: &p.cluster, Service: gone})
	_, removing := p.DeleteService(p.ctx, &ecs.DeleteServiceInput{Cluster: &p.cluster, Service: gone})
	_, reading := p.DescribeServices(p.ctx, &ecs.DescribeServicesInput{Cluster: gone, Services: []string{"web"}})
	_, listing := p.ListServices(p.ctx, &ecs.ListServicesInput{Cluster: gone})
	require.Equal(p, []string{
		"ClientException", "ClientException", "ServiceNotFoundException", "ServiceNotFoundException",
		"ClusterNotFoundException", "ClusterNotFoundException",
	}, []string{code(describing), code(creating), code(updating), code(removing), code(reading), code(listing)})
}

func (p party) stopsNothing() {
	_, err := p.StopTask(p.ctx, &ecs.StopTaskInput{Cluster: &p.cluster, Task: aws.String("0123456789abcdef0123456789abcdef")})
	require.Equal(p, "InvalidParameterException", code(err))
}

func (p party) missesServices() {
	out, err := p.DescribeServices(p.ctx, &ecs.DescribeServicesInput{Cluster: &p.cluster, Services: []string{"not-there"}})
	require.NoError(p, err)
	require.Empty(p, out.Services)
	require.Len(p, out.Failures, 1)
	require.Equal(p, "MISSING", *out.Failures[0].Reason)
	require.Regexp(p, `:service/(`+p.cluster+`/)?not-there$`, *out.Failures[0].Arn)
}

func (p party) missesClusters() {
	out, err := p.DescribeClusters(p.ctx, &ecs.DescribeClustersInput{Clusters: []string{"not-there"}})
	require.NoError(p, err)
	require.Len(p, out.Failures, 1)
	require.Equal(p, "MISSING", *out.Failures[0].Reason)
}

func (p party) missesTasks() {
	out, err := p.DescribeTasks(p.ctx, &ecs.DescribeTasksInput{Cluster: &p.cluster, Tasks: []string{"0123456789abcdef0123456789abcdef"}})
	require.NoError(p, err)
	require.Len(p, out.Failures, 1)
	require.Equal(p, "MISSING", *out.Failures[0].Reason)
}

func (p party) showsPrimary() {
	one := p.register()
	created, err := p.create()
	require.NoError(p, err)
	require.True(p, strings.HasSuffix(*created.ServiceArn, ":service/"+p.cluster+"/web"), *created.ServiceArn)
	p.soon(func() bool {
		out, err := p.DescribeServices(p.ctx, &ecs.DescribeServicesInput{Cluster: &p.cluster, Services: []string{*created.ServiceArn}})
		if err != nil || len(out.Services) != 1 || len(out.Services[0].Deployments) != 1 {
			return false
		}
		web := out.Services[0]
		return *web.Status == "ACTIVE" && *web.TaskDefinition == *one.TaskDefinitionArn && *web.Deployments[0].Status == "PRIMARY" &&
			strings.HasPrefix(*web.Deployments[0].Id, "ecs-svc/") && *web.Deployments[0].TaskDefinition == *one.TaskDefinitionArn
	})
	p.soon(func() bool {
		list, err := p.ListServices(p.ctx, &ecs.ListServicesInput{Cluster: &p.cluster})
		return err == nil && len(list.ServiceArns) == 1 && list.ServiceArns[0] == *created.ServiceArn
	})
}

func (p party) tagsServices() {
	p.register()
	created, err := p.create(func(in *ecs.CreateServiceInput) {
		in.Tags = []types.Tag{{Key: aws.String("hash"), Value: aws.String("1")}}
	})
	require.NoError(p, err)
	p.retags(*created.ServiceArn)
	for _, row := range []struct {
		include []types.ServiceField
		want    int
	}{{nil, 0}, {[]types.ServiceField{types.ServiceFieldTags}, 1}} {
		out, err := p.DescribeServices(p.ctx, &ecs.DescribeServicesInput{Cluster: &p.cluster, Services: []string{"web"}, Include: row.include})
		require.NoError(p, err)
		require.Len(p, out.Services[0].Tags, row.want)
	}
}

func (p party) refusesTwins() {
	p.register()
	_, err := p.create()
	require.NoError(p, err)
	_, err = p.create()
	require.Equal(p, "InvalidParameterException", code(err))
	require.ErrorContains(p, err, "Creation of service was not idempotent.")
}

func (p party) updates() {
	p.changes(func(two *types.TaskDefinition) string { return *two.TaskDefinitionArn })
}

func (p party) updatesByFamily() {
	p.changes(func(*types.TaskDefinition) string { return p.family })
}

// changes updates a service to another definition, named in some way, and returns how it then looks.
func (p party) changes(named func(*types.TaskDefinition) string) *types.Service {
	p.Helper()
	p.register()
	_, err := p.create()
	require.NoError(p, err)
	two := p.register()
	out, err := p.UpdateService(p.ctx, &ecs.UpdateServiceInput{Cluster: &p.cluster, Service: aws.String("web"), TaskDefinition: aws.String(named(two))})
	require.NoError(p, err)
	require.Equal(p, *two.TaskDefinitionArn, *out.Service.TaskDefinition)
	return out.Service
}

func (p party) startsAnother() {
	web := p.changes(func(two *types.TaskDefinition) string { return *two.TaskDefinitionArn })
	require.Equal(p, "PRIMARY", *web.Deployments[0].Status)
	require.Equal(p, *web.TaskDefinition, *web.Deployments[0].TaskDefinition)
}

func (p party) describesTen() {
	names := []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}
	_, err := p.DescribeServices(p.ctx, &ecs.DescribeServicesInput{Cluster: &p.cluster, Services: names})
	require.NoError(p, err)
	_, err = p.DescribeServices(p.ctx, &ecs.DescribeServicesInput{Cluster: &p.cluster, Services: append(names, "11")})
	require.Equal(p, "InvalidParameterException", code(err))
}

func (p party) requiresForceToDelete() {
	p.register()
	_, err := p.create(func(in *ecs.CreateServiceInput) { in.DesiredCount = aws.Int32(1) })
	require.NoError(p, err)
	remove := func(force bool) error {
		_, err := p.DeleteService(p.ctx, &ecs.DeleteServiceInput{Cluster: &p.cluster, Service: aws.String("web"), Force: &force})
		return err
	}
	require.Equal(p, "InvalidParameterException", code(remove(false)))
	require.NoError(p, remove(true))
}

func (p party) hidesDeleted() {
	p.register()
	_, err := p.create()
	require.NoError(p, err)
	_, err = p.DeleteService(p.ctx, &ecs.DeleteServiceInput{Cluster: &p.cluster, Service: aws.String("web")})
	require.NoError(p, err)
	p.soon(func() bool {
		list, err := p.ListServices(p.ctx, &ecs.ListServicesInput{Cluster: &p.cluster})
		return err == nil && len(list.ServiceArns) == 0
	})
}
