package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/state"
)

// A refused signal makes a checkpoint due: after a restart it is not judged again under changed conditions.
func TestRefusalMakesACheckpointDue(t *testing.T) {
	s := &service{state: state.New("shop", "web")}
	before := s.accepted()
	s.state.RecordRefusal("rollback", "bob", "there is nothing to return to", time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	require.NotEqual(t, before, s.accepted())
	before = s.accepted()
	s.state.RecordRefusal("rollback", "bob", "there is nothing to return to", time.Date(2026, 3, 1, 12, 0, 1, 0, time.UTC))
	require.NotEqual(t, before, s.accepted())
	require.Equal(t, s.accepted(), s.accepted())
}
