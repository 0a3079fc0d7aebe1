package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/loop"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/tests/bench/report"
)

const (
	decisionServices = 10000
	decisionChannels = 3
	longChannels     = 500
	goalDecision     = 50 * time.Millisecond
	repetitions      = 15
	longRepetitions  = 3
)

var dawn = time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)

// measureDecision times the core alone: no Temporal, no store, one goroutine. It takes CPU time, so
// that what else the machine does and what the collector does on other cores both count as they
// should.
func measureDecision(ctx context.Context, b *bench) error {
	steady := make([]*state.State, decisionServices)
	waiting := make([]*state.State, decisionServices)
	guarded := make([]*state.State, decisionServices)
	blocked := make([]*state.State, decisionServices)
	for n := range steady {
		steady[n] = settled(fmt.Sprintf("s%d", n), chain(decisionChannels))
		waiting[n] = settled(fmt.Sprintf("s%d", n), chain(decisionChannels))
		open(waiting[n], "v2", dawn.Add(time.Hour))
		loop.Settle(waiting[n], dawn.Add(time.Hour), decide.Mode{}) // an apply runs, two channels wait
		guarded[n], blocked[n] = guard(settled(fmt.Sprintf("s%d", n), chain(decisionChannels))), guard(settled(fmt.Sprintf("s%d", n), chain(decisionChannels)))
		open(blocked[n], "v2", dawn.Add(time.Hour))
		loop.Settle(blocked[n], dawn.Add(time.Hour), decide.Mode{}) // no check has been evaluated
	}
	instances := decisionServices * decisionChannels
	for _, c := range []struct {
		what   string
		states []*state.State
		goal   *report.Value
	}{
		{fmt.Sprintf("decide %d instances at rest", instances), steady, report.Ref(report.Dur(goalDecision))},
		{fmt.Sprintf("decide %d, a release on its way in each service", instances), waiting, nil},
		{fmt.Sprintf("decide %d at rest, %d protections and an approval in each channel", instances, manyProtections), guarded, report.Ref(report.Dur(goalDecision))},
		{"the same, a release waiting for its protections in each service", blocked, nil},
	} {
		times, err := repeat(ctx, repetitions, func() { decideAll(c.states) })
		if err != nil {
			return err
		}
		b.Add(report.Line{
			Row: b.row, What: c.what, Measured: report.Dur(report.Median(times)), Goal: c.goal,
			Spread: fmt.Sprintf("%s an instance", report.Dur(report.Median(times)/time.Duration(instances))),
		})
	}
	return measureLong(ctx, b)
}

// measureLong times whole releases through many channels: every decision is about all of them.
func measureLong(ctx context.Context, b *bench) error {
	for _, c := range []struct {
		what  string
		shape shape
	}{
		{"a release through 500 channels, one after the other", chain(longChannels)},
		{"a release to one channel, then to 499 at once", star(longChannels)},
		{"a release to one channel of 500 instances", wide(longChannels)},
	} {
		decisions := 0
		times, err := repeat(ctx, longRepetitions, func() { decisions = play(c.shape) })
		if err != nil {
			return err
		}
		b.Add(report.Line{
			Row: b.row, What: c.what, Measured: report.Dur(report.Median(times)),
			Spread: fmt.Sprintf("%d decisions, %s each", decisions, report.Dur(report.Median(times)/time.Duration(decisions))),
		})
	}
	return nil
}

// repeat returns the CPU time of each repetition.
func repeat(ctx context.Context, times int, f func()) ([]time.Duration, error) {
	var out []time.Duration
	for range times {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		runtime.GC() // the garbage of the last repetition is none of this one's
		before := used().CPU
		f()
		out = append(out, used().CPU-before)
	}
	return out, nil
}

func decideAll(states []*state.State) {
	now := dawn.Add(2 * time.Hour)
	for _, s := range states {
		if d := decide.Decide(s, now, decide.Mode{}); len(d.Channels) != decisionChannels {
			panic(fmt.Sprintf("a decision about %d channels", len(d.Channels))) // a mistake of this program
		}
	}
}

// shape is how channels depend on each other.
type shape struct {
	channels  int
	instances int                  // of each channel
	after     func(n int) []string // of channel n, from 1
}

// instances of one channel: the only one, or a fleet.
func instances(n int) []entities.InstanceSpec {
	out := []entities.InstanceSpec{{Name: entities.OnlyInstance, Runtime: "rt", Template: "t"}}
	for len(out) < n {
		out = append(out, entities.InstanceSpec{Name: fmt.Sprintf("i%d", len(out)), Runtime: "rt", Template: "t"})
	}
	return out
}

