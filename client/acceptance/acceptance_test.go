package acceptance

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// fakeConsole simulates a server with one service, whose broken version is rolled back.
type fakeConsole struct {
	versions  []string // that ran, the newest last
	unhealthy bool     // a new version does not become healthy
	removed   bool
	printed   []string
}

// Converge simulates a command line.
func (p *fakeConsole) Converge(_ context.Context, args ...string) (output string, code int) {
	switch args[0] {
	case "config":
		p.removed = slices.Contains(args, "--remove")
	case "release":
		if args[2] == "broken" || p.unhealthy && len(p.versions) > 0 {
			return "it did not start\n", failed
		}
		p.versions = append(p.versions, args[2])
	case "rollback":
		p.versions = append(p.versions, p.versions[0])
	case "wait":
		return "", failed
	case "status":
		return p.status(), done
	}
	return "", done
}

func (p *fakeConsole) status() string {
	s := protocol.Status{Channels: []protocol.ChannelStatus{{Current: p.versions[len(p.versions)-1], Objects: []entities.Object{{}}}}}
	if p.removed {
		s.Status = string(entities.StatusDeleted)
	}
	text, _ := json.Marshal(s)
	return string(text)
}

func (p *fakeConsole) Sleep(context.Context, time.Duration) error { return context.DeadlineExceeded }

func (p *fakeConsole) Lines(lines ...string) error {
	for _, line := range lines {
		line, _, _ = strings.Cut(line, " (")
		p.printed = append(p.printed, line)
	}
	return nil
}

func runAcceptance(t *testing.T, p *fakeConsole) bool {
	t.Helper()
	env, err := Kubernetes{Namespace: "default", Image: "shop/web"}.Environment()
	require.NoError(t, err)
	passed, err := Run(t.Context(), p, Options{Environment: env, Versions: [2]string{"1", "2"}, Broken: "broken", Timeout: time.Minute})
	require.NoError(t, err)
	return passed
}

func TestAllStepsPass(t *testing.T) {
	t.Parallel()
	p := &fakeConsole{}
	require.True(t, runAcceptance(t, p), p.printed)
	require.Len(t, p.printed, 9)
	require.Equal(t, "ok    the service is deleted", p.printed[8])
}

// After a failed trial the later ones are skipped, and everything that was created is removed.
func TestFailedRunIsCleanedUp(t *testing.T) {
	t.Parallel()
	p := &fakeConsole{unhealthy: true}
	require.False(t, runAcceptance(t, p))
	require.True(t, p.removed)
	require.Equal(t, []string{"ok    a configuration is published", "ok    a service is created", "FAIL  a second version is deployed: exit status 2, expected 0"}, p.printed[:3])
	require.Contains(t, p.printed, "      it did not start")
}

func TestEnvironmentNamesAreChecked(t *testing.T) {
	t.Parallel()
	_, err := Kubernetes{Context: "a\"b"}.Environment()
	require.EqualError(t, err, `"a\"b" is not allowed in a configuration; expected a name`)
	_, err = ECS{Cluster: "test", Region: "${x}"}.Environment()
	require.EqualError(t, err, `"${x}" is not allowed in a configuration; expected a name`)
}
