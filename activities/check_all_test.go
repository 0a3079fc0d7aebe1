package activities

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
)

// fakeChecks simulates checks in virtual time: the result of each check, and the times of its evaluations.
type fakeChecks struct {
	mu          sync.Mutex
	results     map[string]func(context.Context) entities.CheckReading
	evaluations map[string][]time.Duration // since the start
	start       time.Time
}

func newFakeChecks() *fakeChecks {
	return &fakeChecks{results: map[string]func(context.Context) entities.CheckReading{}, evaluations: map[string][]time.Duration{}, start: time.Now()}
}

func (j *fakeChecks) evaluate(ctx context.Context, e entities.Evaluation) entities.CheckReading {
	j.mu.Lock()
	j.evaluations[e.ID] = append(j.evaluations[e.ID], time.Since(j.start).Round(time.Second))
	result := j.results[e.ID]
	j.mu.Unlock()
	return result(ctx)
}

func (j *fakeChecks) setVerdict(id string, v entities.Verdict) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.results[id] = func(context.Context) entities.CheckReading { return entities.CheckReading{Verdict: v} }
}

func (j *fakeChecks) setHanging(id string, d time.Duration, v entities.Verdict) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.results[id] = func(ctx context.Context) entities.CheckReading {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		return entities.CheckReading{Verdict: v}
	}
}

func evaluationOf(id string, known entities.Verdict, interval time.Duration) entities.Evaluation {
	return entities.Evaluation{
		Channel: "prod", ID: id, Kind: entities.CheckHTTP, Release: "r1", Interval: interval,
		KnownDigest: entities.CheckReading{Verdict: known}.Digest(),
	}
}

// Every check is evaluated at once and then at its own interval. An unchanged reading is not news.
func TestChecksHaveTheirOwnIntervals_A7(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFakeChecks()
		j.setVerdict("fast", entities.Wait)
		j.setVerdict("slow", entities.Wait)
		all := []entities.Evaluation{evaluationOf("fast", entities.Wait, 10*time.Second), evaluationOf("slow", entities.Wait, 25*time.Second)}
		s := &schedule{}
		for range 4 { // attempts of one activity
			require.Empty(t, evaluateAll(t.Context(), all, s, j.evaluate))
			time.Sleep(time.Until(s.next(all))) // virtual: the server's delay
		}
		require.Len(t, j.evaluations["fast"], 3)
		require.Len(t, j.evaluations["slow"], 2)
		require.Less(t, j.evaluations["fast"][2], 23*time.Second)
		require.Empty(t, evaluateAll(t.Context(), all, &schedule{backoffs: map[string]checkBackoff{
			"prod/fast": {Next: time.Now().Add(time.Minute)}, "prod/slow": {Next: time.Now().Add(time.Minute)},
		}}, j.evaluate))
		require.Len(t, j.evaluations["fast"], 3, "none is due")
	})
}

// A hung check does not delay the news of others. The others continue at their own intervals.
func TestHungCheckDoesNotDelayOthers_A7(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFakeChecks()
		j.setHanging("job", 5*time.Minute, entities.Wait)
		j.setVerdict("http", entities.Wait)
		all := []entities.Evaluation{evaluationOf("job", entities.Wait, time.Minute), evaluationOf("http", entities.Wait, 10*time.Second)}
		go func() {
			time.Sleep(65 * time.Second)
			j.setVerdict("http", entities.Pass)
		}()
		news := evaluateAll(t.Context(), all, &schedule{}, j.evaluate)
		require.Equal(t, map[string]entities.CheckReading{"prod/http": {Verdict: entities.Pass}}, news)
		require.Less(t, time.Since(j.start), 90*time.Second)
		require.Greater(t, len(j.evaluations["http"]), 5)
		require.Len(t, j.evaluations["job"], 1)
	})
}

func TestNewsOfSeveralChecksIsGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFakeChecks()
		j.setVerdict("a", entities.Pass)
		j.setHanging("b", gatherTime/2, entities.Fail)
		j.setVerdict("same", entities.Pass)
		news := evaluateAll(t.Context(), []entities.Evaluation{
			evaluationOf("a", entities.Wait, time.Minute), evaluationOf("b", "", time.Minute), evaluationOf("same", entities.Pass, time.Minute),
		}, &schedule{}, j.evaluate)
		require.Equal(t, []string{"prod/a", "prod/b"}, slices.Sorted(maps.Keys(news)))
	})
}

// A check that cannot be evaluated backs off. It is evaluated at its interval again once it succeeds.
func TestErrorsBackOff_D16(t *testing.T) {
	s, e, now := &schedule{}, evaluationOf("q", entities.Error, 30*time.Second), time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	after := func(reading entities.CheckReading) time.Duration { return s.evaluated(e, reading, now).Sub(now) }
	broken := entities.CheckReading{Verdict: entities.Error}
	first := after(broken)
	require.InDelta(t, 30, first.Seconds(), 3)
	require.Equal(t, 2*first, after(broken))
	require.Equal(t, 4*first, after(broken))
	require.True(t, s.hasErrors())
	for range 100 {
		require.LessOrEqual(t, after(broken), 5*time.Minute+30*time.Second)
	}
	require.InDelta(t, 300, after(broken).Seconds(), 30)
	require.Equal(t, first, after(entities.CheckReading{Verdict: entities.Wait}))
	require.False(t, s.hasErrors())
	require.Equal(t, first, after(broken))

	e.Interval = time.Hour
	require.InDelta(t, time.Hour.Seconds(), after(broken).Seconds(), 360, "no earlier than its interval")
}

