package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
)

const (
	// lookEvery is how often workers look whether all that is declared is looked after, and renew the lease on doing so.
	lookEvery = 8 * time.Second
	// leaseFor is how long a lease holds that is not renewed, by the clock of whoever waits for it.
	leaseFor = 24 * time.Second
	// lookByName is how often every workflow is looked for by name, though all that was found then runs on.
	lookByName = 5 * time.Minute
	// settling is how much later than it was started a workflow may be listed.
	settling = 30 * time.Second
	// lookForDown is how often, instead, while something is kept down that somebody may start, or cannot be looked after. What
	// can be again is to be managed within a minute, so it is well below that.
	lookForDown = 30 * time.Second
	// lookTimeout bounds one look.
	lookTimeout = time.Minute
	// pageSize is how many workflows the server lists at once, at most.
	pageSize = 1000
)

// supervisor starts workflows again that are gone though nobody asked for that: an operator has terminated, failed or
// deleted them (F1). One worker does so for all, by a lease in the store. A look is a question to the server's list of
// workflows and costs no Temporal action. Only what the store has a checkpoint of, or a manifest names, is ever started:
// an empty store starts nothing.
type supervisor struct {
	client    client.Client
	namespace string
	store     *store.Store
	restart   func(ctx context.Context, id string, manifest incarnation.Manifest, why protocol.Restart) error
	end       func(ctx context.Context, id string) error // the workflow of a service, if it is kept down
	log       *slog.Logger
	metrics   client.MetricsHandler

	of     protocol.Installation
	scope  string // of the lease that one of all workers of an epoch holds
	holder string
	lease  int64                         // that was seen last
	since  time.Time                     // when it was first seen
	seen   look                          // the last whole look
	kept   func(now time.Time) time.Time // up to when what this worker was handed is in the store
	saw    func(error)                   // whether the store answers
	others others
	status int // whose services are counted next, of the status table; when this worker begins to supervise, all are
}

// look is what was found when every workflow was looked for by name.
type look struct {
	running int64  // how many, of all
	after   string // finds what was started after the newest of them, ended by now or not
	later   int64  // how many that were
	at      time.Time
	missing int
	down    int           // services that somebody keeps down
	again   time.Duration // after which every workflow is looked for once more
}

func newSupervisor(c client.Client, namespace string, a *activities.Activities, of protocol.Installation, kept *activities.Checkpoints) *supervisor {
	if namespace == "" {
		namespace = client.DefaultNamespace
	}
	return &supervisor{
		client: c, namespace: namespace, store: a.Store, restart: a.Restart, end: a.EndUnmanaged, log: slog.Default(), metrics: a.Metrics,
		of: of, scope: fmt.Sprintf("supervision-%d", of.Epoch), holder: rand.Text(), kept: kept.KeptUpTo, saw: kept.Saw,
	}
}

// start looks from now on, until what it returns is called.
func (s *supervisor) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// run looks again and again until ctx ends, and gives the lease back.
func (s *supervisor) run(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		err := s.turn(ctx)
		if errors.Is(err, errMoved) {
			s.log.Warn("workflows that are gone are started no more", "error", err)
			s.giveBack()
			return
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("could not look for workflows that are gone; tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			s.giveBack()
			return
		case <-ticker.C:
		}
	}
}

// turn renews the lease, or takes it when its holder has not renewed it, and looks.
func (s *supervisor) turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	now := time.Now()
	if err := s.present(ctx, now); err != nil {
		return err
	}
	held, err := s.hold(ctx, now)
	if err != nil || !held {
		s.unsupervised()
		return err
	}
	stands, err := s.store.Installation(ctx)
	if err != nil && !store.IsNotFound(err) {
		return err
	}
	if stands.Epoch > s.of.Epoch {
		return errMoved
	}
	err = errors.Join(s.look(ctx), s.followPlans(ctx), s.followLost(ctx, now))
	if err == nil {
		s.measure(ctx)
	}
	return err
}

