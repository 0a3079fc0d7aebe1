package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

func nothingActive(r *run) {
	for _, o := range r.observe("staging", "") {
		for _, v := range o.Versions {
			if v.Active {
				r.Errorf("%s %s is active at %q", o.Type, o.Name, v.Version)
			}
		}
	}
}

func appliedIsStable(r *run) {
	objects := r.applyAndWait("staging", "v1")
	kept, omitted := runtimes.Bound(objects)
	if omitted > 0 || digest(kept) != digest(objects) {
		r.Errorf("does not fit into a reading: %+v", objects)
	}
}

func repeatedApplyChangesNothing(r *run) {
	if r.Changes == nil {
		r.Skip("changes cannot be counted here")
	}
	r.applyAndWait("staging", "v1")
	before := r.Changes("staging")
	r.apply("staging", "v1")
	if objects := r.observe("staging", "v1"); !stable(objects, "v1") {
		r.Errorf("no longer stable: %+v", objects)
	}
	if after := r.Changes("staging"); after != before {
		r.Errorf("changed %d times", after-before)
	}
}

func newReplacesOld(r *run) {
	r.applyAndWait("staging", "v1")
	r.applyAndWait("staging", "v2") // which has exactly one active version in every object
	if stable(r.observe("staging", "v2"), "v1") {
		r.Error("stable at v1 as well")
	}
}

func oldCanReturn(r *run) {
	for _, version := range []string{"v1", "v2", "v1"} {
		r.applyAndWait("staging", version)
	}
}

func channelsIsolated(r *run) {
	r.applyAndWait("staging", "v1")
	if stable(r.observe("production", ""), "v1") {
		r.Error("production runs a version that was applied only to staging")
	}
	r.applyAndWait("production", "v2")
	if objects := r.observe("staging", "v1"); !stable(objects, "v1") {
		r.Errorf("staging changed: %+v", objects)
	}
}

func instancesIsolated(r *run) {
	if !r.Fleet {
		r.Skip("a channel has one instance here")
	}
	r.applyAndWait("staging/eu", "v1")
	for _, other := range []string{"staging/us", "staging"} {
		if stable(r.observe(other, ""), "v1") {
			r.Errorf("%s runs a version that was applied only to staging/eu", other)
		}
	}
	r.applyAndWait("staging/us", "v2")
	r.waitStable("staging/eu", "v1")
}

// readingsEqual: an idle service costs no history only if the relevant parts of its readings are equal.
func readingsEqual(r *run) {
	first := r.applyAndWait("staging", "v1")
	for range 3 {
		if got := r.observe("staging", "v1"); digest(got) != digest(first) {
			r.Errorf("%+v, was %+v", got, first)
		}
	}
}

// concurrentReadings: no reading differs from the one before or after: others may leave objects on a shared runtime.
func concurrentReadings(r *run) {
	before := digest(r.applyAndWait("staging", "v1"))
	var seen [8][]entities.Object
	runConcurrently(len(seen), func(n int) {
		objects, err := r.Observe(r.ctx, r.request("staging", "v1"))
		if err != nil {
			r.Errorf("%v", err)
		}
		seen[n] = objects
	})
	after := digest(r.observe("staging", "v1"))
	for _, objects := range seen {
		if got := digest(objects); got != before && got != after {
			r.Errorf("%+v", objects)
		}
	}
}

func concurrentApplies(r *run) {
	runConcurrently(3, func(i int) {
		channel := fmt.Sprintf("prod-%d", i)
		if _, err := r.Apply(r.ctx, r.request(channel, "v1")); err != nil {
			r.Errorf("%s: %v", channel, err)
		}
	})
	for i := range 3 {
		r.waitStable(fmt.Sprintf("prod-%d", i), "v1")
	}
}

