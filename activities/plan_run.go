package activities

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
)

// PlanCommands lists what runs for a piece of work, one after another.
func (a *Activities) PlanCommands(ctx context.Context, w protocol.PlanWork) (out protocol.PlanCommands, err error) {
	inc, err := a.Store.Incarnation(ctx, w.Hash)
	if err != nil {
		return out, err
	}
	work := inc.Work(w.Channel)
	if work == nil {
		return out, refuse("nothing is planned in %s", w.Channel)
	}
	switch w.Kind {
	case protocol.PlanBefore:
		return steps(work.Before), nil
	case protocol.PlanAfter:
		return steps(work.After), nil
	}
	for _, c := range work.CommandsOf(nodeOf(&w)) {
		out.Commands = append(out.Commands, protocol.PlanCommand{Service: c.Service, Run: c.Run})
	}
	return out, nil
}

func steps(all []entities.Extension) (out protocol.PlanCommands) {
	for _, run := range all {
		out.Commands = append(out.Commands, protocol.PlanCommand{Run: run})
	}
	return out
}

func nodeOf(w *protocol.PlanWork) *plan.Node {
	return &plan.Node{Kind: plan.Kind(w.Kind), Service: w.Service, Target: w.Target}
}

// ofPlan stands in the place of a service for what runs for none: no service is named so.
const ofPlan = "_plan"

// PlanRun runs a command of a plan once, as an extension is run. It gets what the plan knows as JSON. While its application, or the
// runtime that it works on, is paused, it is not run.
func (a *Activities) PlanRun(ctx context.Context, r protocol.PlanRunRequest) (protocol.PlanRan, error) {
	inc, err := a.Store.Incarnation(ctx, r.Hash)
	if err != nil {
		return protocol.PlanRan{}, err
	}
	work := inc.Work(r.Channel)
	if work == nil {
		return protocol.PlanRan{}, refuse("nothing is planned in %s", r.Channel)
	}
	input, err := json.Marshal(work.Input(nodeOf(&r.PlanWork)))
	if err != nil {
		return protocol.PlanRan{}, err
	}
	if held := a.held(ctx, r.Application, r.Target); held != nil {
		return protocol.PlanRan{Held: held.Error()}, ctx.Err()
	}
	service, version, named := ofPlan, r.PlanRef.Name, ""
	if name := cmp.Or(r.Command.Service, r.Service); name != "" {
		service = work.KeyOf(name)
		if version, err = a.versionThere(ctx, r.Application, service, r.Channel); err != nil {
			return protocol.PlanRan{}, err
		}
		if record, err := a.Store.Version(ctx, r.Application, service, version); err == nil {
			named = record.Version
		}
	}
	answer, err := a.runExtension(ctx, protocol.ExtensionRequest{
		Application: r.Application, Service: service, Channel: r.Channel, Release: r.PlanRef.Name,
		Version: named, FullVersion: version,
		Name: r.Command.Run.Name, Key: fmt.Sprintf("%s/%s", r.PlanWork, r.Command.Run.Name), Definition: r.Command.Run.Definition,
		Attempt: r.Attempt, Timeout: r.Command.Run.Timeout,
	}, string(input), map[string]string{"CONVERGE_PLAN": r.PlanRef.Name, "CONVERGE_NODE": r.PlanWork.String()})
	return protocol.PlanRan{ExtensionAnswer: answer}, err
}

// versionThere is the full version that a service has in a channel; "": none yet.
func (a *Activities) versionThere(ctx context.Context, application, service, channel string) (string, error) {
	status, err := services{a}.Status(ctx, application, service)
	if err != nil && !errors.Is(err, checks.ErrNoService) {
		return "", err
	}
	for n := range status.Channels {
		if status.Channels[n].Name == channel {
			return status.Channels[n].Target, nil
		}
	}
	return "", nil
}