// errMoved: whoever has the installation now looks after what it declares.
var errMoved = errors.New("the installation was moved, or exported to go on elsewhere; this worker can be stopped")

func (s *supervisor) hold(ctx context.Context, now time.Time) (bool, error) {
	n, holder, err := s.store.Lease(ctx, s.scope)
	if err != nil {
		return false, err
	}
	if n != s.lease {
		s.lease, s.since = n, now
	}
	if holder != s.holder && holder != "" && now.Sub(s.since) < leaseFor {
		return false, nil
	}
	taken, err := s.store.TakeLease(ctx, s.scope, n+1, s.holder)
	if taken {
		s.lease, s.since = n+1, now
	}
	if taken && holder != s.holder {
		s.seen, s.others = look{}, others{}
	}
	return taken, err
}

// giveBack lets another worker take over at once.
func (s *supervisor) giveBack() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if n, holder, err := s.store.Lease(ctx, s.scope); err == nil && holder == s.holder {
		_, _ = s.store.TakeLease(ctx, s.scope, n+1, "") // else it is taken over a little later
	}
}

// sameAsSeen: what was found last runs, and nothing else ran since. When there are as many as then, and none was started later,
// ended by now or not, none has ended. One that continued as new was started later; looking once more is all that this costs.
func (s *supervisor) sameAsSeen(ctx context.Context) (bool, error) {
	if s.seen.missing > 0 || time.Since(s.seen.at) >= s.seen.again {
		return false, nil
	}
	running, err := s.count(ctx, protocol.Living)
	if err != nil || running != s.seen.running {
		return false, err
	}
	later, err := s.count(ctx, s.seen.after)
	return later == s.seen.later, err
}

// see lists what runs. That is all there is to see only when nothing was started while it was listed: what has ended by then
// may still be on the list, and what was started not yet on it, so that there seem to be as many as before.
func (s *supervisor) see(ctx context.Context) (running map[string]string, err error) {
	running, newest, err := s.list(ctx, protocol.Living)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	seen := look{running: int64(len(running)), at: now, again: lookByName}
	since := newest.Add(time.Second) // those that run were started before that
	switch {
	case newest.IsZero():
		since = now.Add(-settling)
	case now.Sub(newest) < settling: // others that were started before that may not be listed yet
		seen.again = 0
	}
	startedLater := " AND StartTime > '" + since.UTC().Format(time.RFC3339) + "'"
	seen.after = protocol.LivingOnes + startedLater
	if seen.later, err = s.count(ctx, seen.after); err != nil {
		return nil, err
	}
	unlisted, err := s.count(ctx, protocol.Living+startedLater)
	if err != nil {
		return nil, err
	}
	if unlisted > 0 {
		seen.again = 0
	}
	s.seen = seen
	return running, nil
}

func (s *supervisor) count(ctx context.Context, query string) (int64, error) {
	count, err := s.client.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: s.namespace, Query: query})
	return count.GetCount(), err
}

// look starts what is gone. As long as nothing else runs than was found last, workflows are not looked for by name; a look that
// did not come to its end has found nothing.
func (s *supervisor) look(ctx context.Context) error {
	if same, err := s.sameAsSeen(ctx); err != nil || same {
		return err
	}
	err := s.lookWhole(ctx)
	if err != nil {
		s.seen = look{}
	}
	return err
}

func (s *supervisor) lookWhole(ctx context.Context) error {
	running, err := s.see(ctx)
	if err != nil {
		return err
	}
	applications, err := s.declared(ctx)
	if err != nil {
		return err
	}
	runtimes, err := s.store.Checkpointed(ctx, "runtime/")
	if err != nil {
		return err
	}
	var problems []error
	missing := func(id string, of declaration) {
		if running[id] != "" {
			return
		}
		s.seen.missing++
		problems = append(problems, s.bringBack(ctx, id, of))
	}
	for _, id := range append(runtimes, protocol.InstallationID()) {
		missing(id, declaration{})
	}
	for application := range applications { // before its services, which are told what it knows
		missing(protocol.ApplicationID(application), declaration{})
	}
	for application, d := range applications {
		for service := range d.manifest {
			if d.unmanaged(service) {
				s.seen.down++
			} else {
				missing(protocol.ServiceID(application, service), d)
			}
		}
		problems = append(problems, s.keepDown(ctx, application, d, running))
	}
	return errors.Join(problems...)
}

