// Package runtimetest has the contract of all runtimes, as tests. A runtime joins with a Harness of about thirty lines. Each promise
// in the comments of runtimes.Runtime is then checked against it, on fresh state: see tests/fakeruntime and runtimes/custom.
//
// It may import entities and runtimes.
package runtimetest

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// Harness makes the subjects of the tests.
type Harness struct {
	// New makes a runtime on which nothing runs. It is called once per test.
	New func(t *testing.T) Subject
	// Timeout is the timeout of one promise; default 1 min.
	Timeout time.Duration
}

// Subject is one runtime, with the hooks that tests need to control it. A nil hook skips the tests that need it.
type Subject struct {
	runtimes.Runtime
	// Application is that of the service, the owner of the runtime; default "demo".
	Application string
	// Payload adds the fields that this runtime needs to run something small; default: none.
	Payload func(*entities.Payload)
	// Changes counts the real changes in a channel so far.
	Changes func(channel string) int
	// FailApply makes the next apply fail.
	FailApply func(permanent bool)
	// FailReading makes the next reading fail.
	FailReading func()
	// Hang makes applies and readings continue until their context ends, and calls arrived when one has started.
	Hang func(arrived func())
	// Fleet: the runtime can distinguish the instances of one channel.
	Fleet bool
}

// Run checks every promise, each in its own subtest.
func Run(t *testing.T, h Harness) {
	if h.Timeout == 0 {
		h.Timeout = time.Minute
	}
	for _, promise := range promises {
		t.Run(promise.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), h.Timeout)
			defer cancel()
			promise.check(&run{T: t, Subject: h.New(t), ctx: ctx})
		})
	}
}

var promises = []struct {
	name  string
	check func(*run)
}{
	{"no version is active before the first apply", nothingActive},
	{"an applied version becomes the active one, and stable", appliedIsStable},
	{"a repeated apply changes nothing", repeatedApplyChangesNothing},
	{"a new version leaves exactly one active", newReplacesOld},
	{"an old version can be applied again", oldCanReturn},
	{"channels do not affect each other", channelsIsolated},
	{"instances of a channel do not affect each other", instancesIsolated},
	{"readings without changes are equal", readingsEqual},
	{"readings may run at the same time", concurrentReadings},
	{"applies to different instances may run at the same time", concurrentApplies},
	{"a failed apply changes nothing, and can be repeated", failedApply},
	{"a permanent failure is marked as permanent", permanentFailure},
	{"a failed reading returns only an error", failedReading},
	{"an apply returns when its context ends", cancelledApply},
	{"a reading returns when its context ends", cancelledReading},
	{"a removal is complete, and repeating it is no error", removedIsGone},
	{"removing without an apply is no error", removedNothing},
	{"a removal affects no other channel", removalIsolated},
	{"a removed version can be applied again", removedCanReturn},
	{"a removal returns when its context ends", cancelledRemoval},
	{"nothing starts with an ended context", endedContext},
}

// run is the check of one promise.
type run struct {
	*testing.T
	Subject
	ctx context.Context
}

// request is an instance ("staging", "staging/eu") at a version; no version is the state before the first apply.
func (r *run) request(instance, version string) runtimes.Request {
	id := entities.Only(instance)
	if channel, name, fleet := strings.Cut(instance, "/"); fleet {
		id = entities.InstanceID{Channel: channel, Name: name}
	}
	application := cmp.Or(r.Application, "demo")
	in := runtimes.Request{Owner: runtimes.Owner{Application: application, Service: "web", ID: id}, ServiceID: "id-1"}
	if version == "" {
		return in
	}
	in.FullVersion, in.Key = version, in.Owner.Key()+"/"+version
	in.Payload = &entities.Payload{Application: application, Service: "web", Channel: id.Channel, Runtime: "here"}
	if r.Payload != nil {
		r.Payload(in.Payload)
	}
	return in
}

func (r *run) apply(instance, version string) {
	r.Helper()
	if _, err := r.Apply(r.ctx, r.request(instance, version)); err != nil {
		r.Fatalf("apply %s to %s: %v", version, instance, err)
	}
}

func (r *run) observe(instance, version string) []entities.Object {
	r.Helper()
	objects, err := r.Observe(r.ctx, r.request(instance, version))
	if err != nil {
		r.Fatalf("observe %s: %v", instance, err)
	}
	return objects
}

// waitStable observes until the instance is stable at the version, as C5 defines it.
func (r *run) waitStable(instance, version string) []entities.Object {
	r.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		objects := r.observe(instance, version)
		if stable(objects, version) {
			return objects
		}
		select {
		case <-ticker.C:
		case <-r.ctx.Done():
			r.Fatalf("%s is not stable at %s: %+v", instance, version, objects)
		}
	}
}

// applyAndWait applies, and observes until the change shows.
func (r *run) applyAndWait(instance, version string) []entities.Object {
	r.Helper()
	r.apply(instance, version)
	return r.waitStable(instance, version)
}

func stable(objects []entities.Object, version string) bool {
	return entities.FetchObjects(objects, &entities.Target{FullVersion: version}).Stable
}

func digest(objects []entities.Object) string { return entities.Reading{Objects: objects}.Digest() }
