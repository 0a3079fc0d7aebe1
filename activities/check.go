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
	questionTimeout = 10 * time.Second
	commandTimeout  = 30 * time.Second
	jobTimeout      = 5 * time.Minute
	longestCheck    = 10 * time.Minute
	commandMargin   = 5 * time.Second // for a command that is being stopped
)

// Check evaluates checks of one service concurrently, each with its own deadline and interval, so that a hung one is reported alone and
// delays no other. It completes when a reading differs from the known one. Otherwise it asks the server for another attempt when the next
// check is due, which writes no history. The heartbeat carries the schedule from one attempt to the next.
func (a *Activities) Check(ctx context.Context, r protocol.CheckRequest) (protocol.CheckAnswer, error) {
	info := activity.GetInfo(ctx)
	leave, away := a.checks.take(r.Application, time.Now())
	if leave == nil {
		return protocol.CheckAnswer{}, noPlace("checks of "+r.Application, spread(away, info.WorkflowExecution.ID))
	}
	defer leave()
	schedule := &schedule{spread: info.WorkflowExecution.ID}
	if activity.HasHeartbeatDetails(ctx) {
		_ = activity.GetHeartbeatDetails(ctx, &schedule.at) // unreadable: all are due
	} else {
		a.recall.take(info.WorkflowExecution.ID, r.Checks, schedule, time.Now())
	}
	beating, stop := context.WithCancel(ctx)
	defer stop()
	go heartbeats(beating, func() []any { return []any{schedule.copied()} })
	news := evaluateAll(ctx, r.Checks, schedule, func(ctx context.Context, e entities.Evaluation) entities.CheckReading {
		return a.evaluate(ctx, r, e)
	})
	bound(news, entities.SortedKeys(news))
	if ctx.Err() != nil { // the worker is stopping: incomplete readings are discarded
		return protocol.CheckAnswer{}, ctx.Err()
	}
	if len(news) > 0 {
		a.recall.keep(info.WorkflowExecution.ID, r.Checks, schedule, time.Now())
		return protocol.CheckAnswer{Readings: news}, nil
	}
	stop()
	if len(r.Checks) > 1 || schedule.erred() {
		activity.RecordHeartbeat(ctx, schedule.copied())
	}
	return protocol.CheckAnswer{}, asKnown(max(time.Until(schedule.next(r.Checks)), time.Second))
}

// Preflight evaluates all checks once, immediately and concurrently (A10). It returns a reading of each: a check that could not be
// evaluated in time is an ERROR.
func (a *Activities) Preflight(ctx context.Context, r protocol.CheckRequest) (protocol.CheckAnswer, error) {
	beating, stop := context.WithCancel(ctx)
	defer stop()
	go heartbeats(beating, nil)
	answer := protocol.CheckAnswer{Readings: map[string]entities.CheckReading{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, e := range r.Checks {
		all.Go(func() {
			reading := a.evaluate(ctx, r, e)
			mu.Lock()
			defer mu.Unlock()
			answer.Readings[e.Key()] = reading
		})
	}
	all.Wait()
	clipReasons(answer.Readings)
	return answer, ctx.Err()
}

// evaluate evaluates one check, limited in time. It never fails: errors become the verdict ERROR (D16).
func (a *Activities) evaluate(ctx context.Context, r protocol.CheckRequest, e entities.Evaluation) (verdict entities.CheckReading) {
	defer func(began time.Time) { a.evaluated(began, e, verdict) }(time.Now())
	reading, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	definition, err := a.Store.Check(reading, e.Definition)
	if err != nil {
		return unevaluated("cannot read its definition: " + err.Error())
	}
	definition = definition.Of(r.Application, cmp.Or(r.Name, r.Service), e.Channel)
	needed := definition.Command != nil && needsDirFor(definition.Command.Job, definition.Command.Task)
	if definition.Dir, err = a.dirIf(reading, needed, r.Application, definition.Dir); err != nil {
		return unevaluated(err.Error())
	}
	asked := checks.Asked{
		Definition: definition, Evaluation: e, ServiceID: r.ServiceID, Service: r.Service, Channel: entities.NameIn(r.Keys, definition.Channel),
	}
	if e.FullVersion != "" {
		if record, err := a.Store.Version(reading, r.Application, r.Service, e.FullVersion); err == nil {
			asked.Version = record.Version
		}
	}
	limit := limitOf(definition)
	if deadline, ok := ctx.Deadline(); ok { // the deadline of the activity: an ERROR is better than no answer
		limit = max(min(limit, time.Until(deadline)-2*hanging), time.Second)
	}
	return within(ctx, limit, func(ctx context.Context) entities.CheckReading {
		asked.Now = time.Now().UTC()
		return checks.Evaluate(ctx, a.sources(r), asked)
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
		HTTP: http.DefaultClient, Commands: checks.On(a.Commands), Services: a.servicesFor(r), Plans: planGate{a}, Payloads: a.Store, Commits: a.Store, Secrets: a.Commands.Secrets,
	}
}

// servicesFor queries services for the checks of a service. The service itself waits for the result and cannot answer queries; its
// request has the answer.
func (a *Activities) servicesFor(r protocol.CheckRequest) checks.Services {
	all := calledServices{services{a}, r.Application, r.Others}
	if len(r.Releases) == 0 {
		return all
	}
	return waiting{all, r}
}

// waiting answers for the service that waits for the result of the checks, because it would not answer a query.
type waiting struct {
	checks.Services
	request protocol.CheckRequest
}

// Status implements checks.Services.
func (w waiting) Status(ctx context.Context, application, service string) (protocol.Status, error) {
	if application == w.request.Application && service == cmp.Or(w.request.Name, w.request.Service) {
		return protocol.Status{Releases: w.request.Releases}, nil
	}
	return w.Services.Status(ctx, application, service)
}

// limitOf returns the time limit for an evaluation.
func limitOf(d entities.CheckDefinition) time.Duration {
	limit := questionTimeout
	switch {
	case d.Compare != nil:
		limit = 4 * questionTimeout // up to eight sequential queries
	case d.HTTP != nil && d.HTTP.Timeout > 0:
		limit = d.HTTP.Timeout
	case d.Command != nil && d.Command.Command.Timeout > 0:
		limit = d.Command.Command.Timeout + commandMargin
	case d.Command != nil && (d.Command.Job != nil || d.Command.Task != nil):
		limit = jobTimeout + commandMargin
	case d.Command != nil:
		limit = commandTimeout + commandMargin
	}
	return min(limit, longestCheck)
}

// within evaluates a check and abandons it if it ignores its deadline.
func within(ctx context.Context, limit time.Duration, evaluate func(context.Context) entities.CheckReading) entities.CheckReading {
	r, ok := leftBehind(ctx, limit, hanging, evaluate)
	if !ok {
		return unevaluated(fmt.Sprintf("no answer within %s", limit))
	}
	return r
}

// hanging is the grace of a check after its deadline.
const hanging = 2 * time.Second

func unevaluated(reason string) entities.CheckReading {
	return entities.CheckReading{Verdict: entities.Error, Reason: runtimes.Clip(reason, checks.MaxReason), At: time.Now().UTC()}
}