// keepDown ends what is kept down and was started by somebody who did not know that yet.
func (s *supervisor) keepDown(ctx context.Context, application string, d declaration, running map[string]string) error {
	if len(d.down) > 0 {
		s.seen.again = min(s.seen.again, lookForDown)
	}
	var problems []error
	for service := range d.manifest {
		if id := protocol.ServiceID(application, service); d.unmanaged(service) && running[id] != "" {
			s.seen.missing++
			problems = append(problems, s.end(ctx, id))
		}
	}
	return errors.Join(problems...)
}

// list returns the runs of the workflows that a query finds, by their ids, and when the newest of them was started.
func (s *supervisor) list(ctx context.Context, query string) (runs map[string]string, newest time.Time, err error) {
	runs = map[string]string{}
	request := &workflowservice.ListWorkflowExecutionsRequest{Namespace: s.namespace, Query: query, PageSize: pageSize}
	for {
		page, err := s.client.ListWorkflow(ctx, request)
		if err != nil {
			return nil, newest, err
		}
		for _, e := range page.GetExecutions() {
			runs[e.GetExecution().GetWorkflowId()] = e.GetExecution().GetRunId()
			if at := e.GetStartTime().AsTime(); at.After(newest) {
				newest = at
			}
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return runs, newest, nil
		}
	}
}

// declaration is what the checkpoint of an application says of its services.
type declaration struct {
	manifest incarnation.Manifest
	at       time.Time         // when it was said
	down     map[string]string // those that somebody keeps down
}

func (d declaration) unmanaged(service string) bool {
	_, one := d.down[service]
	_, all := d.down[protocol.AllServices]
	return one || all
}

// declared are the services of the manifest that all were last notified of, by application.
func (s *supervisor) declared(ctx context.Context) (map[string]declaration, error) {
	ids, err := s.store.Checkpointed(ctx, "application/")
	if err != nil {
		return nil, err
	}
	all := map[string]declaration{}
	for _, id := range ids {
		name := strings.TrimPrefix(id, "application/")
		c, err := s.store.Checkpoint(ctx, id)
		if err != nil {
			s.log.Warn("an application cannot be looked after", "application", name, "error", err)
			s.seen.again = min(s.seen.again, lookForDown)
			continue
		}
		all[name] = declaration{}
		if c.Manifest == "" {
			continue
		}
		manifest, err := s.store.Manifest(ctx, c.Manifest)
		if err != nil {
			s.log.Warn("the services of an application cannot be looked after", "application", name, "error", err)
			s.seen.again = min(s.seen.again, lookForDown)
			continue
		}
		all[name] = declaration{manifest: manifest, at: c.At, down: c.Unmanaged}
	}
	return all, nil
}

// beginning is how long after its application was told a service that has not begun is left to it: the application starts them one after
// the other.
const beginning = 30 * time.Second

