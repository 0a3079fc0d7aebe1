package kubernetes

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// This file waits until the watch shows the effects of an apply.

// hintChannel is a channel with a capacity of one. It holds a value if hints for the instance came since the last receive.
func (a *apply) hintChannel() (hints <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	return ch, a.Watch(func(owner runtimes.Owner) {
		if owner == a.owner {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	})
}

// readyPollInterval is how often a wave is evaluated without a hint, from the watch. Only kinds that may not be watched are read from the
// server each time.
const readyPollInterval = 2 * time.Second

// waitReady waits until all objects of a wave are ready. Hints of the watch wake it. A failed object ends the wait, since later waves
// depend on this one.
func (a *apply) waitReady(ctx context.Context, wave []*trial) error {
	hints, stop := a.hintChannel()
	defer stop()
	ticker := time.NewTicker(readyPollInterval)
	defer ticker.Stop()
	for {
		waiting, err := a.firstUnready(ctx, wave)
		if err != nil || waiting == "" {
			return err
		}
		select {
		case <-hints:
		case <-ticker.C:
		case <-ctx.Done():
			return &problem{action: "wait for " + waiting, reason: context.Cause(ctx).Error(), err: context.Cause(ctx), hint: "later waves wait for it"}
		}
	}
}

// firstUnready names the first object that is not ready; empty if all are.
func (a *apply) firstUnready(ctx context.Context, wave []*trial) (string, error) {
	for _, t := range wave {
		name := idOf(t.Unstructured).String()
		live, err := a.watchedObject(ctx, t)
		if err != nil && ctx.Err() == nil {
			return "", err
		}
		if live == nil {
			return name + ": not seen yet", a.deletedHookError(ctx, t)
		}
		v, err := a.health(ctx, live)
		if isHook(t.Unstructured) {
			v = hookJudgement(live, v)
		}
		switch {
		case err != nil:
			return "", &problem{action: "wait for " + name, reason: err.Error(), err: err}
		case v.status == entities.ObjectFailed:
			return "", &problem{action: "wait for " + name, reason: "it failed: " + v.message, hint: "later waves wait for it", objectFailed: true}
		case v.status != entities.ObjectSucceeded:
			return fmt.Sprintf("%s: %s", name, v.message), nil
		}
	}
	return "", nil
}

// watchedObject is the watched object, or nil while the watch has not caught up with the apply.
func (a *apply) watchedObject(ctx context.Context, t *trial) (*unstructured.Unstructured, error) {
	v, err := a.cluster.view(ctx, t.resource, t.GetNamespace())
	var live *unstructured.Unstructured
	if err == nil {
		live = v.get(t.GetNamespace(), t.GetName())
	} else {
		live, err = a.clients.resourceClient(t.resource, t.GetNamespace()).Get(ctx, t.GetName(), metav1.GetOptions{})
	}
	if err != nil {
		return nil, explain(ctx, "read "+idOf(t.Unstructured).String(), err)
	}
	if !t.reflects(live) {
		return nil, nil
	}
	return live, nil
}

// reflects reports whether a watched object is at least as new as the applied one.
func (t *trial) reflects(live *unstructured.Unstructured) bool {
	return live != nil && (t.applied == nil || live.GetUID() == t.applied.GetUID() && live.GetGeneration() >= t.applied.GetGeneration())
}

// waitWatched waits until the watch shows the recreated object. The old one may have failed, and would count as the new one.
func (a *apply) waitWatched(ctx context.Context, t *trial) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(serveTimeout); ; {
		live, err := a.watchedObject(ctx, t)
		if err != nil || live != nil || time.Now().After(deadline) { // or it is already gone
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watchWaitTimeout is how long an apply waits until the watch shows its writes. That usually takes some milliseconds.
const watchWaitTimeout = 300 * time.Millisecond

// waitForWatch waits until the watch shows the written objects, but not long. The next reading then shows the applied objects, and not
// their earlier state, which is of no interest.
func (a *apply) waitForWatch(ctx context.Context, trials []*trial) {
	ctx, cancel := context.WithTimeout(ctx, watchWaitTimeout)
	defer cancel()
	hints, stop := a.hintChannel()
	defer stop()
	for _, t := range trials {
		for t.applied != nil {
			v, err := a.cluster.view(ctx, t.resource, t.GetNamespace())
			if err != nil || t.reflects(v.get(t.GetNamespace(), t.GetName())) {
				break // or it cannot be watched: the reading reports that
			}
			select {
			case <-hints:
			case <-ctx.Done():
				return
			}
		}
	}
}
