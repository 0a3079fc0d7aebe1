package activities

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

// This file contains the activities that a running plan needs from the store and from services (E8–E14). A plan's workflow keeps only
// letters for states. The store has the nodes that they belong to, the services that may enter, and newer plans.

// StartPlan starts a plan, unless it is running.
func (a *Activities) StartPlan(ctx context.Context, of protocol.PlanRef, request protocol.PlanTask) error {
	_, err := StartPlan(ctx, a.Client, a.Store, of, request)
	return err
}

// StartPlan starts a plan with a client, or returns the running one.
func StartPlan(ctx context.Context, c client.Client, at *store.Store, of protocol.PlanRef, request protocol.PlanTask) (client.WorkflowRun, error) {
	if raw, err := json.Marshal(request); err != nil || len(raw) > protocol.MaxAnswer {
		return nil, refuse("plan %s: the service names take %d bytes; expected at most %d: name fewer services, or all", of.Name, len(raw), protocol.MaxAnswer)
	}
	rules, err := at.Rules(ctx)
	if err != nil {
		rules.Board = "" // a plan does not fail for want of a link
	}
	return c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: of.ID(), TaskQueue: protocol.TaskQueue,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary:            fmt.Sprintf("plan %s of %s in %s", of.Name, of.Application, of.Channel),
		StaticDetails: "The order in which services are deployed and integrated. Its status query shows the progress." +
			entities.BoardMarkdown(entities.BoardPage(rules.Board, "applications", of.Application, "plans", of.Channel)),
		TypedSearchAttributes: temporal.NewSearchAttributes(attrApplication.ValueSet(of.Application)),
	}, protocol.PlanWorkflow, protocol.PlanInput{PlanRef: of, PlanTask: request})
}

// planned is the plan that a record belongs to.
type planned struct {
	work *plan.Work
	plan *plan.Plan
	// nodes are the DEPLOY nodes, and keys the identifiers in workflows and in the store, by service name.
	nodes map[string][]int
	keys  map[string]string
}

func newPlanned(work *plan.Work, p *plan.Plan) planned {
	out := planned{work: work, plan: p, nodes: map[string][]int{}, keys: map[string]string{}}
	for n := range p.Nodes {
		if name := p.Nodes[n].Service; p.Nodes[n].Kind == plan.Deploy {
			out.nodes[name] = append(out.nodes[name], n)
		}
	}
	for n := range work.Services {
		name := work.Services[n].Name
		out.keys[name] = cmp.Or(work.Services[n].Key, name)
	}
	return out
}

// deployNodes returns the DEPLOY nodes of a service.
func (p *planned) deployNodes(name string) []int { return p.nodes[name] }

// keyOf returns the identifier of a service in workflows and in the store.
func (p *planned) keyOf(name string) string { return cmp.Or(p.keys[name], name) }

// buildPlan builds the plan of a record. It is deterministic.
func (a *Activities) buildPlan(ctx context.Context, r *protocol.PlanRecord) (planned, error) {
	key := entities.DigestOf(r.PlanRef, r.Hash, r.All, r.Scope, r.Eager)
	return a.plans.get(key, maxCacheTTL, func() (planned, error) {
		inc, err := a.Store.Incarnation(ctx, r.Hash)
		if err != nil {
			return planned{}, err
		}
		work := inc.Work(r.Channel)
		if work == nil {
			return planned{}, refuse("incarnation %d has no plan in %s", r.Incarnation, r.Channel)
		}
		p, err := work.Plan(plan.Scope{All: r.All, Changed: r.Scope, Eager: r.Eager})
		if err != nil {
			return planned{}, refuse("%s", err)
		}
		return newPlanned(work, p), nil
	})
}

// isDeploying reports whether a node is a DEPLOY that has started and is not over.
func (p *planned) isDeploying(progress []plan.Progress, n int) bool {
	return p.plan.Nodes[n].Kind == plan.Deploy && (progress[n].State == plan.Running || progress[n].State == plan.Held)
}