func runConcurrently(n int, do func(int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

func failedApply(r *run) {
	if r.FailApply == nil {
		r.Skip("applies cannot be made to fail here")
	}
	r.applyAndWait("staging", "v1")
	r.FailApply(false)
	_, err := r.Apply(r.ctx, r.request("staging", "v2"))
	if err == nil || runtimes.IsPermanent(err) {
		r.Errorf("error %v; expected one that can be retried", err)
	}
	r.waitStable("staging", "v1")
	r.applyAndWait("staging", "v2")
}

func permanentFailure(r *run) {
	if r.FailApply == nil {
		r.Skip("applies cannot be made to fail here")
	}
	r.FailApply(true)
	if _, err := r.Apply(r.ctx, r.request("staging", "v1")); err == nil || !runtimes.IsPermanent(err) {
		r.Errorf("error %v; expected a permanent one", err)
	}
	if stable(r.observe("staging", ""), "v1") {
		r.Error("v1 runs although its apply failed")
	}
}

func failedReading(r *run) {
	if r.FailReading == nil {
		r.Skip("readings cannot be made to fail here")
	}
	r.applyAndWait("staging", "v1")
	r.FailReading()
	objects, err := r.Observe(r.ctx, r.request("staging", "v1"))
	if err == nil || len(objects) > 0 {
		r.Errorf("%+v, %v; expected an error and nothing else", objects, err)
	}
	var reading *entities.ReadingError
	if errors.As(err, &reading) && (reading.Code == "" || reading.Message == "") {
		r.Errorf("reading error without code or message: %+v", reading)
	}
	r.waitStable("staging", "v1")
}

func cancelledApply(r *run) {
	r.cancelled(func(ctx context.Context) error {
		_, err := r.Apply(ctx, r.request("staging", "v1"))
		if runtimes.IsPermanent(err) {
			r.Errorf("%v is permanent; an interrupted apply must be retryable", err)
		}
		return err
	})
}

func cancelledReading(r *run) {
	r.cancelled(func(ctx context.Context) error {
		_, err := r.Observe(ctx, r.request("staging", "v1"))
		return err
	})
}

func (r *run) cancelled(call func(context.Context) error) {
	if r.Hang == nil {
		r.Skip("calls cannot be made to hang here")
	}
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	r.Hang(cancel)
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	select {
	case err := <-done:
		if err == nil {
			r.Error("no error although it was interrupted")
		}
	case <-r.ctx.Done():
		r.Error("continues although its context ended")
	}
}

func endedContext(r *run) {
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	if _, err := r.Apply(ctx, r.request("staging", "v1")); err == nil {
		r.Error("applied")
	}
	if _, err := r.Observe(ctx, r.request("staging", "")); err == nil {
		r.Error("observed")
	}
	if remover, ok := r.Runtime.(runtimes.Remover); ok && remover.Remove(ctx, r.request("staging", "v1")) == nil {
		r.Error("removed")
	}
	if stable(r.observe("staging", ""), "v1") {
		r.Error("v1 runs")
	}
}

// remover is the subject as a runtimes.Remover (A24). It skips the test if the subject is none.
func (r *run) remover() runtimes.Remover {
	r.Helper()
	remover, ok := r.Runtime.(runtimes.Remover)
	if !ok {
		r.Skip("nothing can be removed here")
	}
	return remover
}

func (r *run) remove(version string) {
	r.Helper()
	if err := r.remover().Remove(r.ctx, r.request("staging", version)); err != nil {
		r.Fatalf("remove %s: %v", version, err)
	}
}

func removedIsGone(r *run) {
	r.remover()
	r.applyAndWait("staging", "v1")
	r.remove("v1")
	r.waitEmpty("staging")
	r.remove("v1")
	r.waitEmpty("staging")
}

// waitEmpty observes until no version is active: a watch may lag behind for a moment.
func (r *run) waitEmpty(channel string) {
	r.Helper()
	for active := true; active; {
		active = false
		for _, o := range r.observe(channel, "") {
			for _, v := range o.Versions {
				active = active || v.Active
			}
		}
		if active && r.ctx.Err() != nil {
			r.Fatalf("something is still active in %s", channel)
		}
	}
}

func removedNothing(r *run) {
	r.remove("v1")
	r.remove("")
	nothingActive(r)
}

func removalIsolated(r *run) {
	r.remover()
	for _, channel := range []string{"staging", "production"} {
		r.applyAndWait(channel, "v1")
	}
	r.remove("v1")
	if objects := r.observe("production", "v1"); !stable(objects, "v1") {
		r.Errorf("production changed: %+v", objects)
	}
}

func removedCanReturn(r *run) {
	r.remover()
	r.applyAndWait("staging", "v1")
	r.remove("v1")
	r.applyAndWait("staging", "v1")
}

func cancelledRemoval(r *run) {
	remover := r.remover()
	r.cancelled(func(ctx context.Context) error {
		err := remover.Remove(ctx, r.request("staging", "v1"))
		if runtimes.IsPermanent(err) {
			r.Errorf("%v is permanent; an interrupted removal must be retryable", err)
		}
		return err
	})
}
