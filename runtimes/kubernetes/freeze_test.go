package kubernetes

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// freeze lets the server accept everything and answer nothing, on open connections too, until thaw is called. It is called once.
func (g *proxy) freeze() (thaw func()) {
	g.frozen.Lock()
	thawed := false
	thaw = func() {
		if !thawed {
			thawed = true
			g.frozen.Unlock()
		}
	}
	g.t.Cleanup(thaw)
	return thaw
}

// thawedWriter writes while the proxy is not frozen.
type thawedWriter struct {
	io.Writer
	proxy *proxy
}

func (w thawedWriter) Write(p []byte) (int, error) {
	w.proxy.frozen.RLock()
	defer w.proxy.frozen.RUnlock()
	return w.Writer.Write(p)
}

// A server that freezes closes no connection: its watches show old objects. The state is unknown after a bounded time, also for an instance
// that rests, which gets a hint; so it does when the server answers again.
func TestAFrozenServerIsUnknown_D17_A23(t *testing.T) {
	b := newTestCluster(t)
	v1 := b.instance("v1", config)
	b.put(v1)
	b.until(v1, "v1", settled("v1"))
	hints := b.hintsOf()
	b.waitQuiet(v1, hints)

	thaw := b.proxy.freeze()
	since := time.Now()
	var reading *entities.ReadingError
	b.wait("a failed reading", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // the deadline is what is tested: observations have one
		defer cancel()
		_, err := b.Observe(ctx, v1)
		return errors.As(err, &reading)
	}, func() any { return b.cluster.silence() })
	require.True(t, reading.SaysNothing(), reading.Message)
	require.InDelta(t, time.Since(since).Seconds(), reading.Silent.Seconds(), 20, "it began when the last answer came")
	require.GreaterOrEqual(t, reading.Silent, maxSilence)
	b.waitHint(hints)

	drain(hints)
	thaw()
	b.waitHint(hints)
	b.until(v1, "v1 again", settled("v1"))
}

// An apply that a frozen server does not answer is no attempt: it says nothing about the version.
func TestAnApplyWithoutAnAnswerIsNoAttempt_A23_D18(t *testing.T) {
	b := newTestCluster(t)
	v1 := b.instance("v1", config)
	b.put(v1)
	b.until(v1, "v1", settled("v1"))
	thaw := b.proxy.freeze()
	v1.FullVersion = "v2"
	ctx, cancel := context.WithTimeout(t.Context(), maxSilence+time.Second) // the deadline is what is tested
	defer cancel()
	_, err := b.Apply(ctx, v1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, runtimes.IsUnready(err), err)
	require.ErrorContains(t, err, "the API server has given no answer for ")
	thaw()

	b.proxy.shut()
	_, err = b.Apply(t.Context(), v1)
	require.True(t, runtimes.IsUnready(err), err)
	require.ErrorContains(t, err, "the cluster is not reachable")
	b.proxy.unlock()
	b.put(v1)
	b.until(v1, "v2", settled("v2"))
}

// A timeout of an apply that waits for its own objects is an attempt: the server answers.
func TestAnApplyThatWaitsForItsObjectsIsAnAttempt_D18(t *testing.T) {
	b := newTestCluster(t)
	// The hook never ends, so the apply waits for it.
	in := b.instance("v1", config, `
apiVersion: batch/v1
kind: Job
metadata: {name: never, annotations: {converge/hook: pre-install}}
spec:
  template:
    spec: {restartPolicy: Never, nodeSelector: {no: node}, containers: [{name: c, image: "web:1"}]}
`)
	ctx, cancel := context.WithTimeout(t.Context(), maxSilence+5*time.Second) // the deadline is what is tested
	defer cancel()
	_, err := b.Apply(ctx, in)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, runtimes.IsUnready(err), err)
}
