package activities

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/loop"
	"github.com/converge-engine/converge/entities/state"
)

// backoffKinds are all kinds of check that a channel may have. A selection is no gate.
func backoffKinds() []entities.CheckKind {
	return []entities.CheckKind{
		entities.CheckAllowedTimes, entities.CheckDeniedVersions, entities.CheckDeniedCommits, entities.CheckPrometheus, entities.CheckAlertmanager,
		entities.CheckHTTP, entities.CheckCommand, entities.CheckJob, entities.CheckTask, entities.CheckCapacity, entities.CheckCEL, entities.CheckCompare,
		entities.CheckAlways, entities.CheckServiceStable, entities.CheckVersionOrder, entities.CheckStaticOrder, entities.CheckCapacityOrder,
		entities.CheckConfigRollout, entities.CheckPlan,
	}
}

// hourOfErrors is an hour in which a check cannot be evaluated, in virtual time: the decisions, and the activities that evaluate checks.
type hourOfErrors struct {
	t       *testing.T
	s       *state.State
	cache   scheduleCache
	workers int       // how many take turns; only the first one keeps schedules
	stable  bool      // the objects become stable
	broken  time.Time // when the check cannot be evaluated any more
	errors  []time.Time
	turn    int
}

// evaluate is an ERROR of the check, and news of another one each minute.
func (h *hourOfErrors) evaluate(_ context.Context, e entities.Evaluation) entities.CheckReading {
	now := time.Now()
	switch {
	case e.Channel == "noise":
		return entities.CheckReading{Verdict: []entities.Verdict{entities.Wait, entities.Fail}[now.Minute()%2], At: now}
	case now.Before(h.broken):
		return entities.CheckReading{Verdict: entities.Pass, At: now}
	}
	h.errors = append(h.errors, now)
	return entities.CheckReading{Verdict: entities.Error, Reason: "connection refused", At: now}
}

// settle decides, and does at once what takes no time: applies, and the preflights.
func (h *hourOfErrors) settle() *decide.Decision {
	for {
		now := time.Now()
		d := loop.Settle(h.s, now, decide.Mode{})
		for _, op := range d.Applies {
			h.s.ApplyEnded(op.Instance, op.Target, "", false, now)
			h.observe(op.Instance, op.Target.FullVersion)
		}
		for _, op := range d.Preflights {
			readings := map[string]entities.CheckReading{}
			for _, e := range op.Checks {
				readings[e.Key()] = h.evaluate(h.t.Context(), e)
			}
			h.s.RecordPreflight(op, readings, now)
		}
		if len(d.Applies)+len(d.Preflights) == 0 {
			return d
		}
	}
}

func (h *hourOfErrors) observe(id entities.InstanceID, version string) {
	status := entities.ObjectPending
	if h.stable {
		status = entities.ObjectSucceeded
	}
	o := entities.Object{Name: "web", Type: "x", Status: status, Versions: []entities.ObjectVersion{{Version: version, Active: true}}}
	h.s.RecordReading(id, version, entities.Reading{At: time.Now(), Objects: []entities.Object{o}}, true, time.Now())
}

// step evaluates the checks that are needed, as the activity does, until there is news, the next check or the next decision is due.
func (h *hourOfErrors) step() {
	d := h.settle()
	all := d.Evaluations(h.s)
	schedule := &schedule{spreadKey: "web"}
	if h.turn++; h.turn%h.workers == 0 {
		h.cache.restore("web", all, schedule, time.Now())
	}
	require.NotEmpty(h.t, all, d.String())
	for {
		news := evaluateAll(h.t.Context(), all, schedule, h.evaluate)
		if len(news) > 0 {
			h.cache.save("web", all, schedule, time.Now())
			for _, e := range all {
				if reading, is := news[e.Key()]; is {
					h.s.RecordCheck(e, reading, time.Now())
				}
			}
			return
		}
		next := schedule.next(all)
		if !d.Wake.IsZero() && d.Wake.Before(next) {
			time.Sleep(max(time.Until(d.Wake), 0))
			if d = h.settle(); covered(all, d.Evaluations(h.s)) {
				continue // the activity goes on
			}
			h.cache.save("web", all, schedule, time.Now())
			return
		}
		time.Sleep(max(time.Until(next), time.Second))
	}
}

// covered reports whether an activity evaluates what is needed, as the workflow judges it.
func covered(all, needed []entities.Evaluation) bool {
	return !slices.ContainsFunc(needed, func(n entities.Evaluation) bool {
		return !slices.ContainsFunc(all, func(e entities.Evaluation) bool {
			return e.KnownDigest == n.KnownDigest && e.WithoutResult() == n.WithoutResult()
		})
	})
}