// PlanBegin returns the content of a plan and its progress. An unknown plan, or a finished one that is requested again, starts from the
// beginning; its deployed services are found deployed. An interrupted plan continues where it was; commands that were running run again.
func (a *Activities) PlanBegin(ctx context.Context, in protocol.PlanInput) (protocol.PlanStart, error) {
	start, err := a.planBegin(ctx, in)
	return spillIfLarge(ctx, a, start, err)
}

func (a *Activities) planBegin(ctx context.Context, in protocol.PlanInput) (protocol.PlanStart, error) {
	if err := checkPlan(in.PlanRef); err != nil {
		return protocol.PlanStart{}, err
	}
	r, err := a.Store.Plan(ctx, in.PlanRef)
	switch {
	case store.IsNotFound(err), store.IsDamaged(err), err == nil && !in.Continued && (r.Over || r.Release != in.Release):
		r, err = a.newPlan(ctx, in)
	}
	if err != nil {
		return protocol.PlanStart{}, err
	}
	p, err := a.buildPlan(ctx, &r)
	if err != nil {
		return protocol.PlanStart{}, err
	}
	r.Nodes = resumedNodes(p.plan, r.Nodes)
	r.Before, r.After = stepLetters(r.Before, p.work.Before), stepLetters(r.After, p.work.After)
	if err := a.Store.PutPlan(ctx, r); err != nil {
		return protocol.PlanStart{}, err
	}
	if err := a.Store.RunPlan(ctx, r.PlanRef); err != nil {
		return protocol.PlanStart{}, err
	}
	if r.Release == "" {
		if err := a.Store.MarkPlan(ctx, r.Application, r.Channel, store.PlanStarted, r.Incarnation); err != nil {
			return protocol.PlanStart{}, err
		}
	}
	start := protocol.PlanStart{Hash: r.Hash, Limit: p.work.Limit, All: r.All, Scope: r.Scope, SupersededAfter: r.SupersededAfter}
	if r.Limit > 0 {
		start.Limit = r.Limit
	}
	if start.State, err = protocol.Pack(r.PlanState); err != nil {
		return start, err
	}
	start.Plan, err = protocol.Pack(p.plan)
	return start, err
}

// checkPlan rejects names that no plan can have.
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

// resumedNodes returns the nodes at the start of a resumed plan. A command that was running starts again; a running DEPLOY is followed.
func resumedNodes(p *plan.Plan, letters string) string {
	progress := p.ReadLetters(letters)
	for n := range progress {
		if p.Nodes[n].Kind != plan.Deploy && (progress[n].State == plan.Running || progress[n].State == plan.Held) {
			progress[n].State = plan.Waiting
		}
	}
	return plan.Letters(progress)
}

// stepLetters returns a letter for each step. Steps that are not done run again.
func stepLetters(letters string, steps []entities.Extension) string {
	out := []byte(letters + strings.Repeat(".", max(0, len(steps)-len(letters))))[:len(steps)]
	for n := range out {
		if out[n] != plan.Done.Letter() {
			out[n] = plan.Waiting.Letter()
		}
	}
	return string(out)
}

// newPlan returns a plan without progress.
func (a *Activities) newPlan(ctx context.Context, in protocol.PlanInput) (protocol.PlanRecord, error) {
	number, err := a.Store.Number(ctx, in.Application, in.Incarnation)
	if store.IsNotFound(err) {
		err = refuse("there is no incarnation %d of %s", in.Incarnation, in.Application)
	}
	if err != nil {
		return protocol.PlanRecord{}, err
	}
	r := protocol.PlanRecord{PlanRef: in.PlanRef, PlanTask: in.PlanTask, Hash: number.Hash}
	if in.Whole || len(in.Changed) > 0 { // a user requested this plan, so existing plans do not replace it
		if r.SupersededAfter, err = a.Store.PlanMarked(ctx, in.Application, in.Channel, store.PlanStarted); err != nil {
			return r, err
		}
	}
	inc, err := a.Store.Incarnation(ctx, r.Hash)
	if err != nil {
		return r, err
	}
	work := inc.Work(in.Channel)
	if work == nil {
		return r, refuse("incarnation %d has no plan in %s", in.Incarnation, in.Channel)
	}
	switch {
	case in.Whole:
		r.All = true
	case len(in.Changed) > 0:
		r.Scope = in.Changed
	case in.Release != "":
		for _, key := range in.Services {
			if name, found := work.ServiceByKey(key); found {
				r.Scope = append(r.Scope, name)
			}
		}
	default:
		r.Scope, r.All, err = a.changedSince(ctx, work, number)
	}
	slices.Sort(r.Scope)
	return r, err
}

