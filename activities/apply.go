package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

// beat is how often an apply tells the server that its worker lives; less than a third of the
// heartbeat timeout, so that one lost beat is no lost worker.
const beat = 3 * time.Second

// Apply moves one instance to its target and looks at the result. A failed apply is an answer; an
// error means that the worker could not end it, and another one begins again. That one looks
// first: what the lost worker had finished is not done twice (A11). The lost worker may be this very
// one, cut off from the server for a while, and its apply still running: that one has to end first.
func (a *Activities) Apply(ctx context.Context, r protocol.ApplyRequest) (protocol.ApplyAnswer, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go heartbeats(ctx)
	done, err := a.alone(ctx, instanceKey(r.Application, r.Service, r.Instance.Channel))
	if err != nil {
		return protocol.ApplyAnswer{}, err
	}
	defer done()
	line, in, err := a.prepareApply(ctx, r)
	if err != nil {
		return protocol.ApplyAnswer{Err: runtimes.Clip(err.Error(), 1000), Unready: true}, ctx.Err()
	}
	owner := runtimes.Owner{Application: r.Application, Service: r.Service, Channel: r.Instance.Channel}
	if line.watches {
		a.hints.forget(owner)
	}
	target := entities.Target{FullVersion: in.FullVersion}
	if activity.GetInfo(ctx).Attempt > 1 && line.looks() {
		if seen, _ := line.look(ctx, in, r.FetchTimeout); stable(seen, target) {
			return protocol.ApplyAnswer{Reading: &seen}, ctx.Err()
		}
	}
	answer := protocol.ApplyAnswer{}
	if err := a.apply(ctx, line, in, r.Timeout); err != nil {
		answer.Err, answer.Permanent = runtimes.Clip(err.Error(), 1000), runtimes.IsPermanent(err)
		if !line.looks() {
			return answer, ctx.Err()
		}
	}
	seen := a.lookAfter(ctx, line, in, r.FetchTimeout) // a failed one may have changed things too
	answer.Reading = &seen
	if line.watches {
		a.hints.tell(owner, shapeOf(seen, r.Instance))
	}
	return answer, ctx.Err()
}

// instanceKey names what only one apply or removal at a time may touch.
func instanceKey(application, service, channel string) string {
	return application + "/" + service + "/" + channel
}

// alone waits until nothing else of that key runs in this worker, and returns what lets the next one
// begin.
func (a *Activities) alone(ctx context.Context, key string) (done func(), err error) {
	for {
		a.mu.Lock()
		running := a.applies[key]
		if running == nil {
			ended := make(chan struct{})
			if a.applies == nil {
				a.applies = map[string]chan struct{}{}
			}
			a.applies[key] = ended
			a.mu.Unlock()
			return func() {
				a.mu.Lock()
				delete(a.applies, key)
				a.mu.Unlock()
				close(ended)
			}, nil
		}
		a.mu.Unlock()
		select {
		case <-running:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (a *Activities) prepareApply(ctx context.Context, r protocol.ApplyRequest) (connection, runtimes.Instance, error) {
	line, err := a.connect(ctx, r.Runtime, r.RuntimeDigest)
	if err != nil {
		return line, runtimes.Instance{}, err
	}
	in, err := a.instance(ctx, runtimes.Instance{
		Application: r.Application, Service: r.Service, ServiceID: r.ServiceID, Channel: r.Instance.Channel,
		FullVersion: r.Instance.FullVersion,
		Key:         fmt.Sprintf("%s/%s/%s/%s/%s", r.Application, r.Service, r.Instance.Channel, r.Instance.FullVersion, r.Instance.Payload),
	}, r.Instance.Payload)
	return line, in, err
}

func (a *Activities) apply(ctx context.Context, line connection, in runtimes.Instance, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	output, err := line.Apply(ctx, in)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil {
		err = fmt.Errorf("not done within %s: %w", timeout, err)
	}
	a.log(ctx, in, store.LogApply, output, err)
	return err
}

// lookAfter is the reading that an apply ends with. Without a way to look, the success of the
// apply is the state (C1).
func (a *Activities) lookAfter(ctx context.Context, line connection, in runtimes.Instance, timeout time.Duration) entities.Reading {
	if line.looks() {
		seen, output := line.look(ctx, in, timeout)
		if seen.Err != nil {
			a.logLook(ctx, in, output, seen)
		}
		return seen
	}
	return reading([]entities.Object{{
		Name: in.Service, Type: string(line.definition.Kind), Status: entities.ObjectSucceeded,
		Versions: []entities.ObjectVersion{{Version: in.FullVersion, Active: true}},
		Message:  "applied; this runtime has no fetch, so success is the state",
	}}, nil)
}

// stable tells whether a reading, taken just now, shows the target as it should be.
func stable(seen entities.Reading, target entities.Target) bool {
	i := entities.Instance{Reading: seen, Known: seen.Digest(), Fresh: true}
	return entities.ServiceInstance{Instance: &i}.Fetch(&target).Stable
}

// heartbeats tells the server that this worker lives, until ctx ends.
func heartbeats(ctx context.Context) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			activity.RecordHeartbeat(ctx)
		}
	}
}
