package activities

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
)

// Limits for the evaluation of one check. Commands declare their own; all other checks are queries.
const (
	checkQueryTimeout = 10 * time.Second
	commandTimeout    = 30 * time.Second
	jobTimeout        = 5 * time.Minute
	maxCheckTimeout   = 10 * time.Minute
	commandMargin     = 5 * time.Second // for a command that is being stopped
)

// Check evaluates checks of one service concurrently, each with its own deadline and interval, so that a hung one is reported alone and
// delays no other. It completes when a reading differs from the known one. Otherwise it asks the server for another attempt when the next
// check is due, which writes no history. The heartbeat carries the schedule from one attempt to the next.
func (a *Activities) Check(ctx context.Context, r protocol.CheckRequest) (protocol.CheckAnswer, error) {
	info := activity.GetInfo(ctx)
	release, retryAfter := a.checkSlots.acquire(r.Application, time.Now())
	if release == nil {
		return protocol.CheckAnswer{}, limitReached("checks of "+r.Application, spread(retryAfter, info.WorkflowExecution.ID))
	}
	defer release()
	schedule := &schedule{spreadKey: info.WorkflowExecution.ID}
	if activity.HasHeartbeatDetails(ctx) {
		_ = activity.GetHeartbeatDetails(ctx, &schedule.backoffs) // unreadable: all are due
	} else {
		a.schedules.restore(info.WorkflowExecution.ID, r.Checks, schedule, time.Now())
	}
	heartbeatCtx, stop := context.WithCancel(ctx)
	defer stop()
	go sendHeartbeats(heartbeatCtx, func() []any { return []any{schedule.snapshot()} })
	news := evaluateAll(ctx, r.Checks, schedule, func(ctx context.Context, e entities.Evaluation) entities.CheckReading {
		return a.evaluate(ctx, r, e)
	})
	dropExcess(news, entities.SortedKeys(news))
	if ctx.Err() != nil || len(news) > 0 || schedule.hasErrors() { // other checks may be asked for at any moment, also between two attempts
		a.schedules.save(info.WorkflowExecution.ID, r.Checks, schedule, time.Now())
	}
	if ctx.Err() != nil { // the worker is stopping, or the checks change: incomplete readings are discarded
		return protocol.CheckAnswer{}, ctx.Err()
	}
	if len(news) > 0 {
		return protocol.CheckAnswer{Readings: news}, nil
	}
	stop()
	if len(r.Checks) > 1 || schedule.hasErrors() {
		activity.RecordHeartbeat(ctx, schedule.snapshot())
	}
	return protocol.CheckAnswer{}, unchangedError(max(time.Until(schedule.next(r.Checks)), time.Second))
}

// Preflight evaluates all checks once, immediately and concurrently (A10). It returns a reading of each: a check that could not be
// evaluated in time is an ERROR.
func (a *Activities) Preflight(ctx context.Context, r protocol.CheckRequest) (protocol.CheckAnswer, error) {
	heartbeatCtx, stop := context.WithCancel(ctx)
	defer stop()
	go sendHeartbeats(heartbeatCtx, nil)
	answer := protocol.CheckAnswer{Readings: map[string]entities.CheckReading{}}
	var mu sync.Mutex
	var evaluations sync.WaitGroup
	for _, e := range r.Checks {
		evaluations.Go(func() {
			reading := a.evaluate(ctx, r, e)
			mu.Lock()
			defer mu.Unlock()
			answer.Readings[e.Key()] = reading
		})
	}
	evaluations.Wait()
	clipReasons(answer.Readings)
	return answer, ctx.Err()
}

