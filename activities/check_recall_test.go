package activities

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// A check that always has news does not prevent the evaluation of a slow one, and does not cause more evaluations of others than their
// intervals.
func TestFlippingCheckDoesNotStarveOthers_A7(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFakeChecks()
		j.setVerdict("steady", entities.Pass)
		j.setHanging("slow", 5*time.Second, entities.Fail)
		flips := map[bool]entities.Verdict{true: entities.Pass, false: entities.Wait}
		known := map[string]entities.Verdict{}
		var cache scheduleCache
		var reported time.Duration
		for n := range 40 {
			j.setVerdict("flip", flips[n%2 == 0])
			var all []entities.Evaluation
			for _, id := range []string{"flip", "steady", "slow"} {
				interval := time.Minute
				if id == "flip" {
					interval = time.Second
				}
				e := evaluationOf(id, known[id], interval)
				if known[id] == "" {
					e.KnownDigest = ""
				}
				all = append(all, e)
			}
			s := &schedule{}
			cache.restore("s", all, s, time.Now())
			time.Sleep(max(0, time.Until(s.next(all)))) // virtual: the server's delay
			for key, reading := range evaluateAll(t.Context(), all, s, j.evaluate) {
				known[key[len("prod/"):]] = reading.Verdict
				if key == "prod/slow" && reported == 0 {
					reported = time.Since(j.start)
				}
			}
			cache.save("s", all, s, time.Now())
		}
		require.Equal(t, entities.Fail, known["slow"], "it was evaluated")
		require.Less(t, reported, 20*time.Second)
		require.LessOrEqual(t, len(j.evaluations["steady"]), 2+int(time.Since(j.start)/(50*time.Second)), "at its own interval")
		require.Greater(t, len(j.evaluations["flip"]), 30)
	})
}

// The schedule of a check in ERROR is kept for an activity that starts while no attempt runs, because other checks are asked for then: the
// errors since the last report are counted, and nothing is evaluated early.
func TestErrorsBackOffWhenOtherChecksAreAskedFor_D16(t *testing.T) {
	var asked atomic.Int32
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer web.Close()
	a := newActivities(t, &server{})
	broken := a.storeCheck(t, entities.CheckDefinition{
		ID: "broken", Kind: entities.CheckPrometheus, Prometheus: &entities.PrometheusQuery{URL: web.URL, Query: "errors", LessThan: new(1.0)},
	}, "")
	answer, _, err := run[protocol.CheckAnswer](t, a.Check, checkRequest(broken))
	require.NoError(t, err)
	first := answer.Readings["prod/broken"]
	require.Equal(t, entities.Error, first.Verdict)

	broken.KnownDigest, broken.Errors, broken.Retry = first.Digest(), first.Errors, time.Now().Add(-time.Second)
	a.schedules = scheduleCache{}
	_, _, err = run[protocol.CheckAnswer](t, a.Check, checkRequest(broken))
	require.Equal(t, protocol.ErrUnchanged, applicationError(t, err).Type(), "the second error in a row is no news")
	require.EqualValues(t, 2, asked.Load())

	other := a.storeCheck(t, entities.CheckDefinition{ID: "other", Kind: entities.CheckAlways, Always: &entities.AlwaysCheck{Verdict: entities.Wait}}, "")
	other.KnownDigest = ""
	answer, _, err = run[protocol.CheckAnswer](t, a.Check, checkRequest(broken, other))
	require.NoError(t, err)
	require.EqualValues(t, 2, asked.Load(), "it is not due")
	require.Equal(t, 2, answer.Readings["prod/broken"].Errors)
}

// A saved schedule is used only for the same checks and for a short time. Otherwise a check is due at once.
func TestSavedScheduleExpires(t *testing.T) {
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	e := evaluationOf("q", entities.Pass, time.Minute)
	later := now.Add(time.Minute)
	for name, c := range map[string]struct {
		change func(*entities.Evaluation)
		at     time.Time
		want   time.Time
	}{
		"unchanged":   {func(*entities.Evaluation) {}, now.Add(time.Second), later},
		"news":        {func(e *entities.Evaluation) { e.KnownDigest = "FAIL" }, now.Add(time.Second), later},
		"not known":   {func(e *entities.Evaluation) { e.KnownDigest = "" }, now.Add(time.Second), time.Time{}},
		"new rule":    {func(e *entities.Evaluation) { e.Definition = "other" }, now.Add(time.Second), time.Time{}},
		"new release": {func(e *entities.Evaluation) { e.Release = "r2" }, now.Add(time.Second), time.Time{}},
		"expired":     {func(*entities.Evaluation) {}, now.Add(time.Hour), time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			var cache scheduleCache
			cache.save("s", []entities.Evaluation{e}, &schedule{backoffs: map[string]checkBackoff{e.Key(): {Next: later}}}, now)
			changed, s := e, &schedule{}
			c.change(&changed)
			cache.restore("s", []entities.Evaluation{changed}, s, c.at)
			require.Equal(t, c.want, s.due(changed))
			second := &schedule{}
			cache.restore("s", []entities.Evaluation{e}, second, c.at)
			require.True(t, second.due(e).IsZero(), "restored only once")
		})
	}
}