// maxPlansCompared limits how many plans since the last complete one are compared.
const maxPlansCompared = 50

// changedSince lists the services that differ in a channel from the last incarnation whose plan completed there, or from any whose plan
// began since. A reverted change still counts, because a part of that plan may have been deployed. Without a complete plan, or if its
// data is no longer kept, it returns all.
func (a *Activities) changedSince(ctx context.Context, work *plan.Work, now protocol.Incarnation) (names []string, all bool, err error) {
	base, err := a.Store.PlanMarked(ctx, work.Application, work.Channel, store.PlanCompleted)
	if err != nil || base == 0 || base > now.Number || now.Number-base > maxPlansCompared {
		return nil, true, err
	}
	for number := base; number < now.Number || number == base; number++ {
		if number > base {
			_, err := a.Store.Plan(ctx, protocol.PlanOfIncarnation(work.Application, work.Channel, number))
			if store.IsNotFound(err) {
				continue
			}
			if err != nil && !store.IsDamaged(err) {
				return nil, false, err
			}
		}
		some, err := a.changedFrom(ctx, work, number, now)
		if store.IsNotFound(err) || store.IsDamaged(err) {
			return nil, true, nil
		}
		if err != nil {
			return nil, false, err
		}
		names = append(names, some...)
	}
	slices.Sort(names)
	return slices.Compact(names), false, nil
}

// changedFrom lists the services that differ in a channel from an earlier incarnation.
func (a *Activities) changedFrom(ctx context.Context, work *plan.Work, number int64, now protocol.Incarnation) (names []string, err error) {
	before, err := a.Store.Number(ctx, work.Application, number)
	if err != nil {
		return nil, err
	}
	inc, err := a.Store.Incarnation(ctx, before.Hash)
	if err != nil {
		return nil, err
	}
	if old := inc.Work(work.Channel); old != nil {
		names = work.Changed(old)
	}
	oldManifest, err := a.Store.Manifest(ctx, before.Manifest)
	if err != nil {
		return nil, err
	}
	newManifest, err := a.Store.Manifest(ctx, now.Manifest)
	if err != nil {
		return nil, err
	}
	for n := range work.Services {
		name := work.Services[n].Name
		key := work.KeyOf(name)
		changed, err := a.changedIn(ctx, work.Channel, oldManifest[key], newManifest[key])
		if err != nil {
			return nil, err
		}
		if changed {
			names = append(names, name)
		}
	}
	return names, nil
}

// changedIn reports whether two specs, given by their digests, deploy different things to a channel.
func (a *Activities) changedIn(ctx context.Context, channel, oldDigest, newDigest string) (bool, error) {
	if oldDigest == newDigest {
		return false, nil
	}
	if oldDigest == "" || newDigest == "" {
		return true, nil
	}
	old, err := a.Store.Spec(ctx, oldDigest)
	if err != nil {
		return false, err
	}
	now, err := a.Store.Spec(ctx, newDigest)
	if err != nil {
		return false, err
	}
	return deliveredDigest(&old, channel) != deliveredDigest(&now, channel), nil
}

func deliveredDigest(s *entities.Spec, channel string) string {
	c, _ := s.Channel(channel)
	delivered := map[string][2]string{}
	for _, i := range c.Instances {
		delivered[i.Name] = [2]string{i.Runtime, i.Template}
	}
	return entities.DigestOf(delivered)
}

