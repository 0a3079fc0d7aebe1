package activities

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// This file is the condition that each service of a plan waits for. It relies only on the store. A service that waits for a plan that
// does not exist starts the plan.

// planGate decides whether plans let services enter.
type planGate struct{ *Activities }

var _ checks.Plans = planGate{}

// gateRequest is a service that waits for a plan.
type gateRequest struct {
	checks.PlanQuestion
	ref     protocol.PlanRef
	request protocol.PlanTask
	joint   bool             // it is part of a joint release
	earlier protocol.PlanRef // another plan that may have let it enter
}

// Admission implements checks.Plans.
func (g planGate) Admission(ctx context.Context, q checks.PlanQuestion) (checks.PlanAdmission, error) {
	of, err := g.planFor(ctx, q)
	if err != nil {
		return checks.PlanAdmission{}, err
	}
	for _, ref := range []protocol.PlanRef{of.ref, of.earlier} {
		entered, err := g.Store.PlanGranted(ctx, ref, store.PlanGrant{Service: q.Service, Release: of.request.Release})
		if err != nil || entered {
			return checks.PlanAdmission{Enter: entered, Reason: "plan " + ref.Name + " lets it enter"}, err
		}
	}
	if planned, err := g.isPlanned(ctx, of); err != nil || !planned {
		return checks.PlanAdmission{Enter: err == nil, Reason: fmt.Sprintf("incarnation %d has no plan for it", of.request.Incarnation)}, err
	}
	r, err := g.Store.Plan(ctx, of.ref)
	switch {
	case store.IsNotFound(err), store.IsDamaged(err):
		return g.startPlan(ctx, of)
	case err != nil:
		return checks.PlanAdmission{}, err
	case r.Release != of.request.Release && r.Over:
		return g.startPlan(ctx, of)
	case r.Release != of.request.Release: // the same version was released again in the meantime
		entered, err := g.Store.PlanGranted(ctx, of.ref, store.PlanGrant{Service: q.Service, Release: r.Release})
		return checks.PlanAdmission{Enter: entered, Reason: "plan " + of.ref.Name + " runs for an earlier release", RetryAfter: time.Second}, err
	}
	return g.admissionIn(ctx, of, &r)
}

// planFor returns the plan that deploys a release. For a configuration change it is the plan of the newest incarnation that has one.
func (g planGate) planFor(ctx context.Context, q checks.PlanQuestion) (gateRequest, error) {
	of := gateRequest{PlanQuestion: q, ref: protocol.PlanRef{Application: q.Application, Channel: q.Channel}, request: protocol.PlanTask{Incarnation: q.Incarnation}}
	if q.Config {
		newest, err := g.Store.PlanMarked(ctx, q.Application, q.Channel, store.PlanStarted)
		of.request.Incarnation = max(newest, q.Incarnation)
		of.ref = protocol.PlanOfIncarnation(q.Application, q.Channel, of.request.Incarnation)
		of.earlier = protocol.PlanOfIncarnation(q.Application, q.Channel, q.Incarnation)
		return of, err
	}
	of.request.Release = q.Release
	newest, err := g.Store.PlanMarked(ctx, q.Application, q.Channel, store.PlanStarted)
	if err != nil {
		return of, err
	}
	of.request.Incarnation = max(newest, q.Incarnation) // names and routes come from the newest configuration
	joint, err := g.Store.Joint(ctx, q.Application, q.Release)
	switch {
	case err == nil:
		of.ref.Name, of.request.Services, of.joint = joint.ID, entities.SortedKeys(joint.Services), true
	case store.IsNotFound(err):
		of.ref.Name, of.request.Services = q.Title+"-"+q.Version, []string{q.Service}
		err = nil
	}
	of.earlier = of.ref
	return of, err
}

// isPlanned reports whether the incarnation has a plan for the service in that channel.
func (g planGate) isPlanned(ctx context.Context, of gateRequest) (bool, error) {
	number, err := g.Store.Number(ctx, of.Application, of.request.Incarnation)
	if err != nil {
		return false, err
	}
	inc, err := g.Store.Incarnation(ctx, number.Hash)
	if err != nil {
		return false, err
	}
	work := inc.Work(of.Channel)
	if work == nil {
		return false, nil
	}
	_, found := work.ServiceByKey(of.Service)
	return found, nil
}

