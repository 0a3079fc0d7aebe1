// Package checks evaluates what stands between a release and its target and lies outside of the workflow:
// protections (A19, A20, D16–D19) and conditions on other services (D20–D22). Each kind is one file
// behind Evaluator and one line in kinds. A check says PASS, WAIT (not now), FAIL (not by itself) or
// ERROR (it could not be evaluated), with a reason for people.
//
// A check changes nothing, keeps nothing, and answers the question from what is there now. It lets no
// secret out. It may import entities, intent and runtimes; it knows nothing of Temporal.
package checks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/custom"
	"github.com/converge-engine/converge/runtimes/secret"
)

// Asked is what a check is asked.
type Asked struct {
	Definition entities.CheckDefinition
	Evaluation entities.Evaluation
	// Version is what a person or CI named; empty: what Evaluation.FullVersion was made from.
	Version string
	// ServiceID is what commands get (C7).
	ServiceID string
	// Service and Channel are what they know these by: the names that they had first.
	Service, Channel string
	Now              time.Time
}

// Evaluator evaluates checks of one kind. Evaluate may be called again and at the same time; it returns soon
// after ctx ends. An error is that it could not be evaluated (D16), which is never a verdict on the release;
// its text needs no name of the check, and must hold no secret. Now and At are not its business.
type Evaluator interface {
	Evaluate(ctx context.Context, a Asked) (entities.CheckReading, error)
}

// Sources is what checks can ask. What is nil is not there: a check that needs it is an ERROR. So is
// `simulate` without a network.
type Sources struct {
	// Own is what the status query of the service itself says.
	Own func(ctx context.Context) (protocol.Status, error)
	// Addons are those of the service in the newest configuration.
	Addons   func(ctx context.Context) (map[string]entities.Addon, error)
	HTTP     *http.Client
	Commands Commands
	Services Services
	Plans    Plans
	Payloads Payloads
	Commits  Commits
	Secrets  secret.Source
}

// Commits says which commits come with an incarnation; store.Store is one.
type Commits interface {
	// Brought are the commits of an incarnation that an earlier one does not have; of 0, all. It says in it which are not known.
	Brought(ctx context.Context, application string, since, incarnation int64) (protocol.Brought, error)
}

// Commands runs commands; On makes one. It keeps the promises of custom.RunOnce.
type Commands interface {
	Run(ctx context.Context, o custom.Once) (out runtimes.Output, signal string, err error)
}

// Payloads reads what a runtime receives, by digest. *store.Store is one.
type Payloads interface {
	Payload(ctx context.Context, digest string) (entities.Payload, error)
}

// ErrNoService is that a service of the application has not started yet.
var ErrNoService = errors.New("there is no such service yet")

// ErrEnded is that nobody looks after a service now.
var ErrEnded = errors.New("it is unmanaged, or its workflow was ended or paused")

// ErrNoApplication is that there is no such application.
var ErrNoApplication = errors.New("there is no such application")

// Services asks services, of any application, what they are at. Answers are of now, never kept.
type Services interface {
	// Status is what the service's status query says. A service without a workflow is ErrNoService, one of an
	// application without one ErrNoApplication.
	Status(ctx context.Context, application, service string) (protocol.Status, error)
	// Configured is how far all services of an application are with the configuration of an incarnation, as they were at most some
	// seconds ago. What keeps one from answering is in its place.
	Configured(ctx context.Context, application string, incarnation int64) ([]protocol.Configured, error)
	// Newest is the newest (or pinned) incarnation of an application, and the digest of each service's
	// spec in it.
	Newest(ctx context.Context, application string) (incarnation int64, specs map[string]string, err error)
	// Parameters are those that a full version of a service was rendered with for a channel.
	Parameters(ctx context.Context, application, service, channel, fullVersion string) (map[string]any, error)
}

// On runs commands on this machine, and where the worker can have them run.
func On(worker custom.Worker) Commands { return machine{worker} }

