package activities

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// A write in a report-only channel is rejected before anything is read, claimed or run.
func TestReportOnlyChannelIsNotWritten_A25(t *testing.T) {
	a := New(nil, nil, nil) // no store, no runtime: any request to them would panic
	defer a.Close()
	one := protocol.InstanceRef{ID: entities.Only("production"), FullVersion: "v1"}
	apply, _, err := run[protocol.ApplyAnswer](t, a.Apply, protocol.ApplyRequest{ReportOnly: true, Instance: one})
	require.NoError(t, err)
	require.Equal(t, protocol.ApplyAnswer{Err: reportOnly, Unready: true}, apply, "does not count as a failure of the release")
	remove, _, err := run[protocol.RemoveAnswer](t, a.Remove, protocol.RemoveRequest{ReportOnly: true, Instance: one})
	require.NoError(t, err)
	require.Equal(t, reportOnly, remove.Err)
	extension, _, err := run[protocol.ExtensionAnswer](t, a.Extension, protocol.ExtensionRequest{ReportOnly: true})
	require.NoError(t, err)
	require.Equal(t, reportOnly, extension.Err)
}