// PlanKeep stores the progress of a plan and lets services enter whose DEPLOY runs. It is idempotent.
func (a *Activities) PlanKeep(ctx context.Context, k protocol.PlanKeepRequest) error {
	r, err := a.Store.Plan(ctx, k.PlanRef)
	if store.IsNotFound(err) || store.IsDamaged(err) {
		r, err = k.PlanRecord, nil
	}
	if err != nil {
		return err
	}
	before := r.Nodes
	r.PlanState = k.PlanState
	p, err := a.buildPlan(ctx, &r)
	if err != nil {
		return err
	}
	progress := p.plan.ReadLetters(r.Nodes)
	// Before the record is stored, because otherwise a retry would see no change.
	if err := a.markDeployed(ctx, &r, &p, p.plan.ReadLetters(before), progress); err != nil {
		return err
	}
	if err := a.Store.PutPlan(ctx, r); err != nil {
		return err
	}
	if !r.Over {
		return a.grantEntries(ctx, &r, &p, progress)
	}
	undone := slices.ContainsFunc(progress, func(s plan.Progress) bool { return s.State != plan.Done }) || strings.Trim(r.Before+r.After, "d") != ""
	if r.Release == "" && len(r.Changed) == 0 && r.Ended == "" && !undone {
		if err := a.Store.MarkPlan(ctx, r.Application, r.Channel, store.PlanCompleted, r.Incarnation); err != nil {
			return err
		}
	}
	return a.Store.EndPlan(ctx, r.PlanRef)
}

// markDeployed records the incarnation with which services were deployed, or that they were not, for nodes whose state has changed.
func (a *Activities) markDeployed(ctx context.Context, r *protocol.PlanRecord, p *planned, before, progress []plan.Progress) error {
	marks := map[string]store.PlanMark{}
	for n := range progress {
		if p.plan.Nodes[n].Kind != plan.Deploy || progress[n].State == before[n].State {
			continue
		}
		name := p.plan.Nodes[n].Service
		key := p.keyOf(name)
		done := !slices.ContainsFunc(p.deployNodes(name), func(m int) bool { return progress[m].State != plan.Done })
		switch {
		case done:
			marks[key] = store.PlanDeployed(key)
		case progress[n].State == plan.Failed || progress[n].State == plan.Blocked:
			marks[key] = store.PlanDeployFailed(key)
		}
	}
	keys := entities.SortedKeys(marks)
	errs := make([]error, len(keys))
	forEach(len(keys), func(n int) {
		errs[n] = a.Store.MarkPlan(ctx, r.Application, r.Channel, marks[keys[n]], r.Incarnation)
	})
	return cmp.Or(errs...)
}

// grantEntries lets services enter whose DEPLOY runs. A new worker checks for each service whether it was let in before. It checks many in
// parallel because a workflow waits.
func (a *Activities) grantEntries(ctx context.Context, r *protocol.PlanRecord, p *planned, progress []plan.Progress) error {
	var keys []string
	for n := range progress {
		if p.isDeploying(progress, n) {
			keys = append(keys, p.keyOf(p.plan.Nodes[n].Service))
		}
	}
	keys = slices.Compact(keys) // nodes are sorted
	granted, errs := make([]bool, len(keys)), make([]error, len(keys))
	forEach(len(keys), func(n int) {
		granted[n], errs[n] = a.Store.GrantPlan(ctx, r.PlanRef, store.PlanGrant{Service: keys[n], Release: r.Release})
	})
	var waiting []string
	for n, key := range keys {
		if granted[n] {
			waiting = append(waiting, protocol.ServiceID(r.Application, key))
		}
	}
	a.hintEntries(waiting)
	return cmp.Or(errs...)
}

// planCheckInterval is the least time between two checks of all running deployments, and planHintDelay the wait before a check of hinted
// ones. Where queries are slow, checks of all use at most a tenth of the time.
const (
	planCheckInterval = time.Second
	planHintDelay     = 20 * time.Millisecond
)