type machine struct{ worker custom.Worker }

func (m machine) Run(ctx context.Context, o custom.Once) (runtimes.Output, string, error) {
	return custom.RunOnce(ctx, m.worker, o)
}

// kinds is the one list of evaluators.
func kinds(p Sources) map[entities.CheckKind]Evaluator {
	return map[entities.CheckKind]Evaluator{
		entities.CheckAllowedTimes:   allowedTimes{},
		entities.CheckDeniedVersions: deniedVersions{},
		entities.CheckDeniedCommits:  deniedCommits{p},
		entities.CheckAlways:         always{},
		entities.CheckCEL:            cel{p},
		entities.CheckCompare:        compare{p},
		entities.CheckPrometheus:     prometheus{p},
		entities.CheckCapacity:       capacity{p},
		entities.CheckAlertmanager:   alertmanager{p},
		entities.CheckHTTP:           httpCheck{p},
		entities.CheckCommand:        command{p},
		entities.CheckJob:            command{p},
		entities.CheckTask:           command{p},
		entities.CheckSelection:      selects{p},
		entities.CheckServiceStable:  serviceStable{p},
		entities.CheckVersionOrder:   versionOrder{p},
		entities.CheckStaticOrder:    staticOrder{p},
		entities.CheckCapacityOrder:  capacityOrder{p},
		entities.CheckConfigRollout:  configRollout{p},
		entities.CheckPlan:           inPlan{p},
	}
}

// MaxReason bounds a reason, in bytes.
const MaxReason = 500

// Evaluate evaluates a check. It never fails and never panics: what keeps it from that is the verdict
// ERROR (D16), an end of ctx and an unknown kind included. Reading.At is a.Now.
func Evaluate(ctx context.Context, sources Sources, a Asked) (r entities.CheckReading) {
	defer func() {
		if broken := recover(); broken != nil {
			r = entities.CheckReading{Verdict: entities.Error, Reason: fmt.Sprintf("the check itself is broken: %v", broken)}
		}
		r.At, r.Reason = a.Now, oneLine(r.Reason, MaxReason)
	}()
	r, err := evaluate(ctx, sources, a)
	if err == nil && !r.Verdict.Known() {
		err = fmt.Errorf("%q is no verdict", r.Verdict)
	}
	if err != nil {
		return entities.CheckReading{Verdict: entities.Error, Reason: err.Error()}
	}
	return r
}

func evaluate(ctx context.Context, sources Sources, a Asked) (entities.CheckReading, error) {
	if err := ctx.Err(); err != nil {
		return entities.CheckReading{}, fmt.Errorf("it was not evaluated: %w", err)
	}
	evaluator, ok := kinds(sources)[a.Definition.Kind]
	if !ok {
		return entities.CheckReading{}, fmt.Errorf("this version knows no checks of kind %q", a.Definition.Kind)
	}
	return evaluator.Evaluate(ctx, a.filled())
}

// Readings as evaluators return them.

func pass(format string, args ...any) (entities.CheckReading, error) {
	return entities.CheckReading{Verdict: entities.Pass, Reason: fmt.Sprintf(format, args...)}, nil
}

func wait(format string, args ...any) (entities.CheckReading, error) {
	return entities.CheckReading{Verdict: entities.Wait, Reason: fmt.Sprintf(format, args...)}, nil
}

func fail(format string, args ...any) (entities.CheckReading, error) {
	return entities.CheckReading{Verdict: entities.Fail, Reason: fmt.Sprintf(format, args...)}, nil
}

func unevaluated(format string, args ...any) (entities.CheckReading, error) {
	return entities.CheckReading{}, fmt.Errorf(format, args...)
}

// incomplete is the error of a definition that lacks the field of its kind.
func incomplete(a Asked) (entities.CheckReading, error) {
	return unevaluated("its definition says nothing of %s", a.Definition.Kind)
}
