package workflows

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/converge-engine/converge/entities/protocol"
)

// runPreview runs the workflow with an activity that answers by channel.
func runPreview(t *testing.T, items []protocol.PreviewItem, answer func(protocol.PreviewItem) ([]protocol.ItemPreview, error)) []protocol.ItemPreview {
	t.Helper()
	env := (&testsuite.WorkflowTestSuite{}).NewTestWorkflowEnvironment()
	env.RegisterActivityWithOptions(func(_ context.Context, r protocol.PreviewRequest) (protocol.PreviewAnswer, error) {
		require.Equal(t, "shop", r.Application)
		require.Equal(t, previewTimeout, r.Timeout)
		all, err := answer(r.Item)
		if err != nil {
			return protocol.PreviewAnswer{}, err
		}
		return protocol.PackPreview(all)
	}, activity.RegisterOptions{Name: protocol.ActivityPreview})
	env.ExecuteWorkflow(Preview, protocol.PreviewInput{Application: "shop", Items: items})
	require.NoError(t, env.GetWorkflowError())
	var result protocol.PreviewAnswer
	require.NoError(t, env.GetWorkflowResult(&result))
	all, err := result.Previews()
	require.NoError(t, err)
	return all
}

func itemsFor(channels ...string) []protocol.PreviewItem {
	var items []protocol.PreviewItem
	for _, c := range channels {
		items = append(items, protocol.PreviewItem{Service: "web", Channel: c, Runtime: "edge", Remote: c == "remote", FullVersion: "v2"})
	}
	return items
}

// The answers are in the order of the request, regardless of the order in which they arrive. A failure for one instance does not
// suppress the answers for the others.
func TestPreviewAnswersPerInstance(t *testing.T) {
	got := runPreview(t, itemsFor("a", "broken", "remote", "lost", "z"), func(i protocol.PreviewItem) ([]protocol.ItemPreview, error) {
		switch i.Channel {
		case "broken":
			return nil, temporal.NewNonRetryableApplicationError("it fell over", "x", errors.New("cause"))
		case "remote":
			return nil, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
		case "lost":
			return nil, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_HEARTBEAT, nil)
		}
		return []protocol.ItemPreview{{Service: "web", Channel: i.Channel, Totals: protocol.PreviewTotals{Changed: 1}}}, nil
	})
	require.Equal(t, []protocol.ItemPreview{
		{Service: "web", Channel: "a", Totals: protocol.PreviewTotals{Changed: 1}},
		{Service: "web", Channel: "broken", Code: protocol.PreviewFailed, Message: "it fell over"},
		{Service: "web", Channel: "remote", Code: protocol.PreviewNoWorker, Message: "no worker polls runtime/edge; start one with: converge worker --runtime edge"},
		{Service: "web", Channel: "lost", Code: protocol.PreviewTimeout, Message: "the worker was lost, or did not answer in time"},
		{Service: "web", Channel: "z", Totals: protocol.PreviewTotals{Changed: 1}},
	}, got)
	removal := itemsFor("broken")
	removal[0].Removal = true
	got = runPreview(t, removal, func(protocol.PreviewItem) ([]protocol.ItemPreview, error) { return nil, errors.New("it fell over") })
	require.Equal(t, []protocol.ItemPreview{{Service: "web", Channel: "broken", Removal: true, Code: protocol.PreviewFailed, Message: "it fell over"}}, got)
}

// No payload passes 64 KiB: a huge preview is packed, and cut short with a count of the omitted items.
func TestPreviewResultIsBounded(t *testing.T) {
	var channels []string
	for n := range protocol.MaxPreviewItems {
		channels = append(channels, fmt.Sprintf("c%02d", n))
	}
	got := runPreview(t, itemsFor(channels...), func(i protocol.PreviewItem) ([]protocol.ItemPreview, error) {
		one := protocol.ItemPreview{Service: "web", Channel: i.Channel, Totals: protocol.PreviewTotals{Changed: 100}}
		for n := range 100 {
			noise := fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, i.Channel, n)))
			one.Changes = append(one.Changes, protocol.PreviewChange{Action: "update", Name: noise, Message: strings.Repeat("x", 200)})
		}
		return []protocol.ItemPreview{one}, nil
	})
	require.Len(t, got, protocol.MaxPreviewItems)
	for n, i := range got {
		require.Equal(t, channels[n], i.Channel)
		require.Equal(t, 100, i.Totals.Changed)
		require.Equal(t, 100, len(i.Changes)+i.Omitted)
		require.Positive(t, i.Omitted)
		require.NotEmpty(t, i.Changes)
	}
}

// A cancelled preview ends as cancelled, and sends no more requests.
func TestPreviewCanBeCancelled(t *testing.T) {
	env := (&testsuite.WorkflowTestSuite{}).NewTestWorkflowEnvironment()
	env.RegisterActivityWithOptions(func(ctx context.Context, _ protocol.PreviewRequest) (protocol.PreviewAnswer, error) {
		env.CancelWorkflow()
		<-ctx.Done()
		return protocol.PreviewAnswer{}, ctx.Err()
	}, activity.RegisterOptions{Name: protocol.ActivityPreview})
	env.ExecuteWorkflow(Preview, protocol.PreviewInput{Application: "shop", Items: itemsFor("a")})
	require.True(t, temporal.IsCanceledError(env.GetWorkflowError()))
}
