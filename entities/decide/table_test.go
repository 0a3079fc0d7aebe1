package decide

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// flag is a kind of entity that no other code knows: a feature flag that follows the version.
type flag struct{ *state.Instance }

func (f flag) at() string {
	if len(f.Observed.Reading.Objects) == 0 {
		return "off"
	}
	return f.Observed.Reading.Objects[0].Message
}

func (f flag) Fetch(target *entities.Target) entities.Current {
	return entities.Current{Known: true, Active: []string{f.at()}, Stable: target != nil && f.at() == target.FullVersion}
}

func (f flag) HasWork(target *entities.Target, current entities.Current) (bool, string) {
	return target != nil && !current.Stable, "flag is at " + entities.ShownVersions(current.Active)
}

// A new kind of gate and a new kind of entity are one row each: the decision handles both without a change.
func TestNewKindsByTheTable_A6(t *testing.T) {
	moon := "waning"
	toy := gate{
		kind: "moon", id: "moon", at: []entities.Stage{entities.PostApproval}, bypassable: true,
		judge: func(p *admission, _ entities.Stage) {
			j := Judgement{Kind: "moon", ID: "moon", Verdict: entities.Wait, Reason: "the moon is " + moon}
			if moon == "full" {
				j.Verdict = entities.Pass
			}
			p.add(j)
		},
		unblock: func(*view, *Judgement, *state.Release) string { return "wait for the moon" },
	}
	kinds := newTables(append(slices.Clone(gates[:]), toy),
		append(slices.Clone(standard.entities), entityKind{"flags", func(i *state.Instance) entities.Entity { return flag{i} }}))
	s := serviceOn("flags")
	settle := func() (all []state.ApplyOp, d *Decision) {
		for {
			d = kinds.decide(s, noon, Mode{})
			s.Commit(d.Changes, &d.Work, noon)
			all = append(all, d.Applies...)
			if !d.HasEffects() {
				return all, d
			}
		}
	}

	applies, d := settle()
	require.Empty(t, applies)
	require.Equal(t, "prod WAITING_PRECONDITIONS: moon: the moon is waning\n  WAIT moon: the moon is waning\n", d.String())
	require.Equal(t, "wait for the moon", d.Channels[0].Gates[0].Unblock)

	moon = "full"
	applies, d = settle()
	require.Len(t, applies, 1)
	require.Equal(t, "flag is at off", applies[0].Cause)
	require.Equal(t, entities.StatusConverging, d.Channels[0].Status)

	s.ApplyEnded(entities.Only("prod"), applies[0].Target, "", false, noon)
	s.RecordReading(entities.Only("prod"), "v1", entities.Reading{At: noon, Objects: []entities.Object{{Name: "checkout", Message: "v1"}}}, true, noon)
	_, d = settle()
	require.Equal(t, entities.StatusConverged, d.Channels[0].Status)
	require.Equal(t, []string{"v1"}, d.Channels[0].Current.Active)
}

// An apply is the last one if no time is left for another when it times out.
func TestLastApplyAttempt_H6(t *testing.T) {
	for deadline, want := range map[time.Duration]state.ApplyOp{
		2 * time.Minute: {Timeout: time.Minute}, time.Minute: {Timeout: time.Minute, Last: true}, time.Second: {Timeout: time.Second, Last: true},
	} {
		s := serviceOn(entities.RuntimeKubernetes)
		s.Spec.Channels[0].ProgressDeadline = deadline
		var applies []state.ApplyOp
		for d := Decide(s, noon, Mode{}); d.HasEffects(); d = Decide(s, noon, Mode{}) {
			s.Commit(d.Changes, &d.Work, noon)
			applies = append(applies, d.Applies...)
		}
		require.Len(t, applies, 1)
		require.Equal(t, want, state.ApplyOp{Timeout: applies[0].Timeout, Last: applies[0].Last}, deadline)
	}
}

