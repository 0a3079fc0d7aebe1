package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
)

// This file is what a plan that runs asks of the store and of services (E8–E14). A plan's workflow knows letters for states; what they
// are of, which services may enter, and what newer plans there are, lies in the store.

// StartPlan starts a plan, unless it runs.
func (a *Activities) StartPlan(ctx context.Context, of protocol.PlanRef, asked protocol.PlanAsked) error {
	_, err := StartPlan(ctx, a.Client, of, asked)
	return err
}

// StartPlan starts a plan for whoever has a client, or finds the one that runs.
func StartPlan(ctx context.Context, c client.Client, of protocol.PlanRef, asked protocol.PlanAsked) (client.WorkflowRun, error) {
	return c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: of.ID(), TaskQueue: protocol.TaskQueue,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary:            fmt.Sprintf("plan %s of %s in %s", of.Name, of.Application, of.Channel),
		StaticDetails:            "In which order services are deployed and fitted together. Its status query says how far it is.",
		TypedSearchAttributes:    temporal.NewSearchAttributes(attrApplication.ValueSet(of.Application)),
	}, protocol.PlanWorkflow, protocol.PlanInput{PlanRef: of, PlanAsked: asked, Logic: protocol.Logic})
}

// planned is what a record is of.
type planned struct {
	work *plan.Work
	plan *plan.Plan
}

