package checks_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/custom"
	source "github.com/converge-engine/converge/runtimes/secret"
)

// World is an application in memory. Tests do not change it during an evaluation.
type World struct {
	Incarnation int64
	Statuses    map[string]protocol.Status // by service; its Spec is that of the newest incarnation unless Behind
	Behind      map[string]bool            // services that have not read the newest incarnation
	Rendered    map[string]map[string]any  // by "service@version": parameters
	Stored      map[string]entities.Payload
	// Configurations are the progress of services with any incarnation.
	Configurations []protocol.Configured
	Elsewhere      map[string]World // other applications, by name; shop is this one
}

// application returns the world of an application.
func (w World) application(application string) (World, error) {
	if application == "shop" {
		return w, nil
	}
	other, ok := w.Elsewhere[application]
	if !ok {
		return other, checks.ErrNoApplication
	}
	return other, nil
}

// Sources returns the sources that answer from this world, without any others.
func (w World) Sources() checks.Sources { return checks.Sources{Services: w, Payloads: w} }

// Status implements checks.Services.
func (w World) Status(_ context.Context, application, service string) (protocol.Status, error) {
	w, err := w.application(application)
	if err != nil {
		return protocol.Status{}, err
	}
	s, ok := w.Statuses[service]
	if !ok {
		return s, checks.ErrNoService
	}
	s.Service, s.Spec = service, "spec-"+service
	if w.Behind[service] {
		s.Spec = "an older one"
	}
	return s, nil
}

// Newest implements checks.Services.
func (w World) Newest(_ context.Context, application string) (int64, map[string]string, error) {
	w, err := w.application(application)
	if err != nil {
		return 0, nil, err
	}
	specs := map[string]string{}
	for service := range w.Statuses {
		specs[service] = "spec-" + service
	}
	return w.Incarnation, specs, nil
}

// Configured implements checks.Services.
func (w World) Configured(_ context.Context, application string, _ int64) ([]protocol.Configured, error) {
	w, err := w.application(application)
	return w.Configurations, err
}

// Parameters implements checks.Services.
func (w World) Parameters(_ context.Context, application, service, _, version string) (map[string]any, error) {
	w, err := w.application(application)
	if err != nil {
		return nil, err
	}
	p, ok := w.Rendered[service+"@"+version]
	if !ok {
		return nil, fmt.Errorf("%s %s is not stored", service, version)
	}
	return p, nil
}

// Payload implements checks.Payloads.
func (w World) Payload(_ context.Context, digest string) (entities.Payload, error) {
	p, ok := w.Stored[digest]
	if !ok {
		return p, fmt.Errorf("no payload %s", digest)
	}
	return p, nil
}

// fakeStatus is the status of the service: v2 has succeeded in staging and is in progress in prod.
func fakeStatus(context.Context) (protocol.Status, error) {
	return protocol.Status{
		Channels: []protocol.ChannelStatus{
			{Name: "staging", Status: "CONVERGED", Current: "v2-i7", Target: "v2-i7", Objects: []entities.Object{{Name: "elsewhere"}}},
			{Name: "prod", Status: "CONVERGING", Current: "v1", Target: "v2-i7", Omitted: 2, Objects: []entities.Object{
				{Name: "web", Type: "Deployment", Status: entities.ObjectSucceeded, Versions: []entities.ObjectVersion{{Version: "v2-i7", Active: true}}},
				{Name: "routes", Type: "Ingress", Message: "no address yet"},
			}},
		},
		Releases: []protocol.ReleaseStatus{{
			ID: "r2", Version: "v2-i7", Incarnation: 7, By: "ci", At: time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC),
			Phases: map[string]string{"staging": "succeeded", "prod": "in progress"},
		}},
	}, nil
}

// Hanging returns sources that give no answer before ctx ends. onCall is called for each query.
func Hanging(onCall func()) checks.Sources {
	h := hanging{onCall}
	return checks.Sources{
		Own:  func(ctx context.Context) (protocol.Status, error) { return protocol.Status{}, h.hang(ctx) },
		HTTP: &http.Client{Transport: h}, Commands: h, Services: h, Payloads: h, Commits: h,
		Secrets: source.Environment{Allowed: []string{"*"}, Lookup: func(string) (string, bool) { return "a secret", true }},
	}
}

type hanging struct{ onCall func() }

func (h hanging) hang(ctx context.Context) error {
	h.onCall()
	<-ctx.Done()
	return ctx.Err()
}

// RoundTrip implements http.RoundTripper.
func (h hanging) RoundTrip(r *http.Request) (*http.Response, error) { return nil, h.hang(r.Context()) }

// Run implements checks.Commands.
func (h hanging) Run(ctx context.Context, _ custom.StandaloneCommand) (runtimes.Output, string, error) {
	return runtimes.Output{}, "", h.hang(ctx)
}

// Status implements checks.Services.
func (h hanging) Status(ctx context.Context, _, _ string) (protocol.Status, error) {
	return protocol.Status{}, h.hang(ctx)
}

// Newest implements checks.Services.
func (h hanging) Newest(ctx context.Context, _ string) (int64, map[string]string, error) {
	return 0, nil, h.hang(ctx)
}

// Configured implements checks.Services.
func (h hanging) Configured(ctx context.Context, _ string, _ int64) ([]protocol.Configured, error) {
	return nil, h.hang(ctx)
}

// Brought implements checks.Commits.
func (h hanging) Brought(ctx context.Context, _ string, _, _ int64) (protocol.ReleaseCommits, error) {
	return protocol.ReleaseCommits{}, h.hang(ctx)
}

// Parameters implements checks.Services.
func (h hanging) Parameters(ctx context.Context, _, _, _, _ string) (map[string]any, error) {
	return nil, h.hang(ctx)
}

// Payload implements checks.Payloads.
func (h hanging) Payload(ctx context.Context, _ string) (entities.Payload, error) {
	return entities.Payload{}, h.hang(ctx)
}
