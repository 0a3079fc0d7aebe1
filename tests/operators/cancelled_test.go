package operators

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// hanging is a service at v1, with an apply of v2 under way that hangs and ignores SIGTERM.
func hanging(t *testing.T) commanded {
	t.Helper()
	c := newCommanded(t)
	c.letGo()
	c.StartWorker()
	c.Publish()
	c.Release("web", "v1")
	c.Await("web", "production CONVERGED v1")
	c.StopWorker()
	require.NoError(t, os.Remove(c.Dir+"/go"))
	return c
}

// asked waits until status says that the apply is asked to end.
func (c commanded) asked() {
	c.T.Helper()
	c.AwaitThat("web", "asked to end", func(s protocol.Status) bool {
		return len(s.Channels[0].Reasons) > 0 && s.Channels[0].Reasons[0].Text == "the apply of v2 is being ended"
	})
}

// A command that ignores that it is asked to end goes on while it is only asked, and ends at once when it is terminated. Nothing of
// the release is applied afterwards, and what comes next is not held up.
func TestTerminatedCommandEndsAtOnce_A18_I2(t *testing.T) {
	t.Parallel()
	c := hanging(t)
	before := len(c.applies())
	c.StartWorker()
	c.Release("web", "v2")
	c.awaitApplies(before + 1)
	require.Equal(t, "v2 cancelled in production; end requested: the apply in production\nproduction: the apply of v2 is being ended",
		c.Act("web", protocol.Cancel, `{"version":"v2","by":"bob","reason":"wrong build"}`))
	c.asked()
	require.Contains(t, c.Act("web", protocol.Cancel, `{"version":"v2","by":"bob","terminate":true}`), "v2: terminated: the apply in production")
	s := c.Await("web", "production CANCELLED v2")
	require.Contains(t, s.Channels[0].Reasons[0].Text, "v2 was cancelled by bob: wrong build, before it succeeded here")
	require.Len(t, c.applies(), before+1, "nothing of it was applied again")
	c.letGo()
	c.Release("web", "v3")
	c.Await("web", "production CONVERGED v3")
}

// A worker that is killed while a command is asked to end has nobody begin it anew.
func TestCancelledApplyOfAKilledWorkerIsNotRestarted_A18_I2(t *testing.T) {
	t.Parallel()
	c := hanging(t)
	before := len(c.applies())
	worker := c.startProcess()
	c.Release("web", "v2")
	c.awaitApplies(before + 1)
	c.Act("web", protocol.Cancel, `{"version":"v2","by":"bob"}`)
	c.asked()
	require.NoError(t, worker.Process.Kill())
	_ = worker.Wait() // reports the kill
	c.StartWorker()
	c.Await("web", "production CANCELLED v2")
	require.Len(t, c.applies(), before+1, "nobody began it anew")
	require.Contains(t, c.Act("web", protocol.Rollback, `{"by":"bob"}`), "v2 is rolled back in production to v1")
	c.letGo()
	c.Await("web", "production ROLLED_BACK v1")
}

// A channel of commands is taken down by its remove command, and comes back by its apply command.
func TestChannelOfCommandsIsTakenDown_A24(t *testing.T) {
	t.Parallel()
	c := newCommanded(t)
	c.letGo()
	c.Write(strings.Replace(commands, "apply: {command: [./apply.sh]}", `apply: {command: [./apply.sh]}, remove: {command: [sh, -c, "echo $PVN_SERVICE_VERSION >>removed"]}`, 1) + stage.Web)
	c.StartWorker()
	c.Publish()
	c.Release("web", "v1")
	c.Await("web", "production CONVERGED v1")
	c.Act("web", protocol.Delete, `{"channel":"production","by":"bob","reason":"moved"}`)
	s := c.Await("web", "production DELETED v1")
	require.Equal(t, "production is deleted by bob: moved", s.Headline)
	removed, err := os.ReadFile(c.Dir + "/removed")
	require.NoError(t, err)
	require.Equal(t, "v1\n", string(removed))
	c.Act("web", protocol.RestartService, `{"channel":"production","by":"bob"}`)
	c.Await("web", "production CONVERGED v1")
}