// A reading that sets the time of its next evaluation is evaluated then.
func TestRetryTimeOfAReadingIsUsed_D24(t *testing.T) {
	s, e, now := &schedule{}, evaluationOf("q", entities.Wait, 30*time.Second), time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	for _, at := range []time.Time{now.Add(time.Second), now.Add(time.Hour)} {
		require.Equal(t, at, s.evaluated(e, entities.CheckReading{Verdict: entities.Wait, Retry: at}, now))
	}
}

// A calendar is evaluated when it opens, and not again and again over a weekend.
func TestCalendarsAreEvaluatedWhenTheyOpen_A20(t *testing.T) {
	s, now := &schedule{}, time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	e := evaluationOf("office-hours", entities.Wait, 30*time.Second)
	e.Kind = entities.CheckAllowedTimes
	opens := now.Add(20 * time.Minute)
	require.Equal(t, opens, s.evaluated(e, entities.CheckReading{Verdict: entities.Wait, Next: opens}, now))
	require.InDelta(t, time.Hour.Seconds(), s.evaluated(e, entities.CheckReading{Verdict: entities.Wait, Next: now.Add(48 * time.Hour)}, now).Sub(now).Seconds(), 360)
	e.Kind = entities.CheckHTTP
	require.Equal(t, now.Add(time.Second), s.evaluated(e, entities.CheckReading{Verdict: entities.Wait, Next: now.Add(time.Second)}, now))
	require.InDelta(t, 30, s.evaluated(e, entities.CheckReading{Verdict: entities.Wait, Next: now.Add(-time.Second)}, now).Sub(now).Seconds(), 3, "already over")
}

func TestCheckThatIgnoresItsDeadlineIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		defer close(never)
		r := evaluateWithin(t.Context(), time.Second, func(context.Context) entities.CheckReading { <-never; return entities.CheckReading{} })
		require.Equal(t, entities.Error, r.Verdict)
		require.Equal(t, "no answer within 1s", r.Reason)
	})
}

// The first error is news, and so are the third in a row and each doubling after it, on any worker. Each report has the number of
// consecutive errors and the time of the next retry.
func TestConsecutiveErrorsAreReported_D16(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFakeChecks()
		j.setVerdict("q", entities.Error)
		e := evaluationOf("q", entities.Error, 10*time.Second)
		e.KnownDigest = ""
		all, s := []entities.Evaluation{e}, &schedule{}
		var news []int
		for tries := range 13 {
			for _, r := range evaluateAll(t.Context(), all, s, j.evaluate) {
				news = append(news, r.Errors)
				require.Equal(t, s.next(all), r.Retry)
				all[0].KnownDigest, all[0].Errors = r.Digest(), r.Errors
				if s = (&schedule{}); tries < 6 { // another worker continues, which has no schedule
					continue
				}
				s.backoffs = map[string]checkBackoff{"prod/q": {Next: r.Retry, Errors: r.Errors}}
			}
			time.Sleep(max(0, time.Until(s.next(all))))
		}
		require.Equal(t, []int{1, 3, 6, 12}, news)
	})
}

// Between two reports explain shows the time of the next retry.
func TestNextRetryBetweenReports_D16(t *testing.T) {
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	require.Equal(t, at, entities.NextRetry(30*time.Second, 3, at, at.Add(-time.Second)))
	require.Equal(t, at.Add(4*time.Minute), entities.NextRetry(30*time.Second, 3, at, at.Add(time.Second)), "after the fourth")
	require.Equal(t, at.Add(9*time.Minute), entities.NextRetry(30*time.Second, 3, at, at.Add(5*time.Minute)), "after the fifth, five minutes at most")
}

// A changed reason is news once, even if the verdict is the same.
func TestChangedReasonIsReportedOnce_A13(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, began := newFakeChecks(), time.Now()
		j.results["api"] = func(context.Context) entities.CheckReading {
			r := entities.CheckReading{Verdict: entities.Wait, Reason: "api is CONVERGING", At: time.Now()}
			if time.Since(began) > 50*time.Second {
				r.Reason = "api is DEGRADED"
			}
			return r
		}
		first := j.results["api"](t.Context())
		e := entities.Evaluation{
			Channel: "prod", ID: "api", Kind: entities.CheckServiceStable, Interval: 20 * time.Second,
			KnownDigest: first.Digest(), ReasonDigest: first.ReasonDigest(), ReasonAt: first.At,
		}
		var reported []time.Duration
		s := &schedule{}
		for time.Since(began) < 5*time.Minute {
			for _, r := range evaluateAll(t.Context(), []entities.Evaluation{e}, s, j.evaluate) {
				reported = append(reported, time.Since(began).Round(20*time.Second))
				e.ReasonDigest, e.ReasonAt = r.ReasonDigest(), r.At
			}
			time.Sleep(max(time.Until(s.next([]entities.Evaluation{e})), time.Second))
		}
		require.Equal(t, []time.Duration{time.Minute}, reported)
	})
}
