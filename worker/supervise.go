package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
)

const (
	// checkInterval is how often workers check that all declared workflows run, and renew their lease on that.
	checkInterval = 8 * time.Second
	// leaseDuration is how long a lease is valid without renewal, by the clock of the waiting worker.
	leaseDuration = 24 * time.Second
	// fullCheckInterval is how often every workflow is checked by name, even if the count has not changed.
	fullCheckInterval = 5 * time.Minute
	// listingDelay is how much later than its start a workflow may be listed.
	listingDelay = 30 * time.Second
	// unmanagedCheckInterval is the shorter interval while a service is unmanaged, since it may be started by mistake, or cannot be managed. A
	// service that is managed again must run within a minute, so the interval is well below that.
	unmanagedCheckInterval = 30 * time.Second
	// supervisionTimeout is the timeout of one check.
	supervisionTimeout = time.Minute
	// pageSize is how many workflows the server lists per page at most.
	pageSize = 1000
)

// supervisor restarts workflows that are gone without a request: an operator has terminated, failed or deleted them (F1). One worker does
// so for all, with a lease in the store. A check is a query to the server's list of workflows and costs no Temporal action. Only workflows
// with a checkpoint in the store, or in a manifest, are ever started: an empty store starts nothing.
type supervisor struct {
	client    client.Client
	namespace string
	store     *store.Store
	restart   func(ctx context.Context, id string, manifest incarnation.Manifest, why protocol.Restart) error
	end       func(ctx context.Context, id string) error // ends the workflow of an unmanaged service
	log       *slog.Logger
	metrics   client.MetricsHandler

	installation protocol.Installation
	scope        string // of the lease that one of all workers of an epoch holds
	holder       string
	lease        int64                         // the last one seen
	since        time.Time                     // when it was first seen
	lastCheck    checkResult                   // the last complete check
	serves       bool                          // the worker carries out workflow tasks
	storedUpTo   func(now time.Time) time.Time // up to when the checkpoints that this worker received are in the store
	reportStore  func(error)                   // reports whether the store answers
	latest       func() protocol.Checkpoint    // the latest checkpoint of this worker
	behind       <-chan struct{}               // has a value after the state of a workflow was older than its checkpoint
	takeBehind   func() map[string]string      // the runs of those workflows, by workflow id
	fatal        func(error)                   // ends the worker
	otherWorkers otherWorkers
	failures     failures
	temporal     temporalState
	altered      alterations
	nextStatus   int // index in the status table of the next status to count; a new supervisor counts all
}

// checkResult is the result of a check of every workflow by name.
type checkResult struct {
	running           int64  // how many run in total
	startedLaterQuery string // a query for workflows started after the newest of them, ended or not
	startedLater      int64  // the number of those
	at                time.Time
	missing           int
	unmanaged         int           // unmanaged services
	nextIn            time.Duration // delay until the next complete check
}

func newSupervisor(c client.Client, namespace string, a *activities.Activities, installation protocol.Installation, checkpoints *activities.Checkpoints, fatal func(error)) *supervisor {
	if namespace == "" {
		namespace = client.DefaultNamespace
	}
	s := &supervisor{
		client: c, namespace: namespace, store: a.Store, restart: a.Restart, end: a.EndUnmanaged, log: slog.Default(), metrics: a.Metrics,
		installation: installation, scope: fmt.Sprintf("supervision-%d", installation.Epoch), holder: rand.Text(), storedUpTo: checkpoints.KeptUpTo, reportStore: checkpoints.RecordStoreResult,
		latest: checkpoints.Latest, behind: checkpoints.Behind(), takeBehind: checkpoints.TakeBehind, fatal: fatal,
	}
	checkpoints.IsBehind = s.wentBack
	checkpoints.AskTaskEnd(s.taskEnd)
	return s
}

