package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// logsConsole has a service with two channels and the output of some of its commands.
func logsConsole(t *testing.T) (*console, *store.Store) {
	t.Helper()
	at := t.TempDir()
	kept, err := store.Open(t.Context(), at)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kept.Close()) })
	for n, entry := range []struct{ channel, version, out string }{
		{"staging", "v1", "one"}, {"staging", "v2", "two"}, {"prod", "v1", "three"}, {"staging", "v2", "four"},
	} {
		require.NoError(t, kept.PutLog(t.Context(), "shop", "web", entry.channel, store.LogEntry{
			Kind: store.LogApply, At: now.Add(time.Duration(n-10) * time.Minute), FullVersion: entry.version, Stdout: entry.out,
		}))
	}
	s := webStatus("staging CONVERGED v2 v2 succeeded, prod CONVERGED v1 v1 pending")
	s.Store = at
	return newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": {s}}}), kept
}

// Without a channel, entries of all channels are shown in the order of time, each with its channel.
func TestLogsOverChannels(t *testing.T) {
	c, _ := logsConsole(t)
	_, output := c.run(t, "logs shop/web")
	require.Equal(t, `2026-11-20 10:40:20 UTC staging apply v1: exit 0 after 0s (10m ago)
  one
2026-11-20 10:41:20 UTC staging apply v2: exit 0 after 0s (9m ago)
  two
2026-11-20 10:42:20 UTC prod apply v1: exit 0 after 0s (8m ago)
  three
2026-11-20 10:43:20 UTC staging apply v2: exit 0 after 0s (7m ago)
  four
`, output)

	c, _ = logsConsole(t)
	_, output = c.run(t, "logs shop/web --channel prod")
	require.Equal(t, "2026-11-20 10:42:20 UTC apply v1: exit 0 after 0s (8m ago)\n  three\n", output)
}

func TestLogsOfThePreviousVersion(t *testing.T) {
	c, _ := logsConsole(t)
	_, output := c.run(t, "logs shop/web --previous")
	require.Equal(t, "2026-11-20 10:40:20 UTC staging apply v1: exit 0 after 0s (10m ago)\n  one\n", output)

	c, _ = logsConsole(t)
	_, output = c.run(t, "logs shop/web prod --previous")
	require.Equal(t, "! no output was kept of shop/web in prod\n", output)
}

// --follow shows each new entry once, until it is interrupted.
func TestLogsFollow(t *testing.T) {
	c, kept := logsConsole(t)
	c.stopAt = 3 * logsPollInterval
	slept, sleep := 0, c.Sleep
	c.Sleep = func(ctx context.Context, d time.Duration) error {
		if slept++; slept == 1 {
			require.NoError(t, kept.PutLog(ctx, "shop", "web", "prod", store.LogEntry{Kind: store.LogApply, At: now, FullVersion: "v2", Stdout: "five"}))
		}
		return sleep(ctx, d)
	}
	code, output := c.run(t, "logs shop/web --follow --last 1 -o yaml")
	require.Equal(t, exitInterrupted, code)
	require.Equal(t, 2, strings.Count(output, "---\n"), output)
	require.Contains(t, output, "stdout: four\n")
	require.Contains(t, output, "channel: prod\n")
	require.Contains(t, output, "stdout: five\n")
}

// What runs is shown with the end of its output; --follow shows each line of it once, when it is complete.
func TestLogsOfWhatRuns(t *testing.T) {
	runs := func(tail string) []protocol.Progress {
		return []protocol.Progress{{Channel: "prod", Description: "apply v2", Since: now.Add(-time.Minute), Tail: tail}}
	}
	c, _ := logsConsole(t)
	c.api.progress = runs("step 1\nstep 2\n")
	_, output := c.run(t, "logs shop/web prod")
	require.Contains(t, output, "running in prod: apply v2, since 10:49 UTC (1m ago)\n  | step 1\n  | step 2\n")
	c, _ = logsConsole(t)
	c.api.progress = runs("step 1\n")
	_, output = c.run(t, "logs shop/web staging")
	require.NotContains(t, output, "running")

	tails := []string{"step 2\nste", "p 2\nstep 3\nstep", "3\nstep 4\n"}
	c, _ = logsConsole(t)
	c.api.progress = runs("step 1\nstep 2\n")
	c.stopAt = time.Duration(len(tails)+1) * logsPollInterval
	sleep := c.Sleep
	c.Sleep = func(ctx context.Context, d time.Duration) error {
		if len(tails) > 0 {
			c.api.progress, tails = runs(tails[0]), tails[1:]
		}
		return sleep(ctx, d)
	}
	code, output := c.run(t, "logs shop/web --follow -c prod")
	require.Equal(t, exitInterrupted, code)
	require.Contains(t, output, "  three\nrunning in prod: apply v2, since 10:49 UTC (1m ago)\n  | step 1\n  | step 2\n  | step 3\n  | step 4\n")
}
