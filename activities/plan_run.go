package activities

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
)

// commandBytes limits the commands in one part of an answer. Each part has at least one.
const commandBytes = 32 << 10

// PlanCommands lists the commands of a piece of work, in order.
func (a *Activities) PlanCommands(ctx context.Context, w protocol.PlanCommandsRequest) (out protocol.PlanCommands, err error) {
	if err := a.nameUndeployed(ctx, &w.PlanWork); err != nil {
		return out, err
	}
	inc, err := a.Store.Incarnation(ctx, w.Hash)
	if err != nil {
		return out, err
	}
	work := inc.Work(w.Channel)
	if work == nil {
		return out, refuse("there is no plan in %s", w.Channel)
	}
	switch w.Kind {
	case protocol.PlanBefore:
		return commandPart(stepCommands(work.Before), &w)
	case protocol.PlanAfter:
		return commandPart(stepCommands(work.After), &w)
	}
	node := nodeOf(&w.PlanWork)
	if w.Rerun {
		same, err := a.collectsSameInput(ctx, work, &w.PlanWork)
		if err != nil || same {
			return out, err
		}
	}
	return commandPart(work.CommandsOf(node), &w)
}

// nameUndeployed fills in the names of services that were given as undeployed by their nodes.
func (a *Activities) nameUndeployed(ctx context.Context, w *protocol.PlanWork) error {
	if w.UndeployedNodes == "" {
		return nil
	}
	record, err := a.Store.Plan(ctx, w.PlanRef)
	if err != nil {
		return err
	}
	p, err := a.buildPlan(ctx, &record)
	if err != nil {
		return err
	}
	for n := range min(len(w.UndeployedNodes), len(p.plan.Nodes)) {
		if w.UndeployedNodes[n] == 'x' {
			w.Undeployed = append(w.Undeployed, p.plan.Nodes[n].Service)
		}
	}
	slices.Sort(w.Undeployed)
	w.Undeployed = slices.Compact(w.Undeployed)
	return nil
}

func stepCommands(all []entities.Extension) (out []plan.Command) {
	for _, run := range all {
		out = append(out, plan.Command{Run: run})
	}
	return out
}

// commandPart returns the requested part of the commands. It omits CALLBACK commands of services that were not deployed, because nothing
// was set up for them.
func commandPart(all []plan.Command, r *protocol.PlanCommandsRequest) (out protocol.PlanCommands, err error) {
	size := 0
	for at := r.From; at < len(all); at++ {
		c := protocol.PlanCommand{Service: all[at].Service, Run: all[at].Run, Captures: all[at].Captures, At: at}
		if c.Service != "" && slices.Contains(r.Undeployed, c.Service) && r.Kind == string(plan.Callback) {
			continue
		}
		text, err := json.Marshal(c)
		if err != nil {
			return out, err
		}
		if size += len(text) + 1; size > commandBytes && len(out.Commands) > 0 {
			out.Next = at
			break
		}
		out.Commands = append(out.Commands, c)
	}
	return out, nil
}

func nodeOf(w *protocol.PlanWork) *plan.Node {
	return &plan.Node{Kind: plan.Kind(w.Kind), Service: w.Service, Target: w.Target}
}

// planService is the service name of commands that run for no service. No service can have this name.
const planService = "_plan"

// PlanRun runs a command of a plan once, in the same way as an extension. The command gets the state of the plan as JSON. It does not run
// while its application, or the runtime that it works on, is paused.
func (a *Activities) PlanRun(ctx context.Context, r protocol.PlanRunRequest) (protocol.PlanRunAnswer, error) {
	if err := a.nameUndeployed(ctx, &r.PlanWork); err != nil {
		return protocol.PlanRunAnswer{}, err
	}
	inc, err := a.Store.Incarnation(ctx, r.Hash)
	if err != nil {
		return protocol.PlanRunAnswer{}, err
	}
	work := inc.Work(r.Channel)
	if work == nil {
		return protocol.PlanRunAnswer{}, refuse("there is no plan in %s", r.Channel)
	}
	if r.Kind == protocol.PlanBefore {
		if reason, err := a.supersededReason(ctx, r.PlanRef); err != nil || reason != "" {
			return protocol.PlanRunAnswer{ExtensionAnswer: protocol.ExtensionAnswer{Err: reason}}, err
		}
	}
	if pauseErr := a.checkPaused(ctx, r.Application, r.Target); pauseErr != nil {
		return protocol.PlanRunAnswer{HoldReason: pauseErr.Error()}, ctx.Err()
	}
	options := commandOptions{
		env:      map[string]string{"CONVERGE_PLAN": r.PlanRef.Name, "CONVERGE_NODE": r.PlanWork.String()},
		reported: a.stepFiller(r.PlanRef), reportsValues: r.Kind == protocol.PlanBefore,
	}
	if err := a.fillInput(ctx, work, &r.PlanWork, &options); err != nil {
		return protocol.PlanRunAnswer{ExtensionAnswer: protocol.ExtensionAnswer{Err: runtimes.ClipMessage(err.Error(), tailSize)}}, ctx.Err()
	}
	if len(r.Command.Captures) > 0 {
		lastCaptured, recapture, err := a.lastCapture(ctx, &r)
		if err != nil || !recapture {
			return protocol.PlanRunAnswer{}, err
		}
		options.capture = func(stdout []byte) error { return a.capture(ctx, work, &r, lastCaptured, stdout) }
	}
	service, version, versionName, err := a.commandTarget(ctx, work, &r)
	if errors.Is(err, checks.ErrEnded) {
		return protocol.PlanRunAnswer{HoldReason: err.Error()}, ctx.Err()
	}
	if err != nil {
		return protocol.PlanRunAnswer{}, err
	}
	answer, err := a.runExtension(ctx, protocol.ExtensionRequest{
		Application: r.Application, Service: service, Channel: r.Channel, Release: r.PlanRef.Name,
		Version: versionName, FullVersion: version,
		Name: r.Command.Run.Name, Key: fmt.Sprintf("%s/%s", r.PlanWork, r.Command.Run.Name), Definition: r.Command.Run.Definition,
		Attempt: r.Attempt, Timeout: r.Command.Run.Timeout,
	}, options)
	return protocol.PlanRunAnswer{ExtensionAnswer: answer}, err
}

// commandTarget returns the service that a command of a plan runs for, with its full version there and the version's display name; or the
// plan.
func (a *Activities) commandTarget(ctx context.Context, work *plan.Work, r *protocol.PlanRunRequest) (service, version, versionName string, err error) {
	name := cmp.Or(r.Command.Service, r.Service)
	if name == "" {
		return planService, r.PlanRef.Name, "", nil
	}
	service = work.KeyOf(name)
	if version, err = a.currentVersion(ctx, r.Application, service, r.Channel); err != nil {
		return "", "", "", err
	}
	if record, err := a.Store.Version(ctx, r.Application, service, version); err == nil {
		versionName = record.Version
	}
	return service, version, versionName, nil
}

// currentVersion returns the full version that a service has in a channel; "": none yet.
func (a *Activities) currentVersion(ctx context.Context, application, service, channel string) (string, error) {
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