// evaluate evaluates one check, limited in time. It never fails: errors become the verdict ERROR (D16).
func (a *Activities) evaluate(ctx context.Context, r protocol.CheckRequest, e entities.Evaluation) (verdict entities.CheckReading) {
	defer func(began time.Time) { a.recordCheck(began, e, verdict) }(time.Now())
	queryCtx, cancel := context.WithTimeout(ctx, checkQueryTimeout)
	defer cancel()
	definition, err := a.Store.Check(queryCtx, e.Definition)
	if err != nil {
		return errorReading("cannot read its definition: " + err.Error())
	}
	definition = definition.ForChannel(r.Application, cmp.Or(r.Name, r.Service), e.Channel)
	needed := definition.Command != nil && needsDirFor(definition.Command.Job, definition.Command.Task)
	if definition.Dir, err = a.dirIfNeeded(queryCtx, needed, r.Application, definition.Dir); err != nil {
		return errorReading(err.Error())
	}
	request := checks.Request{
		Definition: definition, Evaluation: e, ServiceID: r.ServiceID, Service: r.Service, Channel: entities.NameIn(r.Keys, definition.Channel),
	}
	if e.FullVersion != "" {
		if record, err := a.Store.Version(queryCtx, r.Application, r.Service, e.FullVersion); err == nil {
			request.Version = record.Version
		}
	}
	limit := checkTimeout(definition)
	if deadline, ok := ctx.Deadline(); ok { // the deadline of the activity: an ERROR is better than no answer
		limit = max(min(limit, time.Until(deadline)-2*checkGrace), time.Second)
	}
	return evaluateWithin(ctx, limit, func(ctx context.Context) entities.CheckReading {
		request.Now = time.Now().UTC()
		return checks.Evaluate(ctx, a.sources(r), request)
	})
}

// sources returns the data sources of this worker for the checks of a service.
func (a *Activities) sources(r protocol.CheckRequest) checks.Sources {
	return checks.Sources{
		Own: func(ctx context.Context) (protocol.Status, error) {
			return services{a}.Status(ctx, r.Application, r.Service)
		},
		Addons: func(ctx context.Context) (map[string]entities.Addon, error) {
			return a.addons(ctx, r.Application, r.Service)
		},
		HTTP: http.DefaultClient, Commands: checks.CommandsOn(a.Commands), Services: a.servicesFor(r), Plans: planGate{a}, Payloads: a.Store, Commits: a.Store, Secrets: a.Commands.Secrets,
	}
}

// servicesFor queries services for the checks of a service. The service itself waits for the result and cannot answer queries; its
// request has the answer.
func (a *Activities) servicesFor(r protocol.CheckRequest) checks.Services {
	all := renamedServices{services{a}, r.Application, r.Others}
	if len(r.Releases) == 0 {
		return all
	}
	return servicesWithSelf{all, r}
}

// servicesWithSelf answers for the service that waits for the result of the checks, because it would not answer a query.
type servicesWithSelf struct {
	checks.Services
	request protocol.CheckRequest
}

// Status implements checks.Services.
func (w servicesWithSelf) Status(ctx context.Context, application, service string) (protocol.Status, error) {
	if application == w.request.Application && service == cmp.Or(w.request.Name, w.request.Service) {
		return protocol.Status{Releases: w.request.Releases}, nil
	}
	return w.Services.Status(ctx, application, service)
}

// checkTimeout returns the time limit for an evaluation.
func checkTimeout(d entities.CheckDefinition) time.Duration {
	limit := checkQueryTimeout
	switch {
	case d.Compare != nil:
		limit = 4 * checkQueryTimeout // up to eight sequential queries
	case d.HTTP != nil && d.HTTP.Timeout > 0:
		limit = d.HTTP.Timeout
	case d.Command != nil && d.Command.Command.Timeout > 0:
		limit = d.Command.Command.Timeout + commandMargin
	case d.Command != nil && (d.Command.Job != nil || d.Command.Task != nil):
		limit = jobTimeout + commandMargin
	case d.Command != nil:
		limit = commandTimeout + commandMargin
	}
	return min(limit, maxCheckTimeout)
}

// evaluateWithin evaluates a check and abandons it if it ignores its deadline.
func evaluateWithin(ctx context.Context, limit time.Duration, evaluate func(context.Context) entities.CheckReading) entities.CheckReading {
	r, ok := callWithGrace(ctx, limit, checkGrace, evaluate)
	if !ok {
		return errorReading(fmt.Sprintf("no answer within %s", limit))
	}
	return r
}

// checkGrace is the grace of a check after its deadline.
const checkGrace = 2 * time.Second

func errorReading(reason string) entities.CheckReading {
	return entities.CheckReading{Verdict: entities.Error, Reason: runtimes.ClipMessage(reason, checks.MaxReason), At: time.Now().UTC()}
}
