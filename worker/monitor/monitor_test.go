package monitor

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestAddress(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"9464": "127.0.0.1:9464", ":9464": "127.0.0.1:9464", "0": "127.0.0.1:0",
		"0.0.0.0:9464": "0.0.0.0:9464", "[::1]:9464": "[::1]:9464", "metrics.shop.dev:80": "metrics.shop.dev:80",
	} {
		has, err := Address(given)
		require.NoError(t, err, given)
		require.Equal(t, want, has)
	}
	for _, given := range []string{"", "metrics", "1.2.3.4", "9464:", "70000", "a:b:c", "::1"} {
		_, err := Address(given)
		require.ErrorContains(t, err, "expected PORT or HOST:PORT", given)
	}
}

// A port alone is served on loopback only.
func TestServesOnLoopback(t *testing.T) {
	t.Parallel()
	m, err := New("v1")
	require.NoError(t, err)
	at, stop, err := m.Serve(t.Context(), "0")
	require.NoError(t, err)
	require.Regexp(t, `^127\.0\.0\.1:\d+$`, at)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+"/metrics", nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Contains(t, string(text), `converge_build_info{version="v1"} 1`)
	_, _, err = m.Serve(t.Context(), at)
	require.ErrorContains(t, err, "serve metrics: ")
	stop()
	_, err = http.DefaultClient.Do(request)
	require.Error(t, err)
}

// The names of metrics follow the conventions of Prometheus.
func TestNames(t *testing.T) {
	t.Parallel()
	m, err := New("v1")
	require.NoError(t, err)
	h := m.Handler().WithTags(map[string]string{"outcome": "ok"})
	h.Counter("converge_things").Inc(2)
	h.Timer("converge_thing_duration").Record(3 * time.Second)
	families, err := m.registry.Gather()
	require.NoError(t, err)
	names := map[string]int{}
	for _, f := range families {
		names[f.GetName()] = len(f.GetMetric())
	}
	require.Equal(t, 1, names["converge_things_total"])
	require.Equal(t, 1, names["converge_thing_duration_seconds"])
}

// The result of the last poll of a kind counts; a poll that the worker itself cancelled is ignored.
func TestPolls(t *testing.T) {
	t.Parallel()
	m, err := New("v1")
	require.NoError(t, err)
	ready := func() string {
		text, all := m.Ready(t.Context())
		require.Equal(t, text == "polling: ok\n", all)
		return text
	}
	require.Equal(t, "polling: it does not poll for work yet\n", ready())
	expireCache := func() { m.ready.cachedAt = time.Time{} } // results are cached for a moment
	for _, row := range []struct {
		request any
		err     error
		want    string
	}{
		{&workflowservice.PollWorkflowTaskQueueRequest{}, nil, `^polling: ok\n$`},
		{&workflowservice.PollActivityTaskQueueRequest{}, status.Error(codes.PermissionDenied, "key revoked"), `^polling: polls fail for activities, since \S+: .*key revoked\n$`},
		{&workflowservice.PollWorkflowTaskQueueRequest{}, nil, `key revoked`},
		{&workflowservice.StartWorkflowExecutionRequest{}, errors.New("no poll"), `key revoked`},
		{&workflowservice.PollActivityTaskQueueRequest{}, context.Canceled, `key revoked`},
		{&workflowservice.PollActivityTaskQueueRequest{}, nil, `^polling: ok\n$`},
	} {
		require.Equal(t, row.err, m.polls.track(row.request, func() error { return row.err }))
		expireCache()
		require.Regexp(t, row.want, ready())
	}
}

// The checks of a worker are listed in the order in which they were added, one line each, even if an error has several lines.
func TestReady(t *testing.T) {
	t.Parallel()
	var m Monitor
	m.AddCheck("one", func(context.Context) error { return nil })
	m.AddCheck("two", func(context.Context) error { return errors.New("in\ntwo lines") })
	text, all := m.Ready(t.Context())
	require.False(t, all)
	require.Equal(t, "one: ok\ntwo: in two lines\n", text)
}

// A program that is no worker does not wait for polls.
func TestOnlyCheck(t *testing.T) {
	t.Parallel()
	m, err := New("v1")
	require.NoError(t, err)
	text, all := m.Ready(t.Context())
	require.False(t, all, text)
	m.SetOnlyCheck("temporal", func(context.Context) error { return nil })
	text, all = m.Ready(t.Context())
	require.True(t, all)
	require.Equal(t, "temporal: ok\n", text)
}

// After a failure a worker is ready again once the server keeps a poll open: a poll that finds no work ends after a minute only.
func TestPollsThatWaitAreAccepted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p Polls
		request := &workflowservice.PollActivityTaskQueueRequest{}
		away := status.Error(codes.Unavailable, "away")
		require.Equal(t, away, p.track(request, func() error { return away }))
		require.ErrorContains(t, p.check(t.Context()), "away")
		inPoll := make(chan error)
		ended := make(chan struct{})
		poll := func() { _ = p.track(request, func() error { return <-inPoll }); ended <- struct{}{} }
		go poll()
		synctest.Wait()
		require.ErrorContains(t, p.check(t.Context()), "away", "it may still be refused")
		time.Sleep(acceptedAfter)
		require.NoError(t, p.check(t.Context()))
		inPoll <- away
		<-ended
		require.ErrorContains(t, p.check(t.Context()), "away")
		go poll()
		inPoll <- context.Canceled
		<-ended
		time.Sleep(acceptedAfter)
		require.ErrorContains(t, p.check(t.Context()), "away", "no poll waits")

		go poll()
		inPoll <- status.Error(codes.DeadlineExceeded, "no answer")
		<-ended
		go poll()
		time.Sleep(acceptedAfter)
		require.ErrorContains(t, p.check(t.Context()), "no answer", "a server that hangs keeps polls open, too")
		inPoll <- nil
		<-ended
		require.NoError(t, p.check(t.Context()))
	})
}