// bringBack starts a workflow again, unless it runs after all (the list is a little late), has ended in order, is about to begin, or was
// started again too lately.
func (s *supervisor) bringBack(ctx context.Context, id string, of declaration) error {
	why, gone, err := s.ended(ctx, id)
	if err != nil || !gone {
		return err
	}
	c, err := s.store.Checkpoint(ctx, id)
	unknown := store.IsNotFound(err)
	if err != nil && !unknown {
		return err
	}
	if c.Over {
		return nil
	}
	before, err := s.store.Restarts(ctx, id)
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	next, hold := restartAt(before, now)
	if now.Before(next) {
		return nil
	}
	why = s.told(why, c, unknown)
	if why == notBegun && now.Sub(of.at) < beginning {
		return nil
	}
	asked := harmless(why)
	again := protocol.Restart{At: now, Why: why, Hold: hold && !asked}
	err = s.restart(ctx, id, of.manifest, again)
	if errors.Is(err, activities.ErrUnmanaged) { // which the checkpoint of its application did not say yet
		return nil
	}
	if err != nil {
		return fmt.Errorf("start %s again: %w", id, err)
	}
	s.started(id, why)
	if asked {
		return nil
	}
	return s.store.PutRestart(ctx, id, now)
}

// told is why a workflow is not there, by what its checkpoint says as well, of which there may be none.
func (s *supervisor) told(why string, c protocol.Checkpoint, unknown bool) string {
	switch {
	case why != deleted:
		return why
	case unknown:
		return notBegun
	case s.ranElsewhere(c):
		return movedHere
	}
	return why
}

func (s *supervisor) started(id, why string) {
	if why == notBegun {
		s.log.Info("started", "workflow", id, "why", why)
		return
	}
	s.log.Warn("started again", "workflow", id, "why", why)
	s.metrics.Counter(metricRestarts).Inc(1)
}

// ranElsewhere: a checkpoint was written where the installation was before.
func (s *supervisor) ranElsewhere(c protocol.Checkpoint) bool {
	return s.of.Epoch > 1 && c.N > 0 && c.At.Before(s.of.At)
}

// Why a workflow is started again. One that ran where its installation was before has come to no harm, and one that nothing is known of
// is one of many that were published a moment ago, and are started one after the other.
const (
	deleted   = "its workflow was deleted"
	notBegun  = "it had not begun"
	movedHere = "its installation was moved here"
)

// harmless: nothing was done to it, or somebody had it kept down, and now looked after again.
func harmless(why string) bool {
	return why == notBegun || why == movedHere || strings.Contains(why, ": "+protocol.UnmanagedBy)
}

// restartAt is when a workflow may be started again that was so at these times, and whether that is the third time within
// an hour.
func restartAt(before []time.Time, now time.Time) (next time.Time, hold bool) {
	lately := slices.DeleteFunc(slices.Clone(before), func(at time.Time) bool { return now.Sub(at) > time.Hour })
	n := len(lately)
	if n == 0 {
		return now, false
	}
	return lately[n-1].Add(min(time.Minute<<(n-1), time.Hour)), n >= 2
}

// ended says how a workflow has ended; gone is false while it runs.
func (s *supervisor) ended(ctx context.Context, id string) (why string, gone bool, err error) {
	d, err := s.client.DescribeWorkflowExecution(ctx, id, "")
	var absent *serviceerror.NotFound
	if errors.As(err, &absent) {
		return deleted, true, nil
	}
	if err != nil {
		return "", false, err
	}
	info := d.GetWorkflowExecutionInfo()
	switch info.GetStatus() {
	case enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED,
		enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW, // into a run that is about to be seen
		enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:        // in order: what it looked after was taken down
		return "", false, nil
	case enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		return "its workflow was terminated" + s.terminatedBy(ctx, id, info.GetExecution().GetRunId()), true, nil
	}
	return "its workflow ended: " + strings.ToLower(info.GetStatus().String()), true, nil
}

// terminatedBy adds by whom, and why, as far as that can be read.
func (s *supervisor) terminatedBy(ctx context.Context, id, run string) string {
	events := s.client.GetWorkflowHistory(ctx, id, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
	if !events.HasNext() {
		return ""
	}
	e, err := events.Next()
	if err != nil {
		return ""
	}
	by := e.GetWorkflowExecutionTerminatedEventAttributes()
	text := ""
	if by.GetIdentity() != "" {
		text = " by " + by.GetIdentity()
	}
	if by.GetReason() != "" {
		text += ": " + by.GetReason()
	}
	return text
}
