package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	ecsruntime "github.com/converge-engine/converge/runtimes/ecs"
	"github.com/converge-engine/converge/tests/bench/report"
	"github.com/converge-engine/converge/tests/ecsfake"
)

// ecsAllows is how many reads of services a minute AWS documents for an account and region: 20 a second
// (Amazon ECS API Reference, Request throttling).
const ecsAllows = 20 * 60

// measureECS counts what a runtime asks of the API, on the fake, which limits as AWS documents: for a release of one
// service, and at rest for few and for many.
func measureECS(ctx context.Context, b *bench) error {
	calls, err := releaseOnECS(ctx)
	if err != nil {
		return err
	}
	b.Add(report.Line{Row: b.row, What: "a release of one service, until it is stable", Measured: report.Of(float64(total(calls)), "calls"), Spread: spelled(calls)})
	sizes := []int{10, 100, 1000}
	idle, failed := make([]map[string]int, len(sizes)), make([]error, len(sizes))
	var all sync.WaitGroup
	for i, n := range sizes {
		all.Go(func() { idle[i], failed[i] = restOnECS(ctx, n, b.rest) })
	}
	all.Wait()
	for i, n := range sizes {
		if failed[i] != nil {
			return failed[i]
		}
		perMinute := float64(total(idle[i])) / b.rest.Minutes()
		b.Add(report.Line{
			Row: b.row, What: fmt.Sprintf("an idle minute of %d services", n), Measured: report.Of(perMinute, "calls"), Spread: spelled(idle[i]),
			Reference: report.Ref(report.Of(ecsAllows, "calls")), Against: "what AWS allows",
		})
	}
	b.Note(b.row, "on the fake of the API, each size on an account of its own for %s; none was throttled", b.rest)
	return nil
}

func total(calls map[string]int) (n int) {
	for _, c := range calls {
		n += c
	}
	return n
}

func spelled(calls map[string]int) string {
	var words []string
	for _, name := range entities.SortedKeys(calls) {
		words = append(words, fmt.Sprintf("%s %d", name, calls[name]))
	}
	return strings.Join(words, ", ")
}

// ecsLab is a fake with one cluster, and a runtime on it as a worker has it.
type ecsLab struct {
	fake     *ecsfake.Server
	client   *ecs.Client
	accounts *ecsruntime.Accounts
	runtime  *ecsruntime.Runtime
}

func newECSLab(ctx context.Context, speed float64) (l *ecsLab, err error) {
	l = &ecsLab{}
	if l.fake, err = ecsfake.New(ecsfake.Options{Speed: speed, LimitClock: time.Now}); err != nil {
		return nil, err
	}
	l.client = l.fake.Client()
	if _, err = l.client.CreateCluster(ctx, &ecs.CreateClusterInput{ClusterName: aws.String("bench")}); err != nil {
		return nil, errors.Join(err, l.fake.Close())
	}
	l.accounts = &ecsruntime.Accounts{Configure: func(o *ecs.Options) {
		o.HTTPClient = ecsfake.HTTPClient()
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKIAFAKE", SecretAccessKey: "fake"}, nil
		})
	}}
	l.runtime, err = ecsruntime.New(entities.RuntimeDefinition{
		Name: "bench", Kind: entities.RuntimeECS, ECS: &entities.ECSRuntime{Cluster: "bench", Region: "us-east-1", Endpoint: l.fake.URL},
	}, l.accounts)
	return l, err
}

func (l *ecsLab) close() {
	l.accounts.Close()
	_ = l.fake.Close() // of a fake that nobody asks any more
}

// ecsInstance is a service at a version, for its nth target.
func ecsInstance(name, version string, n int64) runtimes.Request {
	documents := []any{
		map[string]any{"family": name, "containerDefinitions": []any{map[string]any{"name": "web", "image": "shop/web:" + version, "memory": 128}}},
		map[string]any{"serviceName": name, "desiredCount": 1},
	}
	payload := &entities.Payload{Application: "bench", Service: name, Channel: "prod", Runtime: "bench", Kind: entities.RuntimeECS, ECS: &entities.ECSPayload{}}
	for _, d := range documents {
		data, _ := json.Marshal(d) // of maps and texts
		payload.ECS.Objects = append(payload.ECS.Objects, data)
	}
	owner := runtimes.Owner{Application: "bench", Service: name, ID: entities.Only("prod")}
	return runtimes.Request{
		Owner: owner, ServiceID: "bench/" + name, FullVersion: version, Payload: payload, Key: owner.Key() + "/" + version,
		Fence: &runtimes.Fence{Epoch: 1, Sequence: n},
	}
}

// releaseOnECS counts the calls of a release from one version to the next, with the readings that see it through.
func releaseOnECS(ctx context.Context) (map[string]int, error) {
	l, err := newECSLab(ctx, 60)
	if err != nil {
		return nil, err
	}
	defer l.close()
	for n, version := range []string{"v1", "v2"} {
		l.fake.ResetCalls()
		in := ecsInstance("web", version, int64(n+1))
		if _, err := l.runtime.Apply(ctx, in); err != nil {
			return nil, err
		}
		err := until(ctx, 20*breath, func() (bool, error) {
			objects, err := l.runtime.Observe(ctx, in)
			if err != nil || len(objects) != 1 || objects[0].Status != entities.ObjectSucceeded {
				return false, err
			}
			return len(objects[0].Versions) == 1 && objects[0].Versions[0].Version == version, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return l.fake.Calls(), nil
}

// restOnECS counts the calls of a while in which services are only looked after.
func restOnECS(ctx context.Context, services int, rest time.Duration) (map[string]int, error) {
	l, err := newECSLab(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer l.close()
	out, err := l.client.RegisterTaskDefinition(ctx, &ecs.RegisterTaskDefinitionInput{Family: aws.String("web"), ContainerDefinitions: []types.ContainerDefinition{
		{Name: aws.String("web"), Image: aws.String("shop/web:v1"), Memory: aws.Int32(128)},
	}})
	if err != nil {
		return nil, err
	}
	defer l.runtime.Watch(func(runtimes.Owner) {})()
	var seen sync.WaitGroup
	failed := make([]error, services)
	for i := range services {
		name := fmt.Sprintf("web%04d", i)
		_, err := l.client.CreateService(ctx, &ecs.CreateServiceInput{
			Cluster: aws.String("bench"), ServiceName: &name, TaskDefinition: out.TaskDefinition.TaskDefinitionArn, DesiredCount: aws.Int32(0),
		})
		if err != nil {
			return nil, err
		}
	}
	l.fake.Limit(true)
	for i := range services {
		seen.Go(func() { _, failed[i] = l.runtime.Observe(ctx, ecsInstance(fmt.Sprintf("web%04d", i), "v1", 1)) })
	}
	seen.Wait()
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	l.fake.ResetCalls()
	select {
	case <-time.After(rest):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if throttled := l.fake.Throttled(); len(throttled) > 0 {
		return nil, fmt.Errorf("throttled: %s", spelled(throttled))
	}
	return l.fake.Calls(), nil
}
