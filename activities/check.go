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

// How long evaluating one check may take: commands say it themselves, everything else is a question.
const (
	questionTimeout = 10 * time.Second
	commandTimeout  = 30 * time.Second
	jobTimeout      = 5 * time.Minute
	longestCheck    = 10 * time.Minute
	commandMargin   = 5 * time.Second // for a command that is being ended
)

// Check observes checks of one service, all at once and each with its own deadline and interval, so
// that a hung one is reported alone and delays no other. It completes when some reading is not as
// known; else it asks the server for another attempt when the next one is due, which writes no
// history. What is due when goes from one attempt to the next by heartbeat.
func (a *Activities) Check(ctx context.Context, r protocol.CheckRequest) (protocol.CheckAnswer, error) {
	info := activity.GetInfo(ctx)
	leave, away := a.checks.take(r.Application, time.Now())
	if leave == nil {
		return protocol.CheckAnswer{}, noPlace("the checks of "+r.Application, spread(away, info.WorkflowExecution.ID))
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
	if ctx.Err() != nil { // the worker is stopping: what it read half way counts for nothing
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

// Preflight evaluates checks once, now and all at once (A10). There is a reading of every one: what
// could not be evaluated in time is an ERROR.
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

// evaluate evaluates one check, bounded in time. It never fails: what keeps it from that is the verdict
// ERROR (D16).
func (a *Activities) evaluate(ctx context.Context, r protocol.CheckRequest, e entities.Evaluation) (verdict entities.CheckReading) {
	defer func(began time.Time) { a.evaluated(began, e, verdict) }(time.Now())
	reading, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	definition, err := a.Store.Check(reading, e.Definition)
	if err != nil {
		return unevaluated("its definition cannot be read: " + err.Error())
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
	if deadline, ok := ctx.Deadline(); ok { // of the activity: better an ERROR than no answer
		limit = max(min(limit, time.Until(deadline)-2*hanging), time.Second)
	}
	return within(ctx, limit, func(ctx context.Context) entities.CheckReading {
		asked.Now = time.Now().UTC()
		return checks.Evaluate(ctx, a.sources(r), asked)
	})
}

// sources is what checks of a service can ask from this worker.
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

// servicesFor asks services on behalf of one. That which waits for the answer said what it would be asked for.
func (a *Activities) servicesFor(r protocol.CheckRequest) checks.Services {
	all := calledServices{services{a}, r.Application, r.Others}
	if len(r.Releases) == 0 {
		return all
	}
	return waiting{all, r}
}

// waiting is a service that waits for the answer, so that no query of its own would be answered.
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

// limitOf is how long evaluating may take.
func limitOf(d entities.CheckDefinition) time.Duration {
	limit := questionTimeout
	switch {
	case d.Compare != nil:
		limit = 4 * questionTimeout // it asks up to eight questions, one after the other
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

// within evaluates, and leaves behind what ignores its deadline.
func within(ctx context.Context, limit time.Duration, evaluate func(context.Context) entities.CheckReading) entities.CheckReading {
	r, ok := leftBehind(ctx, limit, hanging, evaluate)
	if !ok {
		return unevaluated(fmt.Sprintf("no answer within %s", limit))
	}
	return r
}

// hanging is how long a check may take to end once its time is over.
const hanging = 2 * time.Second

func unevaluated(reason string) entities.CheckReading {
	return entities.CheckReading{Verdict: entities.Error, Reason: runtimes.Clip(reason, checks.MaxReason), At: time.Now().UTC()}
}
