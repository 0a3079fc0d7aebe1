package kubernetes

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// lookAgain is when a wave is looked at without a hint. Looks are at what is watched; only kinds that
// may not be watched are asked for each time.
const lookAgain = 2 * time.Second

// ready waits until all objects of a wave are, woken by what is watched. An object that has failed
// ends the wait: what comes in later waves was meant to build on it.
func (a *apply) ready(ctx context.Context, wave []*trial) error {
	woken := make(chan struct{}, 1)
	stop := a.Watch(func(owner runtimes.Owner) {
		if owner == a.owner {
			select {
			case woken <- struct{}{}:
			default:
			}
		}
	})
	defer stop()
	again := time.NewTicker(lookAgain)
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

// unready names the first object that is not ready; empty when all are.
func (a *apply) unready(ctx context.Context, wave []*trial) (string, error) {
	for _, t := range wave {
		name := idOf(t.Unstructured).String()
		live, err := a.seen(ctx, t)
		if err != nil && ctx.Err() == nil {
			return "", err
		}
		if live == nil {
			return name + ": not seen yet", nil
		}
		switch status, message := health(live); status {
		case entities.ObjectSucceeded:
		case entities.ObjectFailed:
			return "", &problem{doing: "wait for " + name, why: "it failed: " + message, hint: "later waves wait for it"}
		default:
			return fmt.Sprintf("%s: %s", name, message), nil
		}
	}
	return "", nil
}

// seen is an object as it is watched, or nil while the watch has not caught up with the apply.
func (a *apply) seen(ctx context.Context, t *trial) (*unstructured.Unstructured, error) {
	v, err := a.cluster.view(ctx, t.at, t.GetNamespace())
	var live *unstructured.Unstructured
	if err == nil {
		live = v.get(t.GetNamespace(), t.GetName())
	} else {
		live, err = a.clients.at(t.at, t.GetNamespace()).Get(ctx, t.GetName(), metav1.GetOptions{})
	}
	if err != nil {
		return nil, explain(ctx, "look at "+idOf(t.Unstructured).String(), err)
	}
	if live == nil || t.applied == nil {
		return live, nil
	}
	if live.GetUID() != t.applied.GetUID() || live.GetGeneration() < t.applied.GetGeneration() {
		return nil, nil
	}
	return live, nil
}

// remove deletes an object that is made again, and waits until it and what it controls are gone.
func (a *apply) remove(ctx context.Context, t *trial) error {
	doing := "delete " + idOf(t.Unstructured).String() + " to make it again"
	at := a.clients.at(t.at, t.GetNamespace())
	foreground, uid := metav1.DeletePropagationForeground, t.live.GetUID()
	err := at.Delete(ctx, t.GetName(), metav1.DeleteOptions{PropagationPolicy: &foreground, Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return explain(ctx, doing, err)
	}
	again := time.NewTicker(removalPace)
	defer again.Stop()
	for {
		live, err := at.Get(ctx, t.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && live.GetUID() != uid {
			return nil
		}
		if err != nil {
			return explain(ctx, doing, err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return &problem{doing: doing, why: "it is still there: " + deleting(live), err: context.Cause(ctx)}
		}
	}
}

// removalPace is how often an object that is being deleted is asked for.
const removalPace = 250 * time.Millisecond
