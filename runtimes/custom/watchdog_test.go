package custom

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
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
	const disconnected = "sh interrupted: disconnected from the server, which reassigns this attempt to another worker"
	for name, row := range map[string]struct{ script, want string }{
		"ended":        {">ready; exec tail -f /dev/null", disconnected},
		"ends quietly": {"trap 'exit 3' TERM; >ready; tail -f /dev/null & wait", disconnected},
		"succeeds":     {"trap 'exit 0' TERM; >ready; tail -f /dev/null & wait", ""},
		"fails":        {"kill -TERM $$", "sh was ended by signal terminated"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			expires := sync.OnceValue(func() time.Time { return time.Now().Add(100 * time.Millisecond) })
			ctx := runtimes.WithLifeline(t.Context(), func() time.Time { // it expires once the command is ready
				if _, err := os.Stat(filepath.Join(dir, "ready")); err != nil {
					return time.Now().Add(time.Hour)
				}
				return expires()
			})
			_, err := newRuntime(t, dir, applying(row.script)).Apply(ctx, web("v1"))
			if row.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, row.want)
			require.Equal(t, row.want == disconnected, errors.Is(err, runtimes.ErrDisconnected))
		})
	}
}