// PlanFollow returns when the state of a running DEPLOY differs from the record, or when a newer plan replaces this one. It reads the
// record from the store, so it also follows nodes that start meanwhile, and it restores lost entry grants. Services that make progress on
// this worker are queried soon, all others at intervals.
func (a *Activities) PlanFollow(ctx context.Context, of protocol.PlanRef) (protocol.PlanFollowAnswer, error) {
	heartbeatCtx, stop := context.WithCancel(ctx)
	defer stop()
	go sendHeartbeats(heartbeatCtx, nil)
	hints := a.planFollowers.begin()
	defer a.planFollowers.end(hints)
	var moved map[string]bool // nil: query all
	var next time.Time
	for {
		began := time.Now()
		found, err := a.followOnce(ctx, of, moved)
		took := time.Since(began)
		if ctx.Err() != nil { // the plan is over, or another worker continues
			return protocol.PlanFollowAnswer{}, nil
		}
		if err != nil || found.Superseded || len(found.Nodes) > 0 {
			return found, err
		}
		if moved == nil {
			next = time.Now().Add(max(planCheckInterval, 9*took))
		}
		if moved = hints.await(ctx, next); moved != nil {
			_ = sleep(ctx, max(planHintDelay, took))
			maps.Copy(moved, hints.take())
		}
	}
}

const (
	maxNewsNodes = 200 // nodes in an answer
	maxNoteText  = 500 // bytes of the reason for a node's state in a record
)

// followOnce is one check of the services that moved, given by their workflow ids, or of all if moved is nil.
func (a *Activities) followOnce(ctx context.Context, of protocol.PlanRef, moved map[string]bool) (found protocol.PlanFollowAnswer, err error) {
	r, err := a.Store.Plan(ctx, of)
	if store.IsNotFound(err) || store.IsDamaged(err) {
		err = refuse("the record of plan %s is lost", of.ID()) // the plan stores it again
	}
	if err != nil {
		return found, err
	}
	p, err := a.buildPlan(ctx, &r)
	if err != nil {
		return found, err
	}
	progress := p.plan.ReadLetters(r.Nodes)
	if moved == nil {
		if err := a.grantEntries(ctx, &r, &p, progress); err != nil {
			return found, err
		}
		if found.Superseded, err = a.superseded(ctx, &r); err != nil {
			return found, err
		}
	}
	answers, err := a.queryDeployed(ctx, &r, &p, progress, moved)
	if err != nil {
		return found, err
	}
	found.Nodes = changedNodes(&r, &p, progress, answers)
	return found, nil
}

// superseded reports whether a newer plan replaces this one. A plan whose nodes have all begun is not replaced.
func (a *Activities) superseded(ctx context.Context, r *protocol.PlanRecord) (bool, error) {
	if !strings.ContainsRune(r.Nodes, '.') {
		return false, nil
	}
	newer, err := a.newerPlan(ctx, r)
	return newer > 0, err
}

// newerPlan returns the incarnation of a newer plan of the channel. It returns 0 if there is none or the plan is one of a release.
func (a *Activities) newerPlan(ctx context.Context, r *protocol.PlanRecord) (int64, error) {
	if r.Release != "" {
		return 0, nil
	}
	newest, err := a.Store.PlanMarked(ctx, r.Application, r.Channel, store.PlanStarted)
	if newest <= max(r.Incarnation, r.SupersededAfter) {
		newest = 0
	}
	return newest, err
}

// supersededReason returns a message if a newer plan has replaced a plan that is still in its steps before the first node, or "".
func (a *Activities) supersededReason(ctx context.Context, of protocol.PlanRef) (string, error) {
	r, err := a.Store.Plan(ctx, of)
	if store.IsNotFound(err) || store.IsDamaged(err) {
		return "", nil // the plan stores it again
	}
	if err != nil {
		return "", err
	}
	newer, err := a.newerPlan(ctx, &r)
	if newer == 0 {
		return "", err
	}
	return fmt.Sprintf("plan i%d of a newer configuration replaced it", newer), err
}