func (g planGate) startPlan(ctx context.Context, of gateRequest) (checks.PlanAdmission, error) {
	err := g.StartPlan(ctx, of.ref, of.request)
	return checks.PlanAdmission{Reason: "plan " + of.ref.Name + " is starting", RetryAfter: time.Second}, err
}

// admissionIn returns the state of the service in an existing plan.
func (g planGate) admissionIn(ctx context.Context, of gateRequest, r *protocol.PlanRecord) (checks.PlanAdmission, error) {
	p, err := g.buildPlan(ctx, r)
	if err != nil {
		return checks.PlanAdmission{}, err
	}
	name, _ := p.work.ServiceByKey(of.Service)
	nodes := p.deployNodes(name)
	if len(nodes) == 0 {
		return checks.PlanAdmission{Enter: true, Reason: "plan " + r.Name + " does not deploy it"}, nil
	}
	s := checks.PlanAdmission{Final: r.Over, RetryAfter: askAgain(len(p.plan.Nodes))}
	progress, n := p.plan.ReadLetters(r.Nodes), nodes[0]
	switch {
	case r.StepError != "":
		s.Reason = fmt.Sprintf("waits for the steps before plan %s: %s", r.Name, r.StepError)
	case progress[n].State == plan.Blocked:
		return g.blocked(ctx, of, r, &p, progress[n].Cause, s)
	case r.Ended != "":
		s.Reason = fmt.Sprintf("plan %s was %s before it was deployed", r.Name, r.Ended)
	default:
		s.Reason = waitReason(r, &p, progress, n)
	}
	if r.Over {
		s.Reason += "; to run it again: " + of.rerunCommand()
	}
	return s, nil
}

// blocked reports the failed node that a service waits for. A finished plan starts again if the failed deployment is done
// in the meantime.
func (g planGate) blocked(ctx context.Context, of gateRequest, r *protocol.PlanRecord, p *planned, cause int, s checks.PlanAdmission) (checks.PlanAdmission, error) {
	failed := &p.plan.Nodes[cause]
	s.Reason = fmt.Sprintf("waits for %s in plan %s, which failed%s", failed, r.Name, entities.Because(noteOf(r, cause)))
	if !r.Over {
		return s, nil
	}
	if failed.Kind == plan.Deploy { // a command keeps failing until a person fixes it
		query, err := g.deployedQuery(ctx, r, p)
		if err != nil {
			return s, err
		}
		now, err := query(ctx, failed.Service)
		if err == nil && now.State == string(plan.Done) {
			return g.startPlan(ctx, of)
		}
	}
	s.Reason += "; to run it again: " + of.rerunCommand()
	return s, nil
}

// rerunCommand returns the command that runs a plan again. The plan of a release runs again only for another release of the same version. A
// deploy does not run it, because a deploy covers configuration changes.
func (of gateRequest) rerunCommand() string {
	switch {
	case of.request.Release == "":
		return fmt.Sprintf("converge run start %s %s", of.Application, of.Channel)
	case of.joint:
		return fmt.Sprintf("converge release %s SVC=VERSION... --id, with another id than %s", of.Application, of.ref.Name)
	}
	return fmt.Sprintf("converge release %s/%s %s", of.Application, of.Title, of.Version)
}

func noteOf(r *protocol.PlanRecord, node int) string {
	for _, n := range r.Notes {
		if n.Node == node {
			return n.Text
		}
	}
	return ""
}

// waitReason says what a node waits for.
func waitReason(r *protocol.PlanRecord, p *planned, progress []plan.Progress, n int) string {
	for _, m := range p.plan.Nodes[n].Needs {
		if progress[m].State != plan.Done {
			state := cmp.Or(string(progress[m].State), "waiting")
			return fmt.Sprintf("waits for %s in plan %s, which is %s%s", &p.plan.Nodes[m], r.Name, state, entities.Because(noteOf(r, m)))
		}
	}
	running := 0
	for m := range progress {
		if progress[m].State == plan.Running {
			running++
		}
	}
	return fmt.Sprintf("waits in plan %s; %d nodes are running", r.Name, running)
}

// askAgain returns the delay before a service without a hint queries a plan again. It grows with the number of nodes, because many
// services query a large plan.
func askAgain(nodes int) time.Duration {
	return min(max(time.Duration(nodes)*100*time.Millisecond, 5*time.Second), 30*time.Second)
}
