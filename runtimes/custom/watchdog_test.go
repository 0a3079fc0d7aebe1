package custom

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/runtimes"
)

func TestMain(m *testing.M) {
	RunWatchdog()
	os.Exit(m.Run())
}

// A command that the watchdog ends did not fail: another attempt of it begins. The worker may still run, with a server that answers slowly.
func TestCommandEndedByTheWatchdogDidNotFail(t *testing.T) {
	until := time.Now().Add(300 * time.Millisecond)
	lifeline := runtimes.WithLifeline(t.Context(), func() time.Time { return until })
	for name, row := range map[string]struct {
		ctx    context.Context
		script string
		want   string
	}{
		"ended":          {lifeline, "exec tail -f /dev/null", "sh interrupted: " + runtimes.ErrDisconnected.Error()},
		"ends by itself": {lifeline, "trap 'exit 3' TERM; tail -f /dev/null & wait", "sh interrupted: " + runtimes.ErrDisconnected.Error()},
		"succeeds":       {lifeline, "trap 'exit 0' TERM; tail -f /dev/null & wait", ""},
		"fails":          {runtimes.WithLifeline(t.Context(), func() time.Time { return time.Now().Add(time.Hour) }), "kill -TERM $$", "sh was ended by signal terminated"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := newRuntime(t, t.TempDir(), applying(row.script)).Apply(row.ctx, web("v1"))
			if row.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, row.want)
			require.Equal(t, row.want != "sh was ended by signal terminated", errors.Is(err, runtimes.ErrDisconnected))
		})
	}
}
