package publish

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
)

// missingServices lists the services that were declared before, still are, and have no running workflow because it was terminated.
// Unmanaged services are excluded. Changed services are started anyway, except if the workflow of the application is gone too.
func (p *publication) missingServices(ctx context.Context, last incarnation.Manifest) ([]string, error) {
	var known []string
	for service := range p.manifest {
		_, declared := last[service]
		if _, down := p.before.Unmanaged.Of(service); declared && !down {
			known = append(known, service)
		}
	}
	if p.before.Newest == 0 {
		ids, err := p.store.Checkpointed(ctx, protocol.ServiceID(p.application, ""))
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if _, service, _ := protocol.ParseServiceID(id); p.manifest[service] != "" {
				known = append(known, service)
			}
		}
	}
	return p.stoppedServices(ctx, known)
}

// stoppedServices are the services whose workflows do not run, sorted. Each is queried, since lists of workflows lag behind.
func (p *publication) stoppedServices(ctx context.Context, services []string) (stopped []string, err error) {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for _, service := range services {
		g.Go(func() error {
			runs, err := p.isRunning(ctx, service)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && !runs {
				stopped = append(stopped, service)
			}
			return err
		})
	}
	err = g.Wait()
	slices.Sort(stopped)
	return stopped, err
}

func (p *publication) isRunning(ctx context.Context, service string) (bool, error) {
	description, err := p.options.Client.DescribeWorkflowExecution(ctx, protocol.ServiceID(p.application, service), "")
	if errors.As(err, new(*serviceerror.NotFound)) {
		return false, nil
	}
	status := description.GetWorkflowExecutionInfo().GetStatus()
	return status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING || status == enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED, err
}

// awaitStarted waits a while until the missing workflows run again.
func (p *publication) awaitStarted(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		stopped, err := p.stoppedServices(ctx, p.started)
		if err != nil || len(stopped) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			p.result.Notified = false
			return
		case <-time.After(wait):
		}
	}
}
