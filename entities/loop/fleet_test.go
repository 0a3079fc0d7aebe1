package loop_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/view"
)

// The widest fleet moves from version to version while one instance fails, one is removed and one is added: its summary is one line, and
// its reasons stay small.
func TestWidestFleet_A7_F8(t *testing.T) {
	w := newWorld()
	digest := func(of string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(of))) }
	const many = 500
	w.channel("prod", func(c *entities.ChannelSpec) { fleet(c, many, "local") })
	release := func(version string) {
		require.NoError(t, w.s.CheckRelease(version, nil, nil))
		w.now = w.now.Add(time.Minute)
		w.open(version, version, "")
		for id := range w.s.Releases[len(w.s.Releases)-1].Payloads {
			w.s.Releases[len(w.s.Releases)-1].Payloads[id] = digest(version + id.Key())
		}
	}
	w.publish()
	release("v1")
	w.applyAll()
	release("v2")
	w.decide(decide.Mode{})
	broken := entities.InstanceID{Channel: "prod", Name: "eu-3"}
	for _, id := range entities.SortedIDs(w.applies) {
		if id != broken {
			w.succeedApply(id)
		}
	}
	w.applyEnded(broken, "image not found", true)
	row := func() explain.Row {
		status := view.Of(w.s, w.decide(decide.Mode{}))
		require.LessOrEqual(t, len(status.Channels[0].Instances), 50)
		answer, err := json.Marshal(status)
		require.NoError(t, err)
		require.Less(t, len(answer), 256<<10, "a query may answer with 2 MiB")
		return explain.Table([]protocol.Status{status}, w.now).Rows[0]
	}
	require.Equal(t, explain.Row{"web", "prod", "FAILED", "v1+v2", "v2", "0s", "499 of 500 at v2, 1 FAILED: eu-3"}, row())

	w.channel("prod", func(c *entities.ChannelSpec) {
		c.Instances = append(slices.Clone(c.Instances[1:]), entities.InstanceSpec{Name: "us-1", Runtime: "local", Template: "t1"})
	})
	w.publish()
	w.applyAll()
	require.Equal(t, "CONVERGED", row()[2])
	fleet := view.Of(w.s, w.decide(decide.Mode{})).Channels[0].Fleet
	require.Equal(t, &protocol.FleetStatus{Instances: many, Version: "v2", AtVersion: many}, fleet)

	_, err := perform(w.s.Pause("prod", bob, "incident 12", w.now))
	require.NoError(t, err)
	require.Equal(t, "500 of 500 at v2, 500 PAUSED", row()[6], "a pause does not change the versions")
}
