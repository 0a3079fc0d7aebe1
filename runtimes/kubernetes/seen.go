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

// hinted is a channel with a capacity of one. It holds a value if hints for the instance came since the last receive.
func (a *apply) hinted() (woken <-chan struct{}, stop func()) {
	came := make(chan struct{}, 1)
	return came, a.Watch(func(owner runtimes.Owner) {
		if owner == a.owner {
			select {
			case came <- struct{}{}:
			default:
			}
		}
	})
}

// readyPace is how often a wave is evaluated without a hint, from the watch. Only kinds that may not be watched are read from the
// server each time.
const readyPace = 2 * time.Second

// ready waits until all objects of a wave are ready. Hints of the watch wake it. A failed object ends the wait, since later waves
// depend on this one.
func (a *apply) ready(ctx context.Context, wave []*trial) error {
	woken, stop := a.hinted()
	defer stop()
	again := time.NewTicker(readyPace)
	defer again.Stop()
	for {
		waiting, err := a.unready(ctx, wave)
		if err != nil || waiting == "" {
			return err
		}
		select {
		case <-woken:
		case <-again.C:
		case <-ctx.Done():
			return &problem{doing: "wait for " + waiting, why: context.Cause(ctx).Error(), err: context.Cause(ctx), hint: "later waves wait for it"}
		}
	}
}

// unready names the first object that is not ready; empty if all are.
func (a *apply) unready(ctx context.Context, wave []*trial) (string, error) {
	for _, t := range wave {
		name := idOf(t.Unstructured).String()
		live, err := a.seen(ctx, t)
		if err != nil && ctx.Err() == nil {
			return "", err
		}
		if live == nil {
			return name + ": not seen yet", a.goneHook(ctx, t)
		}
		v, err := a.health(ctx, live)
		if isHook(t.Unstructured) {
			v = ofHook(live, v)
		}
		switch {
		case err != nil:
			return "", &problem{doing: "wait for " + name, why: err.Error(), err: err}
		case v.status == entities.ObjectFailed:
			return "", &problem{doing: "wait for " + name, why: "it failed: " + v.message, hint: "later waves wait for it", failed: true}
		case v.status != entities.ObjectSucceeded:
			return fmt.Sprintf("%s: %s", name, v.message), nil
		}
	}
	return "", nil
}

// seen is the watched object, or nil while the watch has not caught up with the apply.
func (a *apply) seen(ctx context.Context, t *trial) (*unstructured.Unstructured, error) {
	v, err := a.cluster.view(ctx, t.at, t.GetNamespace())
	var live *unstructured.Unstructured
	if err == nil {
		live = v.get(t.GetNamespace(), t.GetName())
	} else {
		live, err = a.clients.at(t.at, t.GetNamespace()).Get(ctx, t.GetName(), metav1.GetOptions{})
	}
	if err != nil {
		return nil, explain(ctx, "read "+idOf(t.Unstructured).String(), err)
	}
	if !t.shows(live) {
		return nil, nil
	}
	return live, nil
}

// shows reports whether a watched object is at least as new as the applied one.
func (t *trial) shows(live *unstructured.Unstructured) bool {
	return live != nil && (t.applied == nil || live.GetUID() == t.applied.GetUID() && live.GetGeneration() >= t.applied.GetGeneration())
}

// untilSeen waits until the watch shows the recreated object. The old one may have failed, and would count as the new one.
func (a *apply) untilSeen(ctx context.Context, t *trial) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for until := time.Now().Add(servedWithin); ; {
		live, err := a.seen(ctx, t)
		if err != nil || live != nil || time.Now().After(until) { // or it is already gone
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// catchUpWithin is how long an apply waits until the watch shows its writes. That usually takes some milliseconds.
const catchUpWithin = 300 * time.Millisecond

// catchUp waits until the watch shows the written objects, but not long. The next reading then shows the applied objects, and not
// their earlier state, which is of no interest.
func (a *apply) catchUp(ctx context.Context, trials []*trial) {
	ctx, cancel := context.WithTimeout(ctx, catchUpWithin)
	defer cancel()
	woken, stop := a.hinted()
	defer stop()
	for _, t := range trials {
		for t.applied != nil {
			v, err := a.cluster.view(ctx, t.at, t.GetNamespace())
			if err != nil || t.shows(v.get(t.GetNamespace(), t.GetName())) {
				break // or it cannot be watched: the reading reports that
			}
			select {
			case <-woken:
			case <-ctx.Done():
				return
			}
		}
	}
}
