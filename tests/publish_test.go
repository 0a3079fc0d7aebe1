package tests

import (
	"fmt"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// publish makes the directory the newest incarnation.
func (w *world) publish() protocol.PublishAnswer {
	w.t.Helper()
	ctx := w.t.Context()
	config, err := intent.LoadWith(w.dir, intent.Options{AllowFake: true})
	require.NoError(w.t, err)
	compiled, err := intent.Compile(config)
	require.NoError(w.t, err)
	store, err := intent.OpenStore(ctx, w.store)
	require.NoError(w.t, err)
	specs, err := compiled.Specs()
	require.NoError(w.t, err)
	hash, err := store.PutIncarnation(ctx, compiled.Incarnation)
	require.NoError(w.t, err)
	for _, d := range compiled.Runtimes {
		_, err := store.PublishRuntime(ctx, d)
		require.NoError(w.t, err)
	}
	for _, spec := range specs {
		_, err := store.PutSpec(ctx, spec)
		require.NoError(w.t, err)
	}
	manifest, err := store.PutManifest(ctx, intent.ManifestOf(specs))
	require.NoError(w.t, err)
	start := w.client.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
		ID: protocol.ApplicationID(w.app), TaskQueue: protocol.TaskQueue,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, protocol.ApplicationWorkflow, protocol.ApplicationInput{Application: w.app})
	handle, err := w.client.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start,
		UpdateOptions: client.UpdateWorkflowOptions{
			UpdateName: protocol.Publish, WaitForStage: client.WorkflowUpdateStageCompleted,
			Args: []any{protocol.PublishRequest{Act: protocol.Act{By: "test"}, Hash: hash, Manifest: manifest, Services: len(specs), Store: w.store, Origin: protocol.Origin{Path: w.dir}}},
		},
	})
	require.NoError(w.t, err)
	var answer protocol.PublishAnswer
	require.NoError(w.t, handle.Get(ctx, &answer))
	temporaltest.WaitFor(w.t, patience, func() (bool, string) {
		var s protocol.ApplicationStatus
		value, err := w.client.QueryWorkflow(ctx, protocol.ApplicationID(w.app), "", protocol.QueryStatus)
		require.NoError(w.t, err)
		require.NoError(w.t, value.Get(&s))
		return s.Told == manifest, fmt.Sprint(s)
	})
	return answer
}
