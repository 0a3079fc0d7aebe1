package preview

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// A worker of an earlier version answers what an apply would change: that is never shown as what a removal takes down.
func TestAnAnswerAboutAnApplyIsNoneAboutARemoval_A24(t *testing.T) {
	item := protocol.PreviewItem{Service: "web", Channel: "prod", Runtime: "eks", Removal: true}
	old := protocol.ItemPreview{Service: "web", Channel: "prod", Changes: []protocol.PreviewChange{{Action: "update", Name: "web"}}, Totals: protocol.PreviewTotals{Changed: 1}}
	got := answered(item, old)
	require.Equal(t, protocol.PreviewNoPlanner, got.Code)
	require.Contains(t, got.Message, "the worker of runtime eks is of an earlier version")
	require.Empty(t, got.Changes)
	require.Zero(t, got.Totals)
	require.False(t, Channel{Present: "v1", ItemPreview: got}.Unchanged())

	lost := protocol.ItemPreview{Code: protocol.PreviewNoWorker, Message: "no worker polls converge"}
	require.Equal(t, "no worker polls converge", answered(item, lost).Message)
	told := protocol.ItemPreview{Removal: true, Changes: []protocol.PreviewChange{{Action: "remove", Name: "web"}}}
	require.Equal(t, told, answered(item, told))
}
