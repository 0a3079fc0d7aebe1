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

// MaxWorkflowInput is how much a workflow that applies is given, in bytes: Temporal keeps it in its history.
const MaxWorkflowInput = 48 << 10

// Workflows run workflows of users.
type Workflows interface {
	// RunWorkflow starts one for the attempt, or goes on with the one that was started for it, and returns its result, as JSON, or
	// nothing. When ctx ends because of its time, or because that was asked for (runtimes.ErrAsked), the workflow is cancelled, and in
	// the end terminated; for any other reason it goes on, for whoever takes the attempt over.
	RunWorkflow(ctx context.Context, r WorkflowRequest) ([]byte, error)
}

// WorkflowRequest says which workflow is to run and for what.
type WorkflowRequest struct {
	entities.ApplyWorkflow
	One     string // the instance on its runtime, for which there is one at a time
	Try     string // this attempt at it
	Summary string // for people
	Input   json.RawMessage
	Timeout time.Duration
}

// WorkflowInput is what a workflow that applies is given (D28): what a command has in its environment, but for secrets.
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

// workflowInput puts together what the workflow of an apply gets. Values that are secrets are left out, since anybody who may
// read its history would read them.
func (r *Runtime) workflowInput(in runtimes.Instance) (json.RawMessage, error) {
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
		if own := in.Payload.Custom; own != nil {
			doc.Files = own.Files
			maps.Copy(values, own.Env)
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
		err = fmt.Errorf("its input has %d bytes; at most %d: have it read large files from elsewhere", len(text), MaxWorkflowInput)
	}
	return text, err
}

// applyByWorkflow has a workflow of the user's own apply (D28). What it returns is kept as what a command prints.
func (r *Runtime) applyByWorkflow(ctx context.Context, c call, in runtimes.Instance) (runtimes.Output, error) {
	which := *r.def.Custom.Apply.Workflow
	c.argv = []string{"workflow " + which.Type}
	res := newResult(c, nil)
	input, err := r.workflowInput(in)
	if err != nil {
		return res.out, runtimes.Permanent(res.fail("%w", err))
	}
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	started := time.Now()
	got, err := r.workflows.RunWorkflow(bounded, WorkflowRequest{
		ApplyWorkflow: which, One: in.Owner.Key() + "/" + r.def.Name, Try: cmp.Or(in.Try, in.Key),
		Summary: c.doing, Input: input, Timeout: c.timeout,
	})
	output := res.capture(func() {})
	output.put(res.redact, got, false, nil, false)
	res.keep(output, started, time.Since(started))
	switch {
	case err == nil:
		res.out.ExitCode = 0
		return res.out, nil
	case ctx.Err() == nil && bounded.Err() != nil:
		res.out.TimedOut = true
		err = fmt.Errorf("it did not finish within %s and was ended: %w", c.timeout, err)
	}
	return res.out, res.fail("%s: %w", c.argv[0], err)
}
