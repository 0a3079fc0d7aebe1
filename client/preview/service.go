package preview

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/store"
)

// Planner makes plans.
type Planner struct {
	Client client.Client
	Store  *store.Store
	By     string // the caller
	// Pickup is how long a worker may take to start the workflow; 0: the default.
	Pickup time.Duration
	// Status queries a service; one that does not exist returns a Status without a name.
	Status func(ctx context.Context, service string) (protocol.Status, error)
	// State queries a service for its whole state, to compute its removals.
	State func(ctx context.Context, service string) (*state.State, error)
	// Fake accepts runtimes of kind fake: tests and simulations.
	Fake bool
	// Run runs a command of a configuration, as in config.Options.
	Run func(config.Command) (config.RunResult, error)
}

// New returns a Planner for the services of an application. It runs no commands of a configuration.
func New(calls connection.API, application string, at *store.Store, by string) *Planner {
	c, _ := calls.Temporal()
	query := func(ctx context.Context, service, what string, into any) (found bool, _ error) {
		err := calls.Query(ctx, protocol.ServiceID(application, service), what, into)
		if errors.Is(err, connection.ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}
	return &Planner{
		Client: c, Store: at, By: by,
		Status: func(ctx context.Context, service string) (s protocol.Status, _ error) {
			_, err := query(ctx, service, protocol.QueryStatus, &s)
			return s, err
		},
		State: func(ctx context.Context, service string) (*state.State, error) {
			s := &state.State{}
			if found, err := query(ctx, service, protocol.QueryState, s); !found {
				return nil, err
			}
			return s, nil
		},
	}
}

// Refused is the reason for which a release would be refused, in the same words.
type Refused struct{ Reason string }

// Error is the reason.
func (e *Refused) Error() string { return "refused: " + e.Reason }

// Release describes the planned release.
type Release struct {
	Application protocol.ApplicationStatus
	Service     string
	Version     string
	// Compare: only compare with the version. Whether a version that exists may be released again does not matter.
	Compare bool
	// These fields are as in protocol.ReleaseRequest.
	Parameters        map[string]any
	ChannelParameters map[string]map[string]any
}

// Release plans the release of a version: from the newest incarnation, or, for a known version, as it was rendered then.
func (p *Planner) Release(ctx context.Context, r Release) (*Plan, error) {
	title := r.Service
	r.Service = r.Application.Names.Key(title) // its key in the store
	spec, err := p.spec(ctx, r.Application, r.Service)
	if err != nil {
		return nil, err
	}
	refused := check(spec, r)
	if refused != nil && !r.Compare {
		return nil, refused
	}
	status, err := p.Status(ctx, r.Service)
	if err != nil {
		return nil, err
	}
	draft, err := p.draft(ctx, protocol.PrepareRequest{
		Application: spec.Application, Service: r.Service, Version: r.Version, FullVersion: r.Version,
		Incarnation: spec.Incarnation, Hash: spec.Hash, Instances: spec.IDs(), Keys: spec.Keys(),
		Parameters: r.Parameters, ChannelParameters: r.ChannelParameters,
	})
	if err != nil {
		return nil, err
	}
	if refused != nil && !draft.Known {
		return nil, refused
	}
	service := Service{Service: r.Service, Version: r.Version, Incarnation: draft.Record.Incarnation, Known: draft.Known, Channels: []Channel{}}
	if draft.Known && draft.Record.Incarnation != spec.Incarnation {
		service.Notes = append(service.Notes, fmt.Sprintf("%s already exists: it is deployed unchanged, from incarnation %d; to use the configuration of incarnation %d, name a new version",
			r.Version, draft.Record.Incarnation, spec.Incarnation))
	}
	q := &previewItems{planner: p, application: spec.Application}
	for _, id := range spec.IDs() {
		payload, ok := draft.Payloads[id]
		if !ok {
			service.Notes = append(service.Notes, fmt.Sprintf("%s is unknown to incarnation %d: nothing would be applied there", id, draft.Record.Incarnation))
			continue
		}
		if err := q.add(ctx, &service, spec, id, presentVersion(status, id), r.Version, payload); err != nil {
			return nil, err
		}
	}
	plan := &Plan{Application: spec.Application, Incarnation: r.Application.Newest, Services: []Service{service}}
	if err := q.resolve(ctx, plan, r.Service, "plan "+spec.Application+"/"+title+" "+r.Version); err != nil {
		return nil, err
	}
	plan.setTitles(r.Application.Names)
	return plan, nil
}

// setTitles replaces the names of services in a plan with their display names.
func (p *Plan) setTitles(names protocol.ServiceNames) {
	for n := range p.Services {
		p.Services[n].Service = names.Title(p.Services[n].Service)
	}
	for n := range p.Removed {
		p.Removed[n] = names.Title(p.Removed[n])
	}
}

// spec reads the rules of a service in the newest incarnation.
func (p *Planner) spec(ctx context.Context, application protocol.ApplicationStatus, service string) (*entities.Spec, error) {
	manifest, err := p.Store.Manifest(ctx, application.Manifest)
	if err != nil {
		return nil, fmt.Errorf("the newest incarnation of %s: %w", application.Application, err)
	}
	digest, declared := manifest[service]
	if !declared {
		return nil, &Refused{fmt.Sprintf("%s/%s is no longer declared", application.Application, service)}
	}
	spec, err := p.Store.Spec(ctx, digest)
	if err != nil {
		return nil, fmt.Errorf("rules of %s: %w", service, err)
	}
	spec.Incarnation, spec.Hash = application.Newest, newestHash(application)
	return &spec, nil
}

func newestHash(a protocol.ApplicationStatus) string {
	for _, i := range a.Incarnations {
		if i.Number == a.Newest {
			return i.Hash
		}
	}
	return ""
}

// check refuses what a release would be refused for.
func check(spec *entities.Spec, r Release) error {
	names, channels := entities.SortedKeys(r.Parameters), entities.SortedKeys(r.ChannelParameters)
	for _, c := range channels {
		names = append(names, entities.SortedKeys(r.ChannelParameters[c])...)
	}
	if err := spec.CheckRelease(r.Version, names, channels); err != nil {
		return &Refused{err.Error()}
	}
	return nil
}

// draft renders like a release, refusals included.
func (p *Planner) draft(ctx context.Context, r protocol.PrepareRequest) (activities.Draft, error) {
	request, err := roundTrip(r)
	if err != nil {
		return activities.Draft{}, err
	}
	draft, err := (&activities.Activities{Store: p.Store}).Draft(ctx, request)
	return draft, refusal(err)
}

// roundTrip is a request after a round trip through JSON, as in Temporal: all numbers have the same type.
func roundTrip(r protocol.PrepareRequest) (out protocol.PrepareRequest, err error) {
	data, err := json.Marshal(r)
	if err != nil {
		return out, fmt.Errorf("parameters: %w", err)
	}
	return out, json.Unmarshal(data, &out)
}

// refusal separates errors of the caller from other errors.
func refusal(err error) error {
	var application *temporal.ApplicationError
	if errors.As(err, &application) && application.Type() == protocol.ErrRefused {
		return &Refused{application.Message()}
	}
	return err
}

// presentVersion is the current full version of an instance, empty for none.
func presentVersion(s protocol.Status, id entities.InstanceID) string {
	for _, c := range s.Channels {
		if c.Name != id.Channel {
			continue
		}
		for _, i := range c.Instances {
			if i.Name == id.Name {
				return i.Target
			}
		}
		return c.Target
	}
	return ""
}
