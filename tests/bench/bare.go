package main

import (
	"context"
	"encoding/json"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/protocol"
)

// bareQueue keeps the reference apart from Converge; both are in this process, on one connection.
const bareQueue = "bare"

// bare is the least that Temporal can do between a signal and the start of an activity: what every
// engine built on it pays.
type bare struct {
	client client.Client
	worker worker.Worker
	begun  chan time.Time // an activity began
	done   chan struct{}  // the workflow has its result
}

// startBare serves the reference with the options that Converge's own worker has.
func startBare(c client.Client) (*bare, error) {
	b := &bare{client: c, begun: make(chan time.Time, 1), done: make(chan struct{}, 1)}
	b.worker = worker.New(c, bareQueue, worker.Options{WorkerStopTimeout: 5 * time.Second})
	b.worker.RegisterWorkflowWithOptions(b.onSignal, workflow.RegisterOptions{Name: "Bare"})
	b.worker.RegisterActivity(b.Begin)
	return b, b.worker.Start()
}

// onSignal starts one activity for each signal, eagerly, as the SDK does by itself.
func (b *bare) onSignal(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	signals := workflow.GetSignalChannel(ctx, protocol.Release)
	for {
		var payload json.RawMessage
		signals.Receive(ctx, &payload)
		if err := workflow.ExecuteActivity(ctx, "Begin", payload).Get(ctx, nil); err != nil {
			return err
		}
		if !workflow.IsReplaying(ctx) {
			b.done <- struct{}{}
		}
	}
}

// Begin is the activity.
func (b *bare) Begin(context.Context, json.RawMessage) error {
	b.begun <- time.Now()
	return nil
}

// start begins one more workflow to signal.
func (b *bare) start(ctx context.Context, id string) error {
	_, err := b.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: bareQueue}, "Bare")
	return err
}

// cycle signals a workflow and waits for its activity, and until the workflow rests again.
func (b *bare) cycle(ctx context.Context, id, version string) (sent, begun time.Time, err error) {
	sent, err = signalRelease(ctx, b.client, id, version)
	if err != nil {
		return sent, begun, err
	}
	if begun, err = receive(ctx, b.begun); err != nil {
		return sent, begun, err
	}
	_, err = receive(ctx, b.done)
	return sent, begun, err
}

func receive[T any](ctx context.Context, c <-chan T) (T, error) {
	select {
	case v := <-c:
		return v, nil
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