// deploys are the nodes of DEPLOY of a service.
func (p *planned) deploys(name string) (nodes []int) {
	for n := range p.plan.Nodes {
		if p.plan.Nodes[n].Kind == plan.Deploy && p.plan.Nodes[n].Service == name {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// planOf builds what a record is of: the same each time.
func (a *Activities) planOf(ctx context.Context, r *protocol.PlanRecord) (planned, error) {
	key := entities.DigestOf(r.PlanRef, r.Hash, r.All, r.Scope, r.Eager)
	return a.plans.get(key, longestLately, func() (planned, error) {
		inc, err := a.Store.Incarnation(ctx, r.Hash)
		if err != nil {
			return planned{}, err
		}
		work := inc.Work(r.Channel)
		if work == nil {
			return planned{}, refuse("incarnation %d plans nothing in %s", r.Incarnation, r.Channel)
		}
		p, err := work.Plan(plan.Scope{All: r.All, Changed: r.Scope, Eager: r.Eager})
		if err != nil {
			return planned{}, refuse("%s", err)
		}
		return planned{work, p}, nil
	})
}

// deploying tells whether a node is a DEPLOY that was let in and is not over.
func (p *planned) deploying(so []plan.Progress, n int) bool {
	return p.plan.Nodes[n].Kind == plan.Deploy && (so[n].State == plan.Running || so[n].State == plan.Held)
}

// PlanBegin answers what a plan does and how far it is. One that nothing is known of, or that is over and asked for once more, begins
// anew: what was deployed is found deployed. One that was cut off goes on where it was: what was under way runs again.
func (a *Activities) PlanBegin(ctx context.Context, in protocol.PlanInput) (protocol.PlanBegun, error) {
	if err := checkPlan(in.PlanRef); err != nil {
		return protocol.PlanBegun{}, err
	}
	r, err := a.Store.Plan(ctx, in.PlanRef)
	switch {
	case store.IsNotFound(err), store.IsDamaged(err), err == nil && !in.Goes && (r.Over || r.Release != in.Release):
		r, err = a.newPlan(ctx, in)
	}
	if err != nil {
		return protocol.PlanBegun{}, err
	}
	p, err := a.planOf(ctx, &r)
	if err != nil {
		return protocol.PlanBegun{}, err
	}
	r.Nodes = resumed(p.plan, r.Nodes)
	r.Before, r.After = stepsOf(r.Before, p.work.Before), stepsOf(r.After, p.work.After)
	if err := a.Store.PutPlan(ctx, r); err != nil {
		return protocol.PlanBegun{}, err
	}
	if err := a.Store.RunPlan(ctx, r.PlanRef); err != nil {
		return protocol.PlanBegun{}, err
	}
	if r.Release == "" {
		if err := a.Store.MarkPlan(ctx, r.Application, r.Channel, store.PlanNewest, r.Incarnation); err != nil {
			return protocol.PlanBegun{}, err
		}
	}
	packed, err := protocol.Pack(p.plan)
	limit := p.work.Limit
	if r.Limit > 0 {
		limit = r.Limit
	}
	return protocol.PlanBegun{Hash: r.Hash, Plan: packed, Limit: limit, PlanState: r.PlanState}, err
}

// checkPlan refuses names that no plan has.
func checkPlan(of protocol.PlanRef) error {
	for _, name := range []string{of.Application, of.Channel} {
		if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\\\x00") || len(name) > 200 {
			return refuse("there is no plan %q", of.ID())
		}
	}
	if of.Name == "" || len(of.Name) > 500 {
		return refuse("there is no plan %q", of.ID())
	}
	return nil
}

// resumed are the nodes as they go on: a command that was under way is begun once more, what is deployed is followed.
func resumed(p *plan.Plan, letters string) string {
	so := p.Read(letters)
	for n := range so {
		if p.Nodes[n].Kind != plan.Deploy && (so[n].State == plan.Running || so[n].State == plan.Held) {
			so[n].State = plan.Waiting
		}
	}
	return plan.Letters(so)
}

// stepsOf has a letter for each step: those that were not done come again.
func stepsOf(letters string, steps []entities.Extension) string {
	out := []byte(letters + strings.Repeat(".", max(0, len(steps)-len(letters))))[:len(steps)]
	for n := range out {
		if out[n] != plan.Done.Letter() {
			out[n] = plan.Waiting.Letter()
		}
	}
	return string(out)
}

// newPlan is a plan of which nothing is done.
func (a *Activities) newPlan(ctx context.Context, in protocol.PlanInput) (protocol.PlanRecord, error) {
	number, err := a.Store.Number(ctx, in.Application, in.Incarnation)
	if store.IsNotFound(err) {
		err = refuse("there is no incarnation %d of %s", in.Incarnation, in.Application)
	}
	if err != nil {
		return protocol.PlanRecord{}, err
	}
	r := protocol.PlanRecord{PlanRef: in.PlanRef, PlanAsked: in.PlanAsked, Hash: number.Hash}
	inc, err := a.Store.Incarnation(ctx, r.Hash)
	if err != nil {
		return r, err
	}
	work := inc.Work(in.Channel)
	if work == nil {
		return r, refuse("incarnation %d plans nothing in %s", in.Incarnation, in.Channel)
	}
	switch {
	case in.Whole:
		r.All = true
	case len(in.Changed) > 0:
		r.Scope = in.Changed
	case in.Release != "":
		for _, key := range in.Services {
			if name, found := work.Called(key); found {
				r.Scope = append(r.Scope, name)
			}
		}
	default:
		r.Scope, r.All, err = a.changedSince(ctx, work, number)
	}
	slices.Sort(r.Scope)
	return r, err
}

// changedSince lists the services that are otherwise in a channel than with the last incarnation whose plan was done whole there.
// Without one: all.
func (a *Activities) changedSince(ctx context.Context, work *plan.Work, now protocol.Incarnation) (names []string, all bool, err error) {
	base, err := a.Store.PlanMarked(ctx, work.Application, work.Channel, store.PlanWhole)
	if err != nil || base == 0 || base > now.Number {
		return nil, true, err
	}
	before, err := a.Store.Number(ctx, work.Application, base)
	if store.IsNotFound(err) || store.IsDamaged(err) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	inc, err := a.Store.Incarnation(ctx, before.Hash)
	if err != nil {
		return nil, false, err
	}
	if was := inc.Work(work.Channel); was != nil {
		names = work.Changed(was)
	}
	was, err := a.Store.Manifest(ctx, before.Manifest)
	if err != nil {
		return nil, false, err
	}
	is, err := a.Store.Manifest(ctx, now.Manifest)
	if err != nil {
		return nil, false, err
	}
	for n := range work.Services {
		name := work.Services[n].Name
		key := work.KeyOf(name)
		changed, err := a.changedIn(ctx, work.Channel, was[key], is[key])
		if err != nil {
			return nil, false, err
		}
		if changed {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), false, nil
}

// changedIn tells whether two specs, by their digests, bring different things to a channel.
func (a *Activities) changedIn(ctx context.Context, channel, was, is string) (bool, error) {
	if was == is {
		return false, nil
	}
	if was == "" || is == "" {
		return true, nil
	}
	old, err := a.Store.Spec(ctx, was)
	if err != nil {
		return false, err
	}
	now, err := a.Store.Spec(ctx, is)
	if err != nil {
		return false, err
	}
	return broughtTo(&old, channel) != broughtTo(&now, channel), nil
}

func broughtTo(s *entities.Spec, channel string) string {
	c, _ := s.Channel(channel)
	brought := map[string][2]string{}
	for _, i := range c.Instances {
		brought[i.Name] = [2]string{i.Runtime, i.Template}
	}
	return entities.DigestOf(brought)
}

// PlanKeep keeps how far a plan is, and lets services enter whose DEPLOY runs. It may come twice, and says the same then.
func (a *Activities) PlanKeep(ctx context.Context, k protocol.PlanKeepRequest) error {
	r, err := a.Store.Plan(ctx, k.PlanRef)
	if err != nil {
		return err
	}
	r.PlanState = k.PlanState
	if err := a.Store.PutPlan(ctx, r); err != nil {
		return err
	}
	p, err := a.planOf(ctx, &r)
	if err != nil {
		return err
	}
	so := p.plan.Read(r.Nodes)
	if !r.Over {
		return a.letEnter(ctx, &r, &p, so)
	}
	undone := slices.ContainsFunc(so, func(s plan.Progress) bool { return s.State != plan.Done }) || strings.Trim(r.Before+r.After, "d") != ""
	if r.Release == "" && len(r.Changed) == 0 && r.Ended == "" && !undone {
		if err := a.Store.MarkPlan(ctx, r.Application, r.Channel, store.PlanWhole, r.Incarnation); err != nil {
			return err
		}
	}
	return a.Store.EndPlan(ctx, r.PlanRef)
}

// letEnter lets services enter whose DEPLOY runs.
func (a *Activities) letEnter(ctx context.Context, r *protocol.PlanRecord, p *planned, so []plan.Progress) error {
	for n := range so {
		if !p.deploying(so, n) {
			continue
		}
		if err := a.Store.GrantPlan(ctx, r.PlanRef, store.PlanGrant{Service: p.work.KeyOf(p.plan.Nodes[n].Service), Release: r.Release}); err != nil {
			return err
		}
	}
	return nil
}

// planEvery is the least time between two looks at what is deployed. Where asking takes long, it is four times that.
const planEvery = 500 * time.Millisecond

// PlanFollow answers once some DEPLOY that runs is otherwise than is kept, or once a newer plan takes the place of this one. It goes by
// what the store has, so that what begins meanwhile is followed too, and lets services enter again that lost that.
func (a *Activities) PlanFollow(ctx context.Context, of protocol.PlanRef) (protocol.PlanFollowed, error) {
	beating, stop := context.WithCancel(ctx)
	defer stop()
	go heartbeats(beating, nil)
	for {
		began := time.Now()
		found, err := a.followed(ctx, of)
		if ctx.Err() != nil { // the plan is over, or another worker goes on
			return protocol.PlanFollowed{}, nil
		}
		if err != nil || found.Superseded || len(found.Nodes) > 0 {
			return found, err
		}
		_ = pauseFor(ctx, max(planEvery, 4*time.Since(began)))
	}
}

// mostNews bounds the nodes in an answer.
const mostNews = 200

// followed is one look.
func (a *Activities) followed(ctx context.Context, of protocol.PlanRef) (found protocol.PlanFollowed, err error) {
	r, err := a.Store.Plan(ctx, of)
	if err != nil {
		return found, err
	}
	p, err := a.planOf(ctx, &r)
	if err != nil {
		return found, err
	}
	so := p.plan.Read(r.Nodes)
	if err := a.letEnter(ctx, &r, &p, so); err != nil {
		return found, err
	}
	if r.Release == "" && strings.ContainsRune(r.Nodes, '.') {
		newest, err := a.Store.PlanMarked(ctx, of.Application, of.Channel, store.PlanNewest)
		if err != nil {
			return found, err
		}
		found.Superseded = newest > r.Incarnation
	}
	says, err := a.deployed(ctx, &r, &p, so)
	if err != nil {
		return found, err
	}
	found.Nodes = news(&r, &p, so, says)
	return found, nil
}

// news are the nodes of which services say otherwise than is kept.
func news(r *protocol.PlanRecord, p *planned, so []plan.Progress, says map[string]protocol.Deployed) (nodes []protocol.PlanNode) {
	for n := range so {
		d, asked := says[p.plan.Nodes[n].Service]
		if !asked || !p.deploying(so, n) {
			continue
		}
		same := string(so[n].State) == d.State && (so[n].State != plan.Held || withoutNumbers(noteOf(r, n)) == withoutNumbers(d.Text))
		if !same && len(nodes) < mostNews {
			nodes = append(nodes, protocol.PlanNode{Node: n, State: d.State, Text: d.Text})
		}
	}
	return nodes
}

// withoutNumbers is a text of which numbers come and go.
func withoutNumbers(text string) string {
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, text)
}

// deployed asks the services whose DEPLOY runs, by name. One that cannot be asked is asked again.
func (a *Activities) deployed(ctx context.Context, r *protocol.PlanRecord, p *planned, so []plan.Progress) (map[string]protocol.Deployed, error) {
	var names []string
	for n := range so {
		if p.deploying(so, n) {
			names = append(names, p.plan.Nodes[n].Service)
		}
	}
	names = slices.Compact(names) // nodes are ordered
	says, errs := make([]protocol.Deployed, len(names)), make([]error, len(names))
	ask, err := a.deployedOf(ctx, r, p.work)
	if err != nil {
		return nil, err
	}
	atOnce(len(names), func(n int) { says[n], errs[n] = ask(ctx, names[n]) })
	out := map[string]protocol.Deployed{}
	for n, name := range names {
		if errs[n] == nil {
			out[name] = says[n]
		}
	}
	return out, ctx.Err()
}

// deployedOf is how to ask a service, by its name, how far it is with what a plan deploys.
func (a *Activities) deployedOf(ctx context.Context, r *protocol.PlanRecord, work *plan.Work) (func(context.Context, string) (protocol.Deployed, error), error) {
	question := protocol.DeployedQuestion{Channel: r.Channel, Release: r.Release}
	var manifest incarnation.Manifest
	if r.Release == "" {
		base, err := a.Store.PlanMarked(ctx, r.Application, r.Channel, store.PlanWhole)
		if err != nil {
			return nil, err
		}
		question.Incarnation, question.Since = r.Incarnation, base+1
		newest, known, err := services{a}.Newest(ctx, r.Application)
		if err != nil {
			return nil, err
		}
		if newest == r.Incarnation {
			manifest = known
		}
	}
	return func(ctx context.Context, name string) (d protocol.Deployed, err error) {
		key := work.KeyOf(name)
		if r.Release != "" && !slices.Contains(r.Services, key) {
			return protocol.Deployed{State: string(plan.Done)}, nil // it is only fitted together with what was released
		}
		err = services{a}.ask(ctx, protocol.ServiceID(r.Application, key), &d, protocol.QueryDeployed, question)
		switch {
		case errors.Is(err, checks.ErrNoService):
			return protocol.Deployed{State: string(plan.Held), Text: "it has not started"}, nil
		case err == nil && manifest != nil && d.Spec != manifest[key]:
			return protocol.Deployed{State: string(plan.Running), Text: "it is about to take the configuration over"}, nil
		}
		return d, err
	}, nil
}
