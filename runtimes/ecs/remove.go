package ecs

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/converge-engine/converge/runtimes"
)

// Remove implements runtimes.Remover. It scales the service of the instance to zero, deletes it when no tasks run, and deregisters
// the task definitions that were registered for it. It leaves objects of other owners.
func (r *Runtime) Remove(ctx context.Context, in runtimes.Request) error {
	if err := ctx.Err(); err != nil || in.Payload == nil {
		return err
	}
	a := &apply{Runtime: r, in: in}
	return explain("", a.remove(ctx))
}

func (a *apply) remove(ctx context.Context) (err error) {
	if a.want, err = declare(a.in.Payload); err != nil {
		return err
	}
	client, err := a.cluster.account.client(ctx)
	if err != nil {
		return err
	}
	others, err := a.cluster.servicesExcept(ctx, a.in.Owner, a.want.name())
	if err != nil {
		return err
	}
	for _, name := range append([]string{a.want.name()}, others...) {
		if err := a.deleteService(ctx, client, name); err != nil {
			return err
		}
	}
	_, err = a.cluster.prune(ctx, a.in.Owner, a.want.family(), nil, 0)
	return err
}

// deleteService deletes a service of the instance, and returns when it is gone.
func (a *apply) deleteService(ctx context.Context, client *ecs.Client, name string) (err error) {
	for {
		a.service, err = a.cluster.read(ctx, a.in.Owner, name, time.Now())
		if err != nil || a.service == nil || valueOf(a.service.Tags, TagOwner) != a.in.Owner.Key() {
			return err
		}
		if err := a.drain(ctx, client); err != nil {
			return err
		}
		if err := pause(ctx, a.cluster.timing.drainPollInterval); err != nil {
			return fmt.Errorf("the service %s still has %d tasks: %w", name, a.service.RunningCount+a.service.PendingCount, err)
		}
	}
}

// drain takes the next step of the deletion of a service.
func (a *apply) drain(ctx context.Context, client *ecs.Client) error {
	daemon := a.service.SchedulingStrategy == types.SchedulingStrategyDaemon
	switch {
	case text(a.service.Status) == statusDraining:
		return nil
	case a.checkFence() != nil:
		return a.checkFence()
	case !daemon && a.service.DesiredCount > 0:
		zero := int32(0)
		out, err := call(ctx, a.cluster, serviceWrites, client.UpdateService, &ecs.UpdateServiceInput{Cluster: &a.cluster.name, Service: a.service.ServiceName, DesiredCount: &zero})
		if err == nil {
			out.Service.Tags = a.service.Tags
			a.cluster.recordWrite(text(a.service.ServiceName), a.service, out.Service)
		}
		return err
	case !daemon && a.service.RunningCount+a.service.PendingCount > 0:
		return nil
	}
	_, err := call(ctx, a.cluster, serviceWrites, client.DeleteService, &ecs.DeleteServiceInput{Cluster: &a.cluster.name, Service: a.service.ServiceName, Force: &daemon})
	if codeOf(err) == "InvalidParameterException" || codeOf(err) == "ServiceNotActiveException" || codeOf(err) == "ServiceNotFoundException" {
		return nil // it has tasks that the reading did not show, or is gone: the next reading shows it
	}
	return err
}