// backoffSpec has a channel with the check, and another whose check has news each minute.
func backoffSpec(check entities.Check) *entities.Spec {
	instances := []entities.InstanceSpec{{Name: entities.OnlyInstance, Runtime: "edge", Template: "t"}}
	noise := entities.Check{ID: "noise", Kind: entities.CheckHTTP, Definition: "n", Interval: time.Minute, At: []entities.CheckAt{{Stage: entities.PreApproval}}}
	channel := func(name string, c entities.Check) entities.ChannelSpec {
		return entities.ChannelSpec{Name: name, Instances: instances, Drift: entities.DriftEnforce, ProgressDeadline: 100 * time.Hour, Checks: []entities.Check{c}}
	}
	return &entities.Spec{
		Application: "shop", Service: "web", Incarnation: 1, ProgressDeadline: 100 * time.Hour,
		Channels: []entities.ChannelSpec{channel("prod", check), channel("noise", noise)},
		Runtimes: map[string]*entities.RuntimeSpec{"edge": {Kind: entities.RuntimeFake, Mode: entities.FetchStructured, Observable: true, Timing: entities.RuntimeTiming{
			PollInterval: time.Second, ApplyTimeout: time.Minute, FetchTimeout: time.Minute, MaxAttempts: 3, GracePeriod: time.Minute,
		}}},
	}
}

// documented is how many evaluations an hour of errors has at most: the first one, then after the interval, each further time after twice the
// time, up to five minutes; a tenth earlier, so that services that started together do not query together.
func documented(interval time.Duration) (n int) {
	if interval == 0 {
		interval = 30 * time.Second
	}
	for at, wait := time.Duration(0), interval; at <= time.Hour; n++ {
		at += wait * 9 / 10
		wait = min(2*wait, max(5*time.Minute, interval))
	}
	return n
}

// In an hour in which a check cannot be evaluated, it is evaluated no more often than the documented backoff gives: for every kind of check,
// at every place in the life of a release, however many workers take turns, and while another check has news each minute. The short form has
// a quarter of that: the race detector of Go 1.26 now and then ends the program after thousands of bubbles (tsan_rtl.cpp:346).
func TestAnHourOfErrorsHasTheDocumentedReadings_D16(t *testing.T) {
	window := func(stage entities.Stage, d time.Duration) entities.CheckAt {
		return entities.CheckAt{Stage: stage, For: d}
	}
	for name, at := range map[string]entities.CheckAt{
		"preApproval": {Stage: entities.PreApproval}, "postApproval": {Stage: entities.PostApproval},
		"deployment": {Stage: entities.Deployment, Fails: true}, "postDeployment": window(entities.PostDeployment, 10*time.Minute),
		"a short window": window(entities.PostDeployment, time.Second), "a window without length": window(entities.PostDeployment, 0),
		"postcondition": window(entities.Postcondition, 10*time.Minute),
	} {
		for _, interval := range []time.Duration{0, time.Second, 10 * time.Minute} {
			for _, workers := range []int{1, 3} {
				if testing.Short() && (workers == 1 || interval == time.Second || at.Stage == entities.PostDeployment && at.For < time.Minute) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d workers", name, interval, workers), func(t *testing.T) {
					for _, kind := range backoffKinds() {
						synctest.Test(t, func(t *testing.T) {
							n := countErrors(t, entities.Check{ID: "c", Kind: kind, Definition: "d", Interval: interval, At: []entities.CheckAt{at}}, workers)
							require.Positive(t, n, kind)
							require.LessOrEqual(t, n, documented(interval), kind)
						})
					}
				})
			}
		}
	}
}

// countErrors returns how often a check is evaluated in an hour in which it is always an ERROR, from its first evaluation in that stage on.
func countErrors(t *testing.T, check entities.Check, workers int) int {
	began := time.Now()
	h := &hourOfErrors{t: t, s: state.New("shop", "web"), workers: workers, stable: check.At[0].Stage != entities.Deployment, broken: began}
	if !h.stable {
		h.broken = began.Add(2 * time.Second) // the release enters before
	}
	h.s.Spec = backoffSpec(check)
	payloads := map[entities.InstanceID]string{}
	for _, id := range h.s.Spec.IDs() {
		payloads[id] = "p"
	}
	h.s.OpenRelease(state.NewRelease{Version: "v1", FullVersion: "v1", Incarnation: 1, Payloads: payloads, By: "test"}, began)
	for _, id := range h.s.Spec.IDs() {
		h.s.Instance(id)
		h.s.RecordReading(id, "", entities.Reading{At: began}, true, began)
	}
	for len(h.errors) == 0 || time.Since(h.errors[0]) <= time.Hour {
		require.Less(t, time.Since(began), 3*time.Hour)
		require.Less(t, h.turn, 1000, "%s %v", time.Since(began), h.errors)
		h.step()
	}
	n := 0
	for _, at := range h.errors {
		if !at.After(h.errors[0].Add(time.Hour)) {
			n++
		}
	}
	return n
}
