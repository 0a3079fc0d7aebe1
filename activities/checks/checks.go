// Package checks evaluates the conditions of a release that depend on systems outside of the workflow: protections (A19, A20, D16–D19)
// and conditions on other services (D20–D22). Each kind is one file that implements Evaluator and one line in kinds. A check returns
// PASS, WAIT (not now), FAIL (not without a change) or ERROR (it could not be evaluated), with a reason for users.
//
// A check changes nothing, keeps no state, and evaluates the current state. It discloses no secret. It may import entities, intent and
// runtimes; it knows nothing of Temporal.
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

// Request is the input of a check.
type Request struct {
	Definition entities.CheckDefinition
	Evaluation entities.Evaluation
	// Version is the version that a person or CI named; empty: the version that Evaluation.FullVersion was made from.
	Version string
	// ServiceID is passed to commands (C7).
	ServiceID string
	// Service and Channel are the first names, which workflows, runtimes and the store use.
	Service, Channel string
	Now              time.Time
}

// Evaluator evaluates checks of one kind. Evaluate may be called again and concurrently. It returns soon after ctx ends. An error means
// that the check could not be evaluated (D16); it is never a verdict on the release. Its text does not need the name of the check and
// must not contain a secret. The caller sets Now and At.
type Evaluator interface {
	Evaluate(ctx context.Context, a Request) (entities.CheckReading, error)
}

// Sources are the data sources of checks. A nil source is not available, and a check that needs it is an ERROR. An example is `simulate`
// without a network.
type Sources struct {
	// Own is the answer of the service's own status query.
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

// Commits returns the commits of an incarnation. store.Store implements it.
type Commits interface {
	// Brought returns the commits of an incarnation that an earlier one does not have; since 0: all. The answer says which commits are
	// unknown.
	Brought(ctx context.Context, application string, since, incarnation int64) (protocol.ReleaseCommits, error)
}

// Commands runs commands. On returns an implementation. It has the guarantees of custom.RunStandalone.
type Commands interface {
	Run(ctx context.Context, o custom.StandaloneCommand) (out runtimes.Output, signal string, err error)
}

// Payloads reads the payloads of runtimes, by digest. *store.Store implements it.
type Payloads interface {
	Payload(ctx context.Context, digest string) (entities.Payload, error)
}

// ErrNoService means that a service of the application has not started yet.
var ErrNoService = errors.New("there is no such service yet")

// ErrEnded means that a service is not managed now.
var ErrEnded = errors.New("it is unmanaged, or its workflow was ended or paused")

// ErrNoApplication means that there is no such application.
var ErrNoApplication = errors.New("there is no such application")

// Services queries the state of services of any application. Answers are current, never cached, unless a method says so.
type Services interface {
	// Status returns the answer of the service's status query. The error is ErrNoService for a service without a workflow, and
	// ErrNoApplication for an application without one.
	Status(ctx context.Context, application, service string) (protocol.Status, error)
	// Configured returns the progress of all services of an application with the configuration of an incarnation. It may be some seconds
	// old. An error of a service takes the place of its answer.
	Configured(ctx context.Context, application string, incarnation int64) ([]protocol.Configured, error)
	// Newest returns the newest (or pinned) incarnation of an application, and the digest of each service's spec in it.
	Newest(ctx context.Context, application string) (incarnation int64, specs map[string]string, err error)
	// Parameters returns the parameters that a full version of a service was rendered with for a channel.
	Parameters(ctx context.Context, application, service, channel, fullVersion string) (map[string]any, error)
}

// CommandsOn returns Commands that run on this machine, and where the worker can run them.
func CommandsOn(worker custom.Worker) Commands { return localCommands{worker} }

type localCommands struct{ worker custom.Worker }

func (m localCommands) Run(ctx context.Context, o custom.StandaloneCommand) (runtimes.Output, string, error) {
	return custom.RunStandalone(ctx, m.worker, o)
}

// kinds is the registry of evaluators.
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
		entities.CheckSelection:      selectionCheck{p},
		entities.CheckServiceStable:  serviceStable{p},
		entities.CheckVersionOrder:   versionOrder{p},
		entities.CheckStaticOrder:    staticOrder{p},
		entities.CheckCapacityOrder:  capacityOrder{p},
		entities.CheckConfigRollout:  configRollout{p},
		entities.CheckPlan:           planCheck{p},
	}
}

// MaxReason limits a reason, in bytes.
const MaxReason = 500

// Evaluate evaluates a check. It never fails and never panics: every error becomes the verdict ERROR (D16), including an ended ctx and an
// unknown kind. Reading.At is a.Now.
func Evaluate(ctx context.Context, sources Sources, a Request) (r entities.CheckReading) {
	defer func() {
		if panicked := recover(); panicked != nil {
			r = entities.CheckReading{Verdict: entities.Error, Reason: fmt.Sprintf("the check panicked: %v", panicked)}
		}
		r.At, r.Reason = a.Now, runtimes.ClipMessage(onOneLine(r.Reason), MaxReason)
	}()
	r, err := evaluate(ctx, sources, a)
	if err == nil && !r.Verdict.Known() {
		err = fmt.Errorf("unknown verdict %q", r.Verdict)
	}
	if err != nil {
		return entities.CheckReading{Verdict: entities.Error, Reason: err.Error()}
	}
	return r
}

func evaluate(ctx context.Context, sources Sources, a Request) (entities.CheckReading, error) {
	if err := ctx.Err(); err != nil {
		return entities.CheckReading{}, fmt.Errorf("it was not evaluated: %w", err)
	}
	evaluator, ok := kinds(sources)[a.Definition.Kind]
	if !ok {
		return entities.CheckReading{}, fmt.Errorf("this version does not support checks of kind %q", a.Definition.Kind)
	}
	return evaluator.Evaluate(ctx, a.withPlaceholders())
}

// Constructors for the readings of evaluators.

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

// incomplete returns the error for a definition that lacks the field of its kind.
func incomplete(a Request) (entities.CheckReading, error) {
	return unevaluated("its definition lacks %s", a.Definition.Kind)
}
