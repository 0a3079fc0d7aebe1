package tests

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// breakable is a Prometheus for each channel, and knows when it was asked while it was broken.
type breakable struct {
	mu      sync.Mutex
	broken  map[string]bool
	refused map[string][]time.Time
}

func (b *breakable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	channel := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/"), "/api/v1/query")
	if b.broken[channel] {
		b.refused[channel] = append(b.refused[channel], time.Now())
		http.Error(w, "please log in", http.StatusForbidden)
		return
	}
	_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"scalar","result":[1763.5,"0"]}}`))
}

func (b *breakable) set(channel string, broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken[channel] = broken
}

func (b *breakable) times(channel string) []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]time.Time(nil), b.refused[channel]...)
}

// backoffChannels has a channel for each place of a check in the life of a release, and one whose check a repair evaluates.
func backoffChannels(url string) string {
	check := func(channel, lifecycle string) string {
		return fmt.Sprintf("{name: health, interval: 500ms, prometheus: {url: %q, query: errors, lessThan: 1}%s}", url+"/"+channel, lifecycle)
	}
	return `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: before, runtimes: [{name: APP-rt}], protections: [` + check("before", ", lifecycle: [preApproval: {}]") + `]}
- {name: after, runtimes: [{name: APP-rt}], protections: [` + check("after", ", lifecycle: [postApproval: {}]") + `]}
- {name: window, runtimes: [{name: APP-rt}], protections: [` + check("window", ", lifecycle: [postDeployment: {for: 1s}]") + `]}
- {name: condition, runtimes: [{name: APP-rt}], postconditions: [` + check("condition", ", within: 1s") + `]}
- {name: repair, runtimes: [{name: APP-rt}], protections: [` + check("repair", ", repairs: true, lifecycle: [preApproval: {}]") + `]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms, retry: {maxAttempts: 3, backoff: 100ms, maxBackoff: 1s}}
---
{apiVersion: converge/v1, kind: Service, name: web}
`
}

// backsOff checks that readings grow apart as a check's backoff says, after at most most readings that do not count, and that there are
// least of these.
func backsOff(at []time.Time, most, least int) (err error) {
	const spread, measured = 0.9, 50 * time.Millisecond // a tenth less, so that services do not ask together
	for first := 0; first <= most; first++ {
		counted := at[min(first, len(at)):]
		if len(counted) < least {
			return errors.Join(err, fmt.Errorf("%d readings, of which %d may not count", len(at), first))
		}
		early := 0
		for n := 2; n < len(counted); n++ {
			expected := entities.RetryInterval(500*time.Millisecond, n-1)
			if counted[n].Sub(counted[n-1]) < time.Duration(spread*float64(expected))-measured {
				early = n
			}
		}
		if early == 0 {
			return nil
		}
		err = fmt.Errorf("reading %d of %d came early", first+early+1, len(at))
	}
	return err
}

// Readings that do not grow apart are found, at the beginning too if there are too many of them.
func TestBacksOff(t *testing.T) {
	readings := func(apart ...time.Duration) []time.Time {
		at := []time.Time{time.Unix(0, 0)}
		for _, d := range apart {
			at = append(at, at[len(at)-1].Add(d))
		}
		return at
	}
	const half = 500 * time.Millisecond
	require.NoError(t, backsOff(readings(0, half, 2*half, 4*half), 1, 5))
	require.NoError(t, backsOff(readings(half, 0, half, 2*half, 4*half), 1, 5))
	require.ErrorContains(t, backsOff(readings(half, half, half, half, half, half, half), 1, 5), "reading")
	require.ErrorContains(t, backsOff(readings(0, half, 2*half, half), 0, 5), "reading 5 of 5 came early")
	require.ErrorContains(t, backsOff(readings(0, half), 1, 5), "3 readings")
}

// A check that cannot be evaluated is evaluated with its backoff and no more often, wherever it is in the life of a release: nothing else
// evaluates it meanwhile, not even at the end of a window. Only the first reading may be taken again: what enters a channel needs one of
// that moment, and an evaluation that is replaced before it reports, because checks of other channels begin, counts for nothing. A soak that such a check holds says since when, and what ends it.
func TestErrorsBackOffInEveryLifecycle_D16(t *testing.T) {
	t.Parallel()
	b := &breakable{broken: map[string]bool{"before": true, "after": true, "window": true, "condition": true}, refused: map[string][]time.Time{}}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	w := shared.World(t)
	t.Cleanup(func() { w.Retire("web") })
	w.Write(backoffChannels(server.URL))
	w.Publish()
	w.Release("web", "v1")
	w.AwaitThat("web", "repair CONVERGED v1", func(s protocol.Status) bool { return strings.Contains(stage.Channels(s), "repair CONVERGED v1") })
	b.set("repair", true)
	w.Fake.At(w.App, "web", "repair").SetDrifted(true)

	channels := []string{"before", "after", "window", "condition", "repair"}
	temporaltest.WaitFor(t, 2*stage.Patience, func() (bool, string) {
		var problems []string
		for _, channel := range channels {
			if err := backsOff(b.times(channel), len(channels), 5); err != nil {
				problems = append(problems, fmt.Sprintf("%s: %v", channel, err))
			}
		}
		return len(problems) == 0, strings.Join(problems, "; ")
	})
	status := w.Status("web")
	for _, c := range status.Channels {
		if c.Name != "window" && c.Name != "condition" {
			continue
		}
		require.Equal(t, string(entities.StatusConverging), c.Status)
		require.Len(t, c.Reasons, 1, c.Name)
		require.Regexp(t, `^waiting since \d\d:\d\d UTC for health ERROR: .*; until an evaluation succeeds, or: converge bypass \S+/web v1 `+c.Name+` health --reason …$`, c.Reasons[0].Text)
		require.WithinRange(t, c.Checks[0].Next, c.Checks[0].At, time.Now().Add(time.Minute))
	}

	for _, channel := range channels {
		b.set(channel, false)
	}
	w.AwaitThat("web", "all CONVERGED v1", func(s protocol.Status) bool { return strings.Count(stage.Channels(s), "CONVERGED v1") == len(channels) })
}
