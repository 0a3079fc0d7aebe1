package activities

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// storeCheck stores a definition and returns an evaluation of it.
func (a *Activities) storeCheck(t *testing.T, d entities.CheckDefinition, known entities.Verdict) entities.Evaluation {
	t.Helper()
	d.Application, d.Service, d.Channel = "shop", "web", "prod"
	digest, err := a.Store.PutCheck(t.Context(), d)
	require.NoError(t, err)
	return entities.Evaluation{
		Channel: "prod", ID: d.ID, Kind: d.Kind, Definition: digest, Release: "r1", FullVersion: "v1",
		KnownDigest: entities.CheckReading{Verdict: known}.Digest(), Interval: 20 * time.Second,
	}
}

func httpGate(id, url string) entities.CheckDefinition {
	return entities.CheckDefinition{ID: id, Kind: entities.CheckHTTP, HTTP: &entities.HTTPCheck{URL: url}}
}

func checkRequest(all ...entities.Evaluation) protocol.CheckRequest {
	return protocol.CheckRequest{Application: "shop", Service: "web", ServiceID: "shop.web", Checks: all}
}

// Without news the server is asked for another attempt, which writes no history. With news the activity completes.
func TestCheckCompletesWithNews(t *testing.T) {
	var status atomic.Int32
	status.Store(http.StatusOK)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	defer web.Close()
	a := newActivities(t, &server{})
	up := a.storeCheck(t, httpGate("up", web.URL), "")
	answer, _, err := run[protocol.CheckAnswer](t, a.Check, checkRequest(up))
	require.NoError(t, err)
	require.Equal(t, entities.Pass, answer.Readings["prod/up"].Verdict, "%v", answer)

	up.KnownDigest = answer.Readings["prod/up"].Digest()
	always := a.storeCheck(t, entities.CheckDefinition{ID: "never", Kind: entities.CheckAlways, Always: &entities.AlwaysCheck{Verdict: entities.Wait}}, entities.Wait)
	_, beats, err := run[protocol.CheckAnswer](t, a.Check, checkRequest(up, always))
	app := applicationError(t, err)
	require.Equal(t, protocol.ErrUnchanged, app.Type())
	require.Equal(t, temporal.ApplicationErrorCategoryBenign, app.Category())
	require.InDelta(t, 20, app.NextRetryDelay().Seconds(), 2.5)
	var paces map[string]checkBackoff
	require.NoError(t, beats[len(beats)-1].Get(&paces))
	require.Equal(t, []string{"prod/never", "prod/up"}, slices.Sorted(maps.Keys(paces)))

	status.Store(http.StatusTeapot)
	_, _, err = run[protocol.CheckAnswer](t, a.Check, checkRequest(up, always), paces)
	require.Equal(t, protocol.ErrUnchanged, applicationError(t, err).Type(), "not due yet")
	paces["prod/up"] = checkBackoff{}
	answer, _, err = run[protocol.CheckAnswer](t, a.Check, checkRequest(up, always), paces)
	require.NoError(t, err)
	require.Len(t, answer.Readings, 1)
}

// A preflight returns a reading of every check. One that cannot be evaluated is an ERROR.
func TestPreflightEvaluatesEveryCheck_A10_D16(t *testing.T) {
	t.Setenv("CHECK_TOKEN", "hunter2hunter2")
	web := httptest.NewServer(http.NotFoundHandler())
	web.Close()
	a := newActivities(t, &server{answers: map[string]any{protocol.ServiceID("shop", "web"): protocol.Status{
		Releases: []protocol.ReleaseStatus{{ID: "r1", Version: "v1", By: "ci"}},
	}}})
	run1 := func(id string, timeout time.Duration, argv ...string) entities.CheckDefinition {
		return entities.CheckDefinition{ID: id, Kind: entities.CheckCommand, Command: &entities.CheckRun{
			Command: entities.Command{Argv: argv, Timeout: timeout}, Env: map[string]entities.Value{"TOKEN": {WorkerEnv: "CHECK_TOKEN"}},
		}}
	}
	undefined := a.storeCheck(t, httpGate("gone", web.URL), entities.Pass)
	undefined.Definition = strings.Repeat("0", 64)
	undefined.ID = "lost"
	answer, _, err := run[protocol.CheckAnswer](t, a.Preflight, checkRequest(
		a.storeCheck(t, httpGate("down", web.URL), ""),
		a.storeCheck(t, run1("pass", time.Minute, "sh", "-c", "echo ${{ version }} has $TOKEN"), entities.Pass),
		a.storeCheck(t, run1("fail", time.Minute, "sh", "-c", "echo no; exit 3"), entities.Fail),
		a.storeCheck(t, entities.CheckDefinition{ID: "cel", Kind: entities.CheckCEL, CEL: &entities.CELCheck{Expression: `release.by == "ci"`}}, ""),
		a.storeCheck(t, run1("hung", 100*time.Millisecond, "sleep", "60"), entities.Pass),
		a.storeCheck(t, entities.CheckDefinition{ID: "other", Kind: entities.CheckServiceStable, Dependency: &entities.Dependency{Service: "api"}}, ""),
		a.storeCheck(t, entities.CheckDefinition{ID: "odd", Kind: "odd"}, ""),
		undefined,
	))
	require.NoError(t, err)
	verdicts := map[string]entities.Verdict{}
	for _, key := range slices.Sorted(maps.Keys(answer.Readings)) {
		verdicts[key] = answer.Readings[key].Verdict
		require.NotEmpty(t, answer.Readings[key].Reason, key)
		require.False(t, answer.Readings[key].At.IsZero(), key)
	}
	require.Equal(t, map[string]entities.Verdict{
		"prod/cel": entities.Pass, "prod/down": entities.Error, "prod/pass": entities.Pass, "prod/fail": entities.Fail, "prod/hung": entities.Error,
		"prod/other": entities.Wait, "prod/odd": entities.Error, "prod/lost": entities.Error,
	}, verdicts)
	require.Equal(t, "v1 has ***", answer.Readings["prod/pass"].Reason)
	require.Contains(t, answer.Readings["prod/lost"].Reason, "cannot read its definition: the store has no checks/")
}

func TestCheckTimeouts(t *testing.T) {
	command := func(timeout time.Duration, job *entities.CommandJob) entities.CheckDefinition {
		return entities.CheckDefinition{Command: &entities.CheckRun{Command: entities.Command{Timeout: timeout}, Job: job}}
	}
	require.Equal(t, 10*time.Second, checkTimeout(entities.CheckDefinition{}))
	require.Equal(t, 3*time.Second, checkTimeout(entities.CheckDefinition{HTTP: &entities.HTTPCheck{Timeout: 3 * time.Second}}))
	require.Equal(t, 35*time.Second, checkTimeout(command(0, nil)))
	require.Equal(t, 5*time.Minute+5*time.Second, checkTimeout(command(0, &entities.CommandJob{})))
	require.Equal(t, 5*time.Minute+5*time.Second, checkTimeout(entities.CheckDefinition{Command: &entities.CheckRun{Task: &entities.CommandTask{}}}))
	require.Equal(t, 65*time.Second, checkTimeout(command(time.Minute, nil)))
	require.Equal(t, 10*time.Minute, checkTimeout(command(time.Hour, nil)))
}