// The health of a channel is computed once, even if many releases wait for it.
func TestHealthIsComputedOnce_A8(t *testing.T) {
	computed := 0
	kinds := newTables(gates[:], []entityKind{{"", func(i *state.Instance) entities.Entity {
		computed++
		return serviceInstance{i}
	}}})
	of := func(waiting int) int {
		s := serviceOn("")
		s.Releases = nil
		canary := s.Spec.Channels[0]
		canary.Name = "canary"
		s.Spec.Channels = append([]entities.ChannelSpec{canary}, s.Spec.Channels...)
		s.Spec.Channels[1].Conditions = []entities.Condition{{ID: "channel-stable/canary", Kind: entities.ChannelHealthy, Channels: []string{"canary"}}}
		s.Spec.Maestro.Strategy = string(maestro.Latest)
		for n := range waiting {
			version := fmt.Sprint("w", n)
			r := s.OpenRelease(state.NewRelease{Version: version, FullVersion: version, By: "alice", Payloads: map[entities.InstanceID]string{entities.Only("prod"): "p"}}, noon)
			r.Phases["canary"] = &state.PhaseState{Phase: maestro.Succeeded, Since: noon}
		}
		computed = 0
		require.Contains(t, kinds.decide(s, noon, Mode{}).String(), ", but canary is UNKNOWN now")
		return computed
	}
	require.Equal(t, of(2), of(200))
}

// serviceOn is a service with one channel on a kind of runtime, with a waiting release.
func serviceOn(kind entities.RuntimeKind) *state.State {
	s := state.New("shop", "web")
	s.ApplySpec(&entities.Spec{
		Application: "shop", Service: "web", Incarnation: 1,
		Channels: []entities.ChannelSpec{{
			Name: "prod", ProgressDeadline: time.Hour, Instances: []entities.InstanceSpec{{Name: entities.OnlyInstance, Runtime: "rt"}},
		}},
		Runtimes: map[string]*entities.RuntimeSpec{"rt": {Kind: kind, Observable: true, Timing: entities.RuntimeTiming{MaxAttempts: 2, ApplyTimeout: time.Minute}}},
	}, "d", noon)
	s.RecordReading(entities.Only("prod"), "", entities.Reading{At: noon}, true, noon)
	s.OpenRelease(state.NewRelease{Version: "v1", FullVersion: "v1", By: "alice", Payloads: map[entities.InstanceID]string{entities.Only("prod"): "p"}}, noon)
	return s
}

// Orphaned objects are shown, and do not affect the status of the declared ones.
func TestOrphanedObjectsDoNotCount_D10(t *testing.T) {
	orphaned := entities.Object{Name: "old", Type: "ConfigMap", Status: entities.ObjectPending, Orphaned: true, Versions: []entities.ObjectVersion{{Version: "v1", Active: true, Drifted: true}}}
	web := entities.Object{Name: "web", Type: "Deployment", Status: entities.ObjectSucceeded, Versions: []entities.ObjectVersion{{Version: "v2", Active: true}}}
	fetch := func(objects ...entities.Object) entities.Current {
		i := state.Instance{Observed: state.Observation{Reading: entities.Reading{Objects: objects}, Digest: "seen", Fresh: true}}
		return serviceInstance{&i}.Fetch(&entities.Target{FullVersion: "v2"})
	}
	require.Equal(t, entities.Current{Known: true, Stable: true, Active: []string{"v2"}}, fetch(orphaned, web))
	require.Equal(t, entities.Current{Known: true, Reason: "nothing is running"}, fetch(orphaned), "an orphaned object is not the target")
	require.NotEqual(t, entities.Reading{Objects: []entities.Object{orphaned, web}}.Digest(), entities.Reading{Objects: []entities.Object{web}}.Digest(), "an orphaned object changes the digest")
}

// A preflight is valid for its moment, for the checks that it read, and only if all of them passed.
func TestPreflightValidity_A10(t *testing.T) {
	op := state.PreflightOp{Channel: "prod", Release: "1", Checks: []entities.Evaluation{{ID: "slo", Definition: "d1"}}}
	passed := state.Preflight{Release: "1", Done: noon, Evaluated: []string{"slo@d1"}}
	require.True(t, covers(&passed, op, noon))
	for name, change := range map[string]func(*state.Preflight){
		"it runs":         func(p *state.Preflight) { p.Running = true },
		"it did not pass": func(p *state.Preflight) { p.Next = noon.Add(10 * time.Second) },
		"it is too old":   func(p *state.Preflight) { p.Done = noon.Add(-time.Minute) },
		"of other rules":  func(p *state.Preflight) { p.Evaluated = []string{"slo@d0"} },
	} {
		p := passed
		change(&p)
		require.False(t, covers(&p, op, noon), name)
	}
}
