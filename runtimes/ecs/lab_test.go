package ecs

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/ecsfake"
)

// testCluster is a fake of ECS with a cluster called shop, and a runtime on it.
type testCluster struct {
	*testing.T
	*ecsfake.Server
	*Runtime
	client *ecs.Client // of another user
	ctx    context.Context
}

func newTestCluster(t *testing.T, options ecsfake.Options) *testCluster {
	t.Helper()
	server, err := ecsfake.New(options)
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	l := &testCluster{T: t, Server: server, client: server.Client(noRetries), ctx: ctx}
	_, err = l.client.CreateCluster(ctx, &ecs.CreateClusterInput{ClusterName: aws.String("shop"), CapacityProviders: []string{"FARGATE", "FARGATE_SPOT", "spot"}})
	require.NoError(t, err)
	l.Runtime = l.worker()
	return l
}

func noRetries(o *ecs.Options) { o.Retryer = aws.NopRetryer{} }

// worker is a runtime with its own caches, as another worker has.
func (l *testCluster) worker(change ...func(*timing)) *Runtime {
	l.Helper()
	accounts := &Accounts{Configure: l.configure, timing: fastTiming(change...)}
	l.Cleanup(accounts.Close)
	rt, err := New(entities.RuntimeDefinition{
		Name: "prod", Kind: entities.RuntimeECS,
		ECS: &entities.ECSRuntime{Cluster: "shop", Region: "us-east-1", Endpoint: l.URL},
	}, accounts)
	require.NoError(l, err)
	return rt
}

func (l *testCluster) configure(o *ecs.Options) {
	o.HTTPClient = ecsfake.HTTPClient()
	o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "AKIAFAKE", SecretAccessKey: "fake"}, nil
	})
}

// fastTiming reads for each observation, and waits for nothing but ECS. Nothing is read in between.
func fastTiming(change ...func(*timing)) *timing {
	t := defaultTiming()
	t.pollInterval, t.maxAge, t.batchDelay, t.drainPollInterval, t.taskInterval = time.Hour, 0, time.Millisecond, 5*time.Millisecond, 0
	for _, c := range change {
		c(&t)
	}
	return &t
}

// serviceSpec is a service of a test as it is declared.
type serviceSpec struct {
	image   string
	service map[string]any
	change  func(definition, service map[string]any)
}

func payload(spec serviceSpec) *entities.Payload {
	definition := map[string]any{
		"family": "web", "taskRoleArn": "arn:aws:iam::123456789012:role/web", // exec needs one
		"containerDefinitions": []any{map[string]any{
			"name": "web", "image": spec.image, "memory": 128, "essential": true,
			"environment": []any{map[string]any{"name": "B", "value": "2"}, map[string]any{"name": "A", "value": "1"}},
		}},
	}
	service := map[string]any{
		"serviceName": "web", "desiredCount": 2,
		"deploymentConfiguration": map[string]any{"deploymentCircuitBreaker": map[string]any{"enable": true, "rollback": true}},
	}
	for name, v := range spec.service {
		service[name] = v
	}
	if spec.change != nil {
		spec.change(definition, service)
	}
	p := &entities.Payload{Application: "demo", Service: "web", Channel: "staging", Runtime: "prod", Kind: entities.RuntimeECS, ECS: &entities.ECSPayload{}}
	for _, document := range []map[string]any{definition, service} {
		for name, v := range document {
			if v == nil {
				delete(document, name)
			}
		}
		data, _ := json.Marshal(document)
		p.ECS.Objects = append(p.ECS.Objects, data)
	}
	return p
}