// start checks from now on, until the returned function is called.
func (s *supervisor) start() (stop func()) {
	s.serves = true
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// run repeats the check until ctx ends, and then returns the lease.
func (s *supervisor) run(ctx context.Context) {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		err := s.runOnce(ctx)
		if errors.As(err, new(*ReplacedError)) {
			s.releaseLease()
			s.fatal(err)
			return
		}
		if errors.Is(err, errMoved) {
			s.log.Warn("missing workflows are no longer restarted", "error", err)
			s.releaseLease()
			return
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("check for missing workflows failed; it is retried", "error", err)
		}
		select {
		case <-ctx.Done():
			s.releaseLease()
			return
		case <-s.behind:
			s.temporal.sawBehind(s.takeBehind())
		case <-ticker.C:
		}
	}
}

// runOnce renews the lease, or takes it if its holder has not renewed it, and checks.
func (s *supervisor) runOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, supervisionTimeout)
	defer cancel()
	now := time.Now()
	if err := s.writePresence(ctx, now); err != nil {
		return err
	}
	if err := s.checkTemporal(ctx); err != nil {
		return err
	}
	acquired, err := s.acquireLease(ctx, now)
	if err != nil || !acquired {
		s.resetMetrics()
		return errors.Join(err, s.recoverRestored(ctx, acquired))
	}
	recorded, err := s.store.Installation(ctx)
	if err != nil && !store.IsNotFound(err) {
		return err
	}
	if recorded.Epoch > s.installation.Epoch {
		return errMoved
	}
	s.failures.beginCheck()
	err = errors.Join(s.recoverRestored(ctx, acquired), s.checkWorkflows(ctx), s.restartPlans(ctx), s.recoverLost(ctx, now), s.checkAltered(ctx))
	if err == nil {
		s.updateMetrics(ctx)
	}
	return err
}

// errMoved: another namespace has the installation now and supervises its workflows.
var errMoved = errors.New("the installation was moved, or exported to continue elsewhere; this worker can be stopped")

func (s *supervisor) acquireLease(ctx context.Context, now time.Time) (bool, error) {
	n, holder, err := s.store.Lease(ctx, s.scope)
	if err != nil {
		return false, err
	}
	if n != s.lease {
		s.lease, s.since = n, now
	}
	if holder != s.holder && holder != "" && now.Sub(s.since) < leaseDuration {
		return false, nil
	}
	taken, err := s.store.TakeLease(ctx, s.scope, n+1, s.holder)
	if taken {
		s.lease, s.since = n+1, now
	}
	if taken && holder != s.holder {
		s.lastCheck, s.otherWorkers = checkResult{}, otherWorkers{}
		s.temporal.suspect(false)
	}
	return taken, err
}

// releaseLease lets another worker take over at once.
func (s *supervisor) releaseLease() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if n, holder, err := s.store.Lease(ctx, s.scope); err == nil && holder == s.holder {
		_, _ = s.store.TakeLease(ctx, s.scope, n+1, "") // on failure it is taken over a little later
	}
}

// unchanged reports that the workflows of the last check still run, and no others ran since. If the number is the same, and none was
// started later (ended or not), none has ended. A run that continued as new was started later; it only costs another check.
func (s *supervisor) unchanged(ctx context.Context) (bool, error) {
	if s.lastCheck.missing > 0 || time.Since(s.lastCheck.at) >= s.lastCheck.nextIn {
		return false, nil
	}
	running, err := s.count(ctx, protocol.RunningQuery)
	if err != nil || running != s.lastCheck.running {
		return false, err
	}
	later, err := s.count(ctx, s.lastCheck.startedLaterQuery)
	return later == s.lastCheck.startedLater, err
}

// listRunning lists the running workflows. The list is complete only if none was started while it was read: an ended workflow may still be
// listed and a new one not yet, so that the number seems unchanged.
func (s *supervisor) listRunning(ctx context.Context) (running map[string]string, err error) {
	running, newest, err := s.list(ctx, protocol.RunningQuery)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	seen := checkResult{running: int64(len(running)), at: now, nextIn: fullCheckInterval}
	since := newest.Add(time.Second) // running ones were started before that
	switch {
	case newest.IsZero():
		since = now.Add(-listingDelay)
	case now.Sub(newest) < listingDelay: // others that were started before that may not be listed yet
		seen.nextIn = 0
	}
	startedLater := " AND StartTime > '" + since.UTC().Format(time.RFC3339) + "'"
	seen.startedLaterQuery = protocol.LongLivedQuery + startedLater
	if seen.startedLater, err = s.count(ctx, seen.startedLaterQuery); err != nil {
		return nil, err
	}
	unlisted, err := s.count(ctx, protocol.RunningQuery+startedLater)
	if err != nil {
		return nil, err
	}
	if unlisted > 0 {
		seen.nextIn = 0
	}
	s.lastCheck = seen
	return running, nil
}