// changedNodes returns the nodes whose services report a state other than the recorded one.
func changedNodes(r *protocol.PlanRecord, p *planned, progress []plan.Progress, answers map[string]protocol.Deployed) (nodes []protocol.PlanNode) {
	for n := range progress {
		d, found := answers[p.plan.Nodes[n].Service]
		if !found || !p.isDeploying(progress, n) {
			continue
		}
		text := entities.ClipMessage(d.Text, maxNoteText)
		same := string(progress[n].State) == d.State && (progress[n].State != plan.Held || withoutNumbers(noteOf(r, n)) == withoutNumbers(text))
		if !same && len(nodes) < maxNewsNodes {
			nodes = append(nodes, protocol.PlanNode{Node: n, State: d.State, Text: text})
		}
	}
	return entities.Fitting(nodes, maxNews)
}

// withoutNumbers removes the digits of a text whose numbers change often.
func withoutNumbers(text string) string {
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, text)
}

// queryDeployed queries the services whose DEPLOY runs, by name: those that moved, or all. A failed query is repeated at the next check.
func (a *Activities) queryDeployed(
	ctx context.Context, r *protocol.PlanRecord, p *planned, progress []plan.Progress, moved map[string]bool,
) (map[string]protocol.Deployed, error) {
	var names []string
	for n := range progress {
		name := p.plan.Nodes[n].Service
		if p.isDeploying(progress, n) && (moved == nil || moved[protocol.ServiceID(r.Application, p.keyOf(name))]) {
			names = append(names, name)
		}
	}
	if names = slices.Compact(names); len(names) == 0 { // nodes are sorted
		return nil, nil
	}
	answers, errs := make([]protocol.Deployed, len(names)), make([]error, len(names))
	query, err := a.deployedQuery(ctx, r, p)
	if err != nil {
		return nil, err
	}
	forEach(len(names), func(n int) { answers[n], errs[n] = query(ctx, names[n]) })
	out := map[string]protocol.Deployed{}
	for n, name := range names {
		if errs[n] == nil {
			out[name] = answers[n]
		}
	}
	return out, ctx.Err()
}

// numberedManifest is an incarnation of an application.
type numberedManifest struct {
	incarnation int64
	manifest    incarnation.Manifest
}

// deployedQuery returns a function that queries a service, by name, for its progress with the version that a plan deploys.
func (a *Activities) deployedQuery(ctx context.Context, r *protocol.PlanRecord, p *planned) (func(context.Context, string) (protocol.Deployed, error), error) {
	question := protocol.DeployedQuestion{Channel: r.Channel, Release: r.Release}
	var manifest incarnation.Manifest
	if r.Release == "" {
		base, err := a.Store.PlanMarked(ctx, r.Application, r.Channel, store.PlanCompleted)
		if err != nil {
			return nil, err
		}
		question.Incarnation, question.Since = r.Incarnation, base+1
		latest, err := a.newestManifests.get(r.Application, configuredTTL, func() (n numberedManifest, err error) {
			n.incarnation, n.manifest, err = services{a}.Newest(ctx, r.Application)
			return n, err
		})
		if err != nil {
			return nil, err
		}
		if latest.incarnation == r.Incarnation {
			manifest = latest.manifest
		}
	}
	return func(ctx context.Context, name string) (d protocol.Deployed, err error) {
		key := p.keyOf(name)
		if r.Release != "" && !slices.Contains(r.Services, key) {
			return protocol.Deployed{State: string(plan.Done)}, nil // not released itself; the plan only connects it with the released services
		}
		err = services{a}.queryLive(ctx, protocol.ServiceID(r.Application, key), &d, protocol.QueryDeployed, question)
		switch {
		case errors.Is(err, checks.ErrEnded):
			return protocol.Deployed{State: string(plan.Held), Text: "it is not managed: " + checks.ErrEnded.Error()}, nil
		case errors.Is(err, checks.ErrNoService):
			return protocol.Deployed{State: string(plan.Held), Text: "it has not started"}, nil
		case err == nil && manifest != nil && d.Spec != manifest[key]:
			return protocol.Deployed{State: string(plan.Running), Text: "it has not loaded the configuration yet"}, nil
		}
		return d, err
	}, nil
}
