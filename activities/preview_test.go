package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/fakeruntime"
)

// runtimeWithoutPlanner is a runtime that cannot preview changes.
type runtimeWithoutPlanner struct{ runtimes.Runtime }

// hangingPlanner ignores its deadline.
type hangingPlanner struct{ runtimes.Runtime }

func (hangingPlanner) Plan(context.Context, runtimes.Request) ([]runtimes.Change, error) { select {} }

// previewer returns a function that previews one instance with the activity, as a workflow does.
func previewer(t *testing.T, runtime runtimes.Runtime) func(edit func(*protocol.PreviewRequest)) protocol.ItemPreview {
	store, err := store.Open(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	digest, err := store.PutRuntime(t.Context(), entities.RuntimeDefinition{Name: "rt", Kind: entities.RuntimeFake})
	require.NoError(t, err)
	payload, err := store.PutPayload(t.Context(), entities.Payload{Application: "shop", Service: "web", Channel: "prod", Kind: entities.RuntimeFake})
	require.NoError(t, err)
	a := &Activities{Store: store, Factories: map[entities.RuntimeKind]Factory{
		entities.RuntimeFake: func(entities.RuntimeDefinition) (runtimes.Runtime, error) { return runtime, nil },
	}}
	return func(edit func(*protocol.PreviewRequest)) protocol.ItemPreview {
		t.Helper()
		env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
		env.RegisterActivityWithOptions(a.Preview, activity.RegisterOptions{Name: protocol.ActivityPreview})
		r := protocol.PreviewRequest{Application: "shop", Timeout: time.Minute, Item: protocol.PreviewItem{
			Service: "web", Channel: "prod", Runtime: "rt", RuntimeDigest: digest, FullVersion: "v2", Payload: payload,
		}}
		if edit != nil {
			edit(&r)
		}
		value, err := env.ExecuteActivity(protocol.ActivityPreview, r)
		require.NoError(t, err)
		var answer protocol.PreviewAnswer
		require.NoError(t, value.Get(&answer))
		items, err := answer.Previews()
		require.NoError(t, err)
		require.Len(t, items, 1)
		require.Equal(t, "web prod", items[0].Service+" "+items[0].Channel)
		return items[0]
	}
}

func TestPreviewListsChanges(t *testing.T) {
	rt := fakeruntime.New(nil)
	web := rt.At("shop", "web", "prod")
	ask := previewer(t, rt)
	web.SetVersion("v1")
	require.Equal(t, protocol.ItemPreview{
		Service: "web", Channel: "prod", Totals: protocol.PreviewTotals{Changed: 1},
		Changes: []protocol.PreviewChange{{Action: "update", Type: "fake", Name: "web", Fields: []protocol.PreviewField{
			{Path: "version", Old: `"v1"`, New: `"v2"`},
		}}},
	}, ask(nil))
	require.Zero(t, web.Applies())

	web.SetPlan(
		nil, runtimes.Change{Action: runtimes.ActionPrune}, runtimes.Change{Action: runtimes.ActionOrphan},
		runtimes.Change{Action: runtimes.ActionRefuse, Conflicts: []string{"spec.replicas is owned by hpa"}},
		runtimes.Change{Action: runtimes.ActionRefuse, Message: "denied by a webhook"}, runtimes.Change{Action: runtimes.ActionRecreate},
	)
	require.Equal(t, protocol.PreviewTotals{Changed: 3, Removed: 1, Orphaned: 1, Conflicts: 1, Refused: 1}, ask(nil).Totals)
}

// A removal is previewed as a removal, with the objects that it would delete.
func TestPreviewOfARemoval_A24(t *testing.T) {
	rt := fakeruntime.New(nil)
	web := rt.At("shop", "web", "prod")
	web.SetVersion("v1")
	removal := func(r *protocol.PreviewRequest) { r.Item.Removal = true }
	require.Equal(t, protocol.ItemPreview{
		Service: "web", Channel: "prod", Totals: protocol.PreviewTotals{Removed: 1}, Removal: true,
		Changes: []protocol.PreviewChange{{Action: "remove", Type: "fake", Name: "web"}},
	}, previewer(t, rt)(removal))
	web.SetPlan(nil, runtimes.Change{Action: runtimes.ActionRemove}, runtimes.Change{Action: runtimes.ActionKeep, Message: "a reason"}, runtimes.Change{Action: runtimes.ActionRefuse, Message: "denied"})
	require.Equal(t, protocol.PreviewTotals{Changed: 1, Removed: 1, Orphaned: 1, Refused: 1}, previewer(t, rt)(removal).Totals)
	got := previewer(t, runtimeWithoutPlanner{})(removal)
	require.Equal(t, []any{protocol.PreviewNoPlanner, "runtime rt (fake) cannot preview a removal", true}, []any{got.Code, got.Message, got.Removal})
}

// An error is part of the answer, with a code, and is not retried.
func TestPreviewReturnsErrorsInTheAnswer(t *testing.T) {
	rt := fakeruntime.New(nil)
	web := rt.At("shop", "web", "prod")
	ask := previewer(t, rt)
	check := func(code, message string, got protocol.ItemPreview) {
		t.Helper()
		require.Equal(t, code, got.Code)
		require.Contains(t, got.Message, message)
		require.Empty(t, got.Changes)
	}
	web.SetPlan(errors.New("the cluster is unavailable"))
	check(protocol.PreviewFailed, "the cluster is unavailable", ask(nil))
	web.SetPlan(fmt.Errorf("plan: %w", &entities.ReadingError{Code: "forbidden", Message: "may not patch"}))
	check("forbidden", "may not patch", ask(nil))
	web.SetPlan(fmt.Errorf("plan: %w", errors.ErrUnsupported))
	check(protocol.PreviewNoPlanner, "runtime rt (fake) cannot preview changes", ask(nil))
	check(protocol.PreviewNotReady, "this worker reads the store", ask(func(r *protocol.PreviewRequest) { r.Item.Payload = strings.Repeat("a", 64) }))
	check(protocol.PreviewNotReady, "runtime other", ask(func(r *protocol.PreviewRequest) { r.Item.Runtime = "other" }))
	check(protocol.PreviewNoPlanner, "cannot preview", previewer(t, runtimeWithoutPlanner{})(nil))
	check(protocol.PreviewTimeout, "runtime rt did not answer within 1ms", previewer(t, hangingPlanner{})(func(r *protocol.PreviewRequest) { r.Timeout = time.Millisecond }))
}

// A huge preview is truncated and reports that. Its totals are complete.
func TestPreviewIsBounded(t *testing.T) {
	rt := fakeruntime.New(nil)
	ask := previewer(t, rt)
	var all []runtimes.Change
	for n := range 600 {
		c := runtimes.Change{Action: runtimes.ActionUpdate, Type: "Deployment", Name: entities.DigestOf(n)}
		for f := range 100 {
			c.Fields = append(c.Fields, runtimes.FieldChange{Path: entities.DigestOf(n*100 + f), Old: strings.Repeat("o", 5000)})
		}
		all = append(all, c)
	}
	rt.At("shop", "web", "prod").SetPlan(nil, all...)
	got := ask(nil)
	require.Equal(t, 600, got.Totals.Changed)
	require.Equal(t, 600, len(got.Changes)+got.Omitted)
	require.NotEmpty(t, got.Changes)
	require.Equal(t, 60, got.Changes[0].More)
	require.LessOrEqual(t, len(got.Changes[0].Fields[0].Old), previewValue)
	answer, err := protocol.PackPreview([]protocol.ItemPreview{got, got})
	require.NoError(t, err)
	require.Less(t, len(answer.Packed), 48<<10)
}