func (s *supervisor) count(ctx context.Context, query string) (int64, error) {
	count, err := s.client.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: s.namespace, Query: query})
	return count.GetCount(), err
}

// checkWorkflows starts missing workflows. While the number of workflows is unchanged, they are not checked by name. An incomplete check
// has no result.
func (s *supervisor) checkWorkflows(ctx context.Context) error {
	if same, err := s.unchanged(ctx); err != nil || same {
		return err
	}
	err := s.checkByName(ctx)
	if err != nil {
		s.lastCheck = checkResult{}
	}
	return err
}

func (s *supervisor) checkByName(ctx context.Context) error {
	running, err := s.listRunning(ctx)
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
	s.altered.running = entities.SortedKeys(running)
	var owners, services []missing // services get their notices from their applications
	add := func(to *[]missing, id string, of declaration) {
		if running[id] == "" && !s.altered.paused[id] {
			*to = append(*to, missing{id, of})
		}
	}
	for _, id := range append(runtimes, protocol.InstallationID()) {
		add(&owners, id, declaration{})
	}
	for application, d := range applications {
		add(&owners, protocol.ApplicationID(application), declaration{})
		for service := range d.manifest {
			if d.unmanaged(service) {
				s.lastCheck.unmanaged++
			} else {
				add(&services, protocol.ServiceID(application, service), d)
			}
		}
		problems = append(problems, s.endUnmanaged(ctx, application, d, running))
	}
	s.lastCheck.missing += len(owners) + len(services)
	return errors.Join(append(problems, s.restartMissing(ctx, owners), s.restartMissing(ctx, services))...)
}

// endUnmanaged ends the workflows of unmanaged services that were started before that was known.
func (s *supervisor) endUnmanaged(ctx context.Context, application string, d declaration, running map[string]string) error {
	if len(d.unmanagedReasons) > 0 {
		s.lastCheck.nextIn = min(s.lastCheck.nextIn, unmanagedCheckInterval)
	}
	var problems []error
	for service := range d.manifest {
		if id := protocol.ServiceID(application, service); d.unmanaged(service) && running[id] != "" {
			s.lastCheck.missing++
			problems = append(problems, s.end(ctx, id))
		}
	}
	return errors.Join(problems...)
}

// list returns the runs of the workflows that a query finds, by id, and the start time of the newest.
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

// declaration is the content of an application's checkpoint about its services.
type declaration struct {
	manifest         incarnation.Manifest
	at               time.Time         // when it was written
	unmanagedReasons map[string]string // unmanaged services
}

func (d declaration) unmanaged(service string) bool {
	_, one := d.unmanagedReasons[service]
	_, all := d.unmanagedReasons[protocol.AllServices]
	return one || all
}

// declared are the services of the manifest that all services were last notified of, by application.
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
			s.log.Warn("an application cannot be supervised", "application", name, "error", err)
			s.lastCheck.nextIn = min(s.lastCheck.nextIn, unmanagedCheckInterval)
			continue
		}
		all[name] = declaration{}
		if c.Manifest == "" {
			continue
		}
		manifest, err := s.store.Manifest(ctx, c.Manifest)
		if err != nil {
			s.log.Warn("the services of an application cannot be supervised", "application", name, "error", err)
			s.lastCheck.nextIn = min(s.lastCheck.nextIn, unmanagedCheckInterval)
			continue
		}
		all[name] = declaration{manifest: manifest, at: c.At, unmanagedReasons: c.Unmanaged}
	}
	return all, nil
}