// requestFor is the service in staging at a version, whose image is of that version, for the nth target.
func requestFor(version string, sequence int64, change ...func(*serviceSpec)) runtimes.Request {
	spec := serviceSpec{image: "shop/web:" + version}
	for _, c := range change {
		c(&spec)
	}
	owner := runtimes.Owner{Application: "demo", Service: "web", ID: entities.Only("staging")}
	return runtimes.Request{
		Owner: owner, ServiceID: "id-1", FullVersion: version, Payload: payload(spec), Key: owner.Key() + "/" + version,
		Fence: &runtimes.Fence{Installation: "here", Epoch: 1, Sequence: sequence, Target: version, FullVersion: version},
	}
}

// withField changes fields of the service.
func withField(name string, value any) func(*serviceSpec) {
	return func(s *serviceSpec) {
		if s.service == nil {
			s.service = map[string]any{}
		}
		s.service[name] = value
	}
}

func (l *testCluster) apply(in runtimes.Request) string {
	l.Helper()
	out, err := l.Runtime.Apply(l.ctx, in)
	require.NoError(l, err)
	return out.Stdout
}

// observe is what is observed of the service itself.
func (l *testCluster) observe(in runtimes.Request) entities.Object {
	l.Helper()
	objects, err := l.Runtime.Observe(l.ctx, in)
	require.NoError(l, err)
	require.NotEmpty(l, objects)
	return objects[0]
}

// advanceUntil moves the clock until what is observed is so, for at most an hour.
func (l *testCluster) advanceUntil(in runtimes.Request, is func(entities.Object) bool) entities.Object {
	l.Helper()
	var o entities.Object
	for range 720 {
		if o = l.observe(in); is(o) {
			return o
		}
		l.Advance(5 * time.Second)
	}
	l.Fatalf("the condition is not met within an hour: %s", summary(o))
	return o
}

func stable(version string) func(entities.Object) bool {
	return func(o entities.Object) bool {
		return entities.FetchObjects([]entities.Object{o}, &entities.Target{FullVersion: version}).Stable
	}
}

func failed(version string) func(entities.Object) bool {
	return func(o entities.Object) bool {
		return entities.FetchObjects([]entities.Object{o}, &entities.Target{FullVersion: version}).Failed != ""
	}
}

// applyStable applies and waits until that is stable.
func (l *testCluster) applyStable(in runtimes.Request) entities.Object {
	l.Helper()
	l.apply(in)
	return l.advanceUntil(in, stable(in.FullVersion))
}

// summary writes an object on one line: status, versions with their tasks (* is active, ! drifted), message.
func summary(o entities.Object) string {
	parts := []string{string(o.Status)}
	for _, v := range o.Versions {
		marks := ""
		if v.Active {
			marks += "*"
		}
		if v.Drifted {
			marks += "!"
		}
		parts = append(parts, fmt.Sprintf("%s%s %d/%d", v.Version, marks, v.AvailableReplicas, v.Replicas))
	}
	if o.Message != "" {
		parts = append(parts, o.Message)
	}
	return strings.Join(parts, "; ")
}

// web is the service as ECS has it; nil: it is not there.
func (l *testCluster) web() *types.Service {
	l.Helper()
	out, err := l.client.DescribeServices(l.ctx, &ecs.DescribeServicesInput{
		Cluster: aws.String("shop"), Services: []string{"web"}, Include: []types.ServiceField{types.ServiceFieldTags},
	})
	require.NoError(l, err)
	if len(out.Services) == 0 {
		return nil
	}
	return &out.Services[0]
}

// update changes the service by hand.
func (l *testCluster) update(change func(*ecs.UpdateServiceInput)) {
	l.Helper()
	in := &ecs.UpdateServiceInput{Cluster: aws.String("shop"), Service: aws.String("web")}
	change(in)
	_, err := l.client.UpdateService(l.ctx, in)
	require.NoError(l, err)
}

func writes(calls map[string]int) int {
	n := 0
	for operation, times := range calls {
		switch operation {
		case "RegisterTaskDefinition", "DeregisterTaskDefinition", "CreateService", "UpdateService", "DeleteService", "TagResource", "UntagResource":
			n += times
		}
	}
	return n
}
