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

// place simulates a server with one service, whose broken version is rolled back.
type place struct {
	versions []string // that ran, the newest last
	stuck    bool     // a new version does not become healthy
	removed  bool
	printed  []string
}

// Converge simulates a command line.
func (p *place) Converge(_ context.Context, args ...string) (output string, code int) {
	switch args[0] {
	case "apply":
		p.removed = slices.Contains(args, "--remove")
	case "release":
		if args[2] == "broken" || p.stuck && len(p.versions) > 0 {
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

func (p *place) status() string {
	s := protocol.Status{Channels: []protocol.ChannelStatus{{Current: p.versions[len(p.versions)-1], Objects: []entities.Object{{}}}}}
	if p.removed {
		s.Status = string(entities.StatusDeleted)
	}
	text, _ := json.Marshal(s)
	return string(text)
}

func (p *place) Sleep(context.Context, time.Duration) error { return context.DeadlineExceeded }

func (p *place) Lines(lines ...string) error {
	for _, line := range lines {
		line, _, _ = strings.Cut(line, " (")
		p.printed = append(p.printed, line)
	}
	return nil
}

func try(t *testing.T, p *place) bool {
	t.Helper()
	at, err := Kubernetes{Namespace: "default", Image: "shop/web"}.Place()
	require.NoError(t, err)
	holds, err := Run(t.Context(), p, Options{Place: at, Versions: [2]string{"1", "2"}, Broken: "broken", Timeout: time.Minute})
	require.NoError(t, err)
	return holds
}

func TestAllOfAPlaceHolds(t *testing.T) {
	t.Parallel()
	p := &place{}
	require.True(t, try(t, p), p.printed)
	require.Len(t, p.printed, 9)
	require.Equal(t, "ok    the service is deleted", p.printed[8])
}

// After a failed trial the later ones are skipped, and everything that was created is removed.
func TestAPlaceThatDoesNotHoldIsCleanedUp(t *testing.T) {
	t.Parallel()
	p := &place{stuck: true}
	require.False(t, try(t, p))
	require.True(t, p.removed)
	require.Equal(t, []string{"ok    a configuration is published", "ok    a service is created", "FAIL  a second version is deployed: exit status 2, expected 0"}, p.printed[:3])
	require.Contains(t, p.printed, "      it did not start")
}

func TestAPlaceIsNamedByValues(t *testing.T) {
	t.Parallel()
	_, err := Kubernetes{Context: "a\"b"}.Place()
	require.EqualError(t, err, `"a\"b" is not allowed in a configuration; expected a name`)
	_, err = ECS{Cluster: "test", Region: "${x}"}.Place()
	require.EqualError(t, err, `"${x}" is not allowed in a configuration; expected a name`)
}
