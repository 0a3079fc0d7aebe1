package custom

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// MaxWorkflowInput is the limit of the input of a workflow that applies, in bytes: Temporal keeps it in its history.
const MaxWorkflowInput = 48 << 10

// Workflows runs workflows of users.
type Workflows interface {
	// RunWorkflow starts a workflow for the attempt, or continues with the one that was started for it, and returns its result as
	// JSON, or nothing. When ctx ends at its timeout, or because of a request (runtimes.ErrStopRequested), it cancels the workflow, and
	// finally terminates it. When ctx ends for another reason, the workflow continues for the worker that takes the attempt over.
	RunWorkflow(ctx context.Context, r WorkflowRequest) ([]byte, error)
}

// WorkflowRequest is the workflow to run, and its purpose.
type WorkflowRequest struct {
	entities.ApplyWorkflow
	ExclusiveKey string // the instance on its runtime, which has one workflow at a time
	AttemptID    string // the id of this attempt
	Summary      string // for people
	Input        json.RawMessage
	Timeout      time.Duration
}

// WorkflowInput is the input of a workflow that applies (D28): the environment of a command, without secrets.
type WorkflowInput struct {
	Application string            `json:"application"`
	Service     string            `json:"service"`
	ServiceID   string            `json:"serviceId"`
	Channel     string            `json:"channel"`
	Instance    string            `json:"instance,omitempty"`
	Version     string            `json:"version"`
	Runtime     string            `json:"runtime"`
	Restart     bool              `json:"restart,omitempty"`
	Epoch       int64             `json:"epoch,omitempty"`
	Sequence    int64             `json:"sequence,omitempty"`
	Address     map[string]string `json:"address,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	Files       map[string]string `json:"files,omitempty"`
}

// workflowInput builds the input of a workflow for an apply. It omits secrets, since everyone who may read its history could read
// them.
func (r *Runtime) workflowInput(in runtimes.Request) (json.RawMessage, error) {
	doc := WorkflowInput{
		Application: in.Application, Service: in.Service, ServiceID: in.ServiceID, Channel: in.ID.Channel, Instance: in.ID.Name,
		Version: in.FullVersion, Runtime: r.def.Name, Restart: in.Restart, Env: map[string]string{},
	}
	if in.Fence != nil {
		doc.Epoch, doc.Sequence = in.Fence.Epoch, in.Fence.Sequence
	}
	values := map[string]entities.Value{}
	if in.Payload != nil {
		doc.Address = in.Payload.Address
		if payload := in.Payload.Custom; payload != nil {
			doc.Files = payload.Files
			maps.Copy(values, payload.Env)
		}
	}
	maps.Copy(values, r.def.Custom.Env)
	for name, value := range values {
		if !value.IsSecret() {
			doc.Env[name] = value.Literal
		}
	}
	text, err := json.Marshal(doc)
	if err == nil && len(text) > MaxWorkflowInput {
		err = fmt.Errorf("its input has %d bytes; expected at most %d: let the workflow read large files itself", len(text), MaxWorkflowInput)
	}
	return text, err
}

// applyByWorkflow applies by a workflow of the user (D28). Its result is kept in the same way as a command's output.
func (r *Runtime) applyByWorkflow(ctx context.Context, c call, in runtimes.Request) (runtimes.Output, error) {
	workflow := *r.def.Custom.Apply.Workflow
	c.argv = []string{"workflow " + workflow.Type}
	res := newResult(c, nil)
	input, err := r.workflowInput(in)
	if err != nil {
		return res.out, runtimes.Permanent(res.errorf("%w", err))
	}
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	started := time.Now()
	response, err := r.workflows.RunWorkflow(bounded, WorkflowRequest{
		ApplyWorkflow: workflow, ExclusiveKey: in.Owner.Key() + "/" + r.def.Name, AttemptID: cmp.Or(in.AttemptID, in.Key),
		Summary: fmt.Sprintf("apply %s/%s to %s", in.Application, in.Service, in.ID), Input: input, Timeout: c.timeout,
	})
	output := res.capture(func() {})
	output.storeStreams(res.redact, response, false, nil, false)
	res.storeOutput(output, started, time.Since(started))
	switch {
	case err == nil:
		res.out.ExitCode = 0
		return res.out, nil
	case ctx.Err() == nil && bounded.Err() != nil:
		res.out.TimedOut = true
		err = fmt.Errorf("it did not finish within %s and was ended: %w", c.timeout, err)
	}
	return res.out, res.errorf("%s: %w", c.argv[0], err)
}