// wide is one channel of so many instances.
func wide(n int) shape {
	return shape{1, n, func(int) []string { return nil }}
}

func chain(n int) shape {
	return shape{n, 1, func(n int) []string {
		if n == 1 {
			return nil
		}
		return []string{channel(n - 1)}
	}}
}

func star(n int) shape {
	return shape{n, 1, func(n int) []string {
		if n == 1 {
			return nil
		}
		return []string{channel(1)}
	}}
}

// spec is a service in channels of that shape.
func (s shape) spec(service string) *entities.Spec {
	spec := &entities.Spec{
		Application: "bench", Service: service, ServiceID: "bench/" + service, Incarnation: 1,
		ConfigChanges: entities.ConfigRelease, ProgressDeadline: 10 * time.Minute,
		Runtimes: map[string]*entities.RuntimeSpec{"rt": {
			Kind: entities.RuntimeFake, Mode: entities.FetchStructured, Observable: true, Timing: entities.RuntimeTiming{
				PollInterval: 5 * time.Second, SteadyPollInterval: 5 * time.Minute, GracePeriod: 10 * time.Minute,
				ApplyTimeout: 10 * time.Minute, FetchTimeout: 30 * time.Second,
				MaxAttempts: 5, RetryBackoff: 10 * time.Second, RetryMax: 5 * time.Minute,
			},
		}},
	}
	for n := 1; n <= s.channels; n++ {
		c := entities.ChannelSpec{
			Name: channel(n), Instances: instances(s.instances), Drift: entities.DriftEnforce, ProgressDeadline: 10 * time.Minute,
		}
		if after := s.after(n); after != nil {
			c.Conditions = []entities.Condition{{ID: "channel-stable/" + after[0], Kind: entities.ChannelStable, Channels: after}}
		}
		spec.Channels = append(spec.Channels, c)
	}
	return spec
}

// settled is a service that has converged at v1 everywhere.
func settled(service string, s shape) *state.State {
	of := state.New("bench", service)
	of.ApplySpec(s.spec(service), "spec", dawn)
	open(of, "v1", dawn)
	obey(of)
	return of
}

// guard declares protections and an approval in every channel.
func guard(s *state.State) *state.State {
	for i := range s.Spec.Channels {
		c := &s.Spec.Channels[i]
		for n := range manyProtections {
			c.Checks = append(c.Checks, entities.Check{
				ID: fmt.Sprintf("p%d", n), Kind: entities.CheckHTTP, Definition: "d", Interval: time.Minute,
				At: []entities.CheckAt{{Stage: entities.PreApproval}},
			})
		}
		c.Conditions = append(c.Conditions, entities.Condition{ID: "approval/" + c.Name, Kind: entities.ManualApproval, Topic: c.Name, MinApprovers: 1})
	}
	return s
}

// play takes a release through all channels of a service, and counts the decisions.
func play(s shape) int {
	of := state.New("bench", "web")
	of.ApplySpec(s.spec("web"), "spec", dawn)
	open(of, "v1", dawn)
	return obey(of)
}

func open(s *state.State, version string, now time.Time) {
	payloads := map[entities.InstanceID]string{}
	for _, id := range s.Spec.IDs() {
		payloads[id] = "payload-" + version
	}
	s.OpenRelease(state.NewRelease{Version: version, FullVersion: version, Incarnation: 1, Payloads: payloads, By: "bench"}, now)
}

// obey plays a runtime that applies what it is given at once, one apply for each decision, as it would be on
// Temporal, and returns the number of decisions.
func obey(s *state.State) int {
	now, decisions := dawn, 0
	var running []state.ApplyOp
	for _, id := range s.Spec.IDs() {
		s.RecordReading(id, "", entities.Reading{At: now}, true, now)
	}
	for {
		now, decisions = now.Add(time.Second), decisions+1
		running = append(running, loop.Settle(s, now, decide.Mode{}).Applies...)
		if len(running) == 0 {
			return decisions
		}
		op := running[0]
		running = running[1:]
		s.ApplyEnded(op.Instance, op.Target, "", false, now)
		s.RecordReading(op.Instance, op.Target.FullVersion, entities.Reading{At: now, Objects: []entities.Object{{
			Name: s.Service, Type: "fake", Status: entities.ObjectSucceeded,
			Versions: []entities.ObjectVersion{{Version: op.Target.FullVersion, Active: true, Replicas: 1, AvailableReplicas: 1, TargetReplicas: 1}},
		}}}, true, now)
	}
}
